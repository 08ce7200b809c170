//! One attempt of the job, without threads: the operators of each task, which are given rows and time by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::checkpoint::StateKind;
use levada_common::ids::{AttemptId, CheckpointId, Uid};
use levada_common::keys::{KeyGroupRange, key_groups, owner_of_group};
use levada_common::plan::{JoinScope, OperatorKind, OperatorSpec, Plan};
use levada_common::time::Watermark;
use levada_engine::metrics::NodeMetrics;
use levada_engine::operator::{Operator, OperatorContext, RestoredState};
use levada_engine::operators::build;
use levada_state::cold::ColdStores;
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::StatePart;
use rand::Rng;
use rand::rngs::StdRng;

use super::changes::{changelog, changes};
use super::functions::{LISTS, functions};
use super::specs::{compiler, input, rates};

/// Key groups: more than the widest job has subtasks, and no multiple of most widths.
pub const MAX_PARALLELISM: u32 = 16;

/// Rows of a feed, and how many keys they have.
pub const FEED_ROWS: i64 = 40;
const KEYS: i64 = 40;

/// Values that rows have: few enough that a key has one again.
const VALUES: i64 = 60;

/// What comes at once, and what time it is afterwards.
pub struct Feed {
    rows: RecordBatch,
    /// What joins meet.
    others: RecordBatch,
    /// What comes and goes.
    changes: RecordBatch,
    rates: Option<RecordBatch>,
    watermark: Watermark,
    processing_ms: i64,
}

impl Feed {
    /// These rows, none beside them, and these times afterwards.
    pub fn of(rows: &[(&str, i64, i64)], watermark: i64, processing_ms: i64) -> Self {
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)));
        let rows = RecordBatch::try_new(input().to_arrow(), vec![keys, values, times]).unwrap();
        let changes = RecordBatch::new_empty(changelog().to_arrow());
        Self { others: rows.slice(0, 0), rows, changes, rates: None, watermark: Watermark(watermark), processing_ms }
    }
}

/// Feeds of random rows in the order of their times, but for a few that are late; `from` is the first one's number.
pub fn feeds(rng: &mut StdRng, from: i64, count: i64) -> Vec<Feed> {
    let mut before = RecordBatch::new_empty(input().to_arrow());
    let mut feed = |number: i64| {
        let start = number * 90;
        let rates = (number % 4 == 0).then(|| {
            let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..2).map(|_| format!("r{}", rng.random_range(0..4)))));
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..2).map(|_| rng.random_range(1..100))));
            RecordBatch::try_new(rates().to_arrow(), vec![names, values]).unwrap()
        });
        let (rows, others) = (rows(rng, start), rows(rng, start));
        let changes = changes(&rows, &std::mem::replace(&mut before, rows.clone()));
        Feed { rows, others, changes, rates, watermark: Watermark(start - 100), processing_ms: 900 * number }
    };
    (from..from + count).map(&mut feed).collect()
}

fn rows(rng: &mut StdRng, start: i64) -> RecordBatch {
    let key = |rng: &mut StdRng| format!("key {}", rng.random_range(0..KEYS));
    let time = |rng: &mut StdRng, row| if rng.random_bool(0.05) { start - rng.random_range(0..800) } else { start + 2 * row };
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..FEED_ROWS).map(|_| key(rng))));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..FEED_ROWS).map(|_| rng.random_range(0..VALUES))));
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values((0..FEED_ROWS).map(|row| time(rng, row))));
    RecordBatch::try_new(input().to_arrow(), vec![keys, values, times]).unwrap()
}

/// What a task was restored with, by operator.
pub type States = BTreeMap<Uid, Vec<RestoredState>>;

/// The operators of each task.
pub struct Run {
    plan: Arc<Plan>,
    pub attempt: AttemptId,
    tasks: Vec<Vec<Box<dyn Operator>>>,
    /// Rows that came out, as text.
    given: Vec<String>,
    /// What each task was restored with.
    pub restored: Vec<States>,
    /// The task that gets the next row without a key.
    turn: usize,
}

impl Run {
    pub fn new(plan: Arc<Plan>, attempt: AttemptId) -> Self {
        Self { plan, attempt, tasks: Vec::new(), given: Vec::new(), restored: Vec::new(), turn: 0 }
    }

    pub fn width(&self) -> usize {
        self.tasks.len()
    }

    fn spec(&self, place: usize) -> &OperatorSpec {
        &self.plan.vertices[0].operators[place]
    }

    /// Opens the operators of the next task.
    pub fn open(&mut self, states: States, cold: Option<&Arc<dyn ColdStores>>) {
        self.restored.push(states.clone());
        let (parallelism, subtask, mut states) = (self.plan.vertices[0].parallelism, self.tasks.len() as u32, states);
        let mut operators = Vec::new();
        for spec in &self.plan.vertices[0].operators {
            let mut operator = build(spec, &*compiler(), &functions()).unwrap();
            let context = OperatorContext {
                subtask,
                parallelism,
                max_parallelism: MAX_PARALLELISM,
                key_groups: KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM),
                batch_rows_max: 16,
                metrics: Arc::new(NodeMetrics::new(spec.uid.clone())),
                cold: cold.cloned(),
                heap_budget: Arc::new(HeapBudget::unlimited()),
            };
            operator.open(&context, states.remove(&spec.uid).unwrap_or_default()).unwrap();
            operators.push(operator);
        }
        assert!(states.is_empty(), "states that no operator has: {states:?}");
        assert_eq!(cold.and_then(|stores| stores.unopened()), None, "a database that no operator has");
        self.tasks.push(operators);
    }

    /// Gives every operator the feed's rows, each task those that are its own, and says what time it is.
    pub fn feed(&mut self, feed: &Feed) {
        let width = self.width();
        let owners = |rows: &RecordBatch, key| owners(rows.column(key), width);
        let (rows, others, changes) = (owners(&feed.rows, 0), owners(&feed.others, 0), owners(&feed.changes, 1));
        let turns: Vec<usize> = (0..feed.rows.num_rows()).map(|row| (self.turn + row) % width).collect();
        self.turn += feed.rows.num_rows();
        for subtask in 0..width {
            for place in 0..self.tasks[subtask].len() {
                self.tick(subtask, place, feed.processing_ms);
                let second = match &self.spec(place).kind {
                    OperatorKind::Process(process) if process.second.is_none() => {
                        process.broadcast.as_ref().and(feed.rates.clone())
                    }
                    // Every instance has all of a table.
                    OperatorKind::Join(join) if matches!(join.scope, JoinScope::Lookup { .. }) => Some(feed.others.clone()),
                    OperatorKind::Process(_) | OperatorKind::Join(_) => Some(own(&feed.others, &others, subtask)),
                    _ => None,
                };
                let is_keyed = self.spec(place).uid.as_str() != LISTS;
                let first = match self.spec(place).input.changelog {
                    true => own(&feed.changes, &changes, subtask),
                    false => own(&feed.rows, if is_keyed { &rows } else { &turns }, subtask),
                };
                for (input, batch) in [(1, second), (0, Some(first))] {
                    if let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) {
                        self.wait(subtask, place);
                        self.tasks[subtask][place].process(input, batch).unwrap();
                        self.drain(subtask, place);
                    }
                }
                self.tasks[subtask][place].advance(feed.watermark).unwrap();
                self.drain(subtask, place);
                self.tasks[subtask][place].background().unwrap();
            }
        }
    }

    fn tick(&mut self, subtask: usize, place: usize, time_ms: i64) {
        if self.tasks[subtask][place].keeps_time() {
            self.tasks[subtask][place].tick(time_ms).unwrap();
            self.drain(subtask, place);
        }
    }

    /// Ends the data.
    pub fn finish(&mut self) {
        for subtask in 0..self.width() {
            for place in 0..self.tasks[subtask].len() {
                self.tick(subtask, place, 1_000_000);
                self.tasks[subtask][place].advance(Watermark::MAX).unwrap();
                self.drain(subtask, place);
                self.tasks[subtask][place].finish().unwrap();
                self.drain(subtask, place);
            }
        }
    }

    /// Waits until the operator takes rows and gives some: its store may be writing.
    fn wait(&mut self, subtask: usize, place: usize) {
        while !self.tasks[subtask][place].is_ready().unwrap() {
            self.tasks[subtask][place].background().unwrap();
            std::thread::yield_now();
        }
    }

    fn drain(&mut self, subtask: usize, place: usize) {
        let uid = self.spec(place).uid.clone();
        loop {
            self.wait(subtask, place);
            let Some(batch) = self.tasks[subtask][place].poll().unwrap() else { return };
            self.given.extend(lines(&batch).into_iter().map(|line| format!("{uid}: {line}")));
        }
    }

    /// What came out since the last call, sorted.
    pub fn take(&mut self) -> Vec<String> {
        let mut given = std::mem::take(&mut self.given);
        given.sort_unstable();
        given
    }

    /// A barrier comes to a task: the synchronous part of its snapshot.
    pub fn barrier(&mut self, subtask: usize, checkpoint: CheckpointId) -> Vec<StatePart> {
        let mut parts = Vec::new();
        for place in 0..self.tasks[subtask].len() {
            self.tasks[subtask][place].before_barrier().unwrap();
            self.drain(subtask, place);
            parts.extend(self.tasks[subtask][place].snapshot(checkpoint, false).unwrap());
        }
        parts
    }

    /// Sends the rest of all that is frozen.
    pub fn send_rest(&mut self) {
        for operator in self.tasks.iter_mut().flatten() {
            while operator.background().unwrap() {}
        }
    }
}

/// The task of each row's key.
fn owners(keys: &ArrayRef, width: usize) -> Vec<usize> {
    let mut groups = Vec::new();
    key_groups(&[Arc::clone(keys)], MAX_PARALLELISM, &mut groups);
    groups.into_iter().map(|group| owner_of_group(group, width as u32, MAX_PARALLELISM) as usize).collect()
}

/// The rows of a task.
fn own(rows: &RecordBatch, owners: &[usize], subtask: usize) -> RecordBatch {
    let own = owners.iter().enumerate().filter(|(_, owner)| **owner == subtask).map(|(row, _)| row as u32);
    take_record_batch(rows, &UInt32Array::from_iter_values(own)).unwrap()
}

/// Rows as text.
pub fn lines(batch: &RecordBatch) -> Vec<String> {
    let value = |column: &ArrayRef, row| array_value_to_string(column, row).unwrap();
    let line = |row| batch.columns().iter().map(|column| value(column, row)).collect::<Vec<_>>().join(" ");
    (0..batch.num_rows()).map(line).collect()
}

/// The rows of an operator's state of this kind, task by task.
pub fn rows_of(restored: &[States], uid: &str, name: &str, kind: StateKind) -> Vec<Vec<String>> {
    let of_task = |states: &States| {
        let mut of_state = states.get(&Uid::new(uid)).into_iter().flatten().filter(|state| state.name == name);
        let Some(state) = of_state.next() else { return Vec::new() };
        assert_eq!(state.kind, kind, "{uid}/{name}");
        state.batches.iter().flat_map(lines).collect()
    };
    restored.iter().map(of_task).collect()
}
