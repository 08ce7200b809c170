//! The contract of keyed state, checked against a plain map: for every backend the same.
//!
//! [`check`] does random things with states of every type at a random parallelism, takes snapshots, goes on changing, and
//! demands that each snapshot is what the map was at its barrier; then it restores at another parallelism and goes on. What it
//! does is decided by a seed alone, so that a failure is found again.

mod dice;
mod model;
mod states;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::{KeyGroupRange, key_groups, owner_of_group};
use levada_common::types::{Column, LogicalType};

use crate::format::KEY_PREFIX;
use crate::row_codec::{INDEX_COLUMN, NAMESPACE_COLUMN, TTL_COLUMN};
use crate::snapshot::{Contents, DatabaseSnapshot, StatePart};

use super::{Clock, HeapBudget, KeyedOptions, KeyedState, Namespace};
use dice::Dice;
use model::{Address, Dump, Model};
use states::{States, World, ttl_of};

/// The names of the states.
pub const STATES: [&str; 11] = ["count", "name", "fresh", "words", "recent", "seen", "prices", "visits", "sum", "mean", "log"];

/// Key groups of the job.
const MAX_PARALLELISM: u32 = 128;

/// Parallelisms that are tried.
const PARALLELISMS: [u32; 5] = [1, 2, 3, 5, 8];

/// Makes the keyed state of a subtask, without states: empty, or in front of what these databases had of its key groups.
pub type Make<'a> = &'a dyn Fn(KeyedOptions, &[Arc<dyn DatabaseSnapshot>]) -> KeyedState;

/// Does `steps` random steps.
///
/// Contract: panics where the backend does not keep the contract, and where it answers an error.
pub fn check(make: Make<'_>, seed: u64, steps: usize) {
    let mut run = Run::new(make, seed);
    (0..steps).for_each(|_| run.step());
    run.barrier();
    run.complete(true);
    assert_same(&run.dump(), &run.model.dump(ttl_of, &run.clock), "the end");
}

/// A snapshot on its way: what it must be, and what comes.
struct Running {
    checkpoint: CheckpointId,
    model: Model,
    clock: Clock,
    parts: Vec<StatePart>,
}

/// A job of one operator, and its model.
struct Run<'a> {
    make: Make<'a>,
    dice: Dice,
    subtasks: Vec<KeyedState>,
    states: States,
    model: Model,
    clock: Clock,
    checkpoint: CheckpointId,
    running: Option<Running>,
}

impl<'a> Run<'a> {
    fn new(make: Make<'a>, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let parallelism = PARALLELISMS[dice.below(5)];
        let (subtasks, states) = start(make, parallelism, &[]);
        let clock = Clock { processing_ms: 1000, watermark_ms: 0, row_ms: 0 };
        let mut run =
            Self { make, dice, subtasks, states, model: Model::default(), clock, checkpoint: CheckpointId(0), running: None };
        run.tick(0);
        run
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..12 => self.batch(),
            12 | 13 => self.tick(6),
            14 => self.barrier(),
            15 => self.complete(true),
            16 => self.give_up(),
            17 => {
                let far = if self.dice.below(4) == 0 { 60 } else { 0 };
                self.tick(far);
            }
            _ => self.background(),
        }
    }

    /// Time goes on.
    fn tick(&mut self, ms: i64) {
        self.clock.processing_ms += ms;
        self.clock.watermark_ms += ms;
        self.clock.row_ms = self.clock.watermark_ms;
        self.subtasks.iter_mut().for_each(|state| state.set_clock(self.clock));
    }

    /// Some rows, each to the subtask that owns its key.
    fn batch(&mut self) {
        let rows = 1 + self.dice.below(12);
        let keys: Vec<Option<i64>> = (0..rows).map(|_| Some(self.dice.below(11) as i64).filter(|key| *key < 10)).collect();
        let column: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
        let mut groups = Vec::new();
        key_groups(std::slice::from_ref(&column), MAX_PARALLELISM, &mut groups);
        let parallelism = self.subtasks.len() as u32;
        for (subtask, state) in self.subtasks.iter_mut().enumerate() {
            let is_own = |row: &usize| owner_of_group(groups[*row], parallelism, MAX_PARALLELISM) == subtask as u32;
            let own: Vec<Option<i64>> = (0..rows).filter(is_own).map(|row| keys[row]).collect();
            let column: ArrayRef = Arc::new(Int64Array::from(own.clone()));
            state.enter(&[column], own.len()).expect("entered");
            for (row, key) in own.into_iter().enumerate() {
                self.clock.row_ms = self.clock.watermark_ms + self.dice.below(9) as i64 - 3;
                state.set_row_time(self.clock.row_ms);
                state.set_row(row);
                let windows = [(0, 10), (10, 20), (5, 25)].map(|(start, end)| Namespace { start, end });
                let mut world = World { state, model: &mut self.model, clock: self.clock, windows, key };
                for _ in 0..1 + self.dice.below(3) {
                    self.states.act(&mut self.dice, &mut world).expect("states answer");
                }
            }
            state.finish_batch(|_| false).expect("the batch ends");
        }
    }

    /// A barrier. A checkpoint that is still running is given up or, where nothing was said, finished by it.
    fn barrier(&mut self) {
        if self.running.is_some() && self.dice.below(2) == 0 {
            self.complete(false);
        }
        self.checkpoint = self.checkpoint.next();
        let parts = self.subtasks.iter_mut().flat_map(|state| state.snapshot(self.checkpoint).expect("a snapshot"));
        let parts = parts.collect();
        let next = Running { checkpoint: self.checkpoint, model: self.model.clone(), clock: self.clock, parts };
        if let Some(before) = self.running.replace(next) {
            before.check();
        }
    }

    fn background(&mut self) {
        for state in &mut self.subtasks {
            state.background().expect("pieces");
        }
    }

    fn give_up(&mut self) {
        let Some(Running { checkpoint, parts, .. }) = self.running.take() else { return };
        self.subtasks.iter_mut().for_each(|state| state.notify(checkpoint, false));
        // A state that had sent all at the barrier is whole; another says that it was given up. Neither waits for ever.
        parts.into_iter().filter_map(|part| part.into_pieces().ok()).for_each(|(_, pieces)| drop(pieces.last()));
    }

    /// Lets the running snapshot come to its end and checks it; sometimes goes on from it at another parallelism.
    fn complete(&mut self, may_restore: bool) {
        let Some(running) = self.running.take() else { return };
        while self.subtasks.iter_mut().fold(false, |remains, state| remains | state.background().expect("pieces")) {}
        self.subtasks.iter_mut().for_each(|state| state.notify(running.checkpoint, true));
        let (clock, model) = (running.clock, running.model.clone());
        let databases = running.databases();
        let (batches, found) = running.check();
        if may_restore && self.dice.below(2) == 0 {
            let parallelism = PARALLELISMS[self.dice.below(5)];
            let from_databases = !databases.is_empty() && self.dice.below(2) == 0;
            (self.subtasks, self.states) = start(self.make, parallelism, if from_databases { &databases } else { &[] });
            (self.clock, self.model) = (clock, model);
            self.tick(0);
            for state in self.subtasks.iter_mut().filter(|_| !from_databases) {
                batches.iter().for_each(|(name, batches)| state.restore(name, batches.iter().cloned()).expect("it is restored"));
            }
            assert_same(&self.dump(), &found, &format!("restored at parallelism {parallelism}"));
        }
    }

    fn dump(&mut self) -> Dump {
        let mut dump = Dump::new();
        self.subtasks.iter_mut().for_each(|state| self.states.dump(state, &mut dump).expect("a dump"));
        dump
    }
}

impl Running {
    /// The databases that it is in, each once.
    fn databases(&self) -> Vec<Arc<dyn DatabaseSnapshot>> {
        let mut databases: Vec<Arc<dyn DatabaseSnapshot>> = Vec::new();
        for part in &self.parts {
            match &part.contents {
                Contents::Database(database) if !databases.iter().any(|known| Arc::ptr_eq(known, database)) => {
                    databases.push(Arc::clone(database));
                }
                Contents::Database(_) | Contents::Pieces(_) => {}
            }
        }
        databases
    }

    /// Reads the snapshot, compares it with what it must be, and gives its batches.
    fn check(self) -> (BTreeMap<String, Vec<RecordBatch>>, Dump) {
        let mut batches: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
        let mut items = BTreeMap::new();
        for part in self.parts {
            let (meta, pieces) = part.into_pieces().expect("its pieces can be read");
            let pieces: Vec<RecordBatch> = pieces.collect::<Result<_, _>>().expect("the snapshot is whole");
            pieces.iter().for_each(|piece| collect(&meta.name, piece, &self.clock, &mut items));
            batches.entry(meta.name).or_default().extend(pieces);
        }
        let mut found = Dump::new();
        let mut last: Option<(Address, i64)> = None;
        for ((address, index), item) in items {
            let expected = last.filter(|(before, _)| *before == address).map_or(0, |(_, index)| index + 1);
            // Places of those that have expired are left out.
            assert!(index == expected || index > expected && ttl_of(address.state).is_some(), "elements of a list are all there");
            last = Some((address.clone(), index));
            found.entry(address.clone()).or_default().push(item);
        }
        assert_same(&found, &self.model.dump(ttl_of, &self.clock), &format!("snapshot {}", self.checkpoint.0));
        (batches, found)
    }
}

/// The keyed states of all subtasks, with their states bound.
fn start(make: Make<'_>, parallelism: u32, databases: &[Arc<dyn DatabaseSnapshot>]) -> (Vec<KeyedState>, States) {
    let budget = Arc::new(HeapBudget::unlimited());
    let mut handles = None;
    let subtasks = (0..parallelism).map(|subtask| {
        let options = KeyedOptions {
            uid: Uid::new("contract"),
            keys: vec![Column::new("k", LogicalType::Int64, true)],
            key_groups: KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM),
            max_parallelism: MAX_PARALLELISM,
            budget: Arc::clone(&budget),
        };
        let mut state = make(options, databases);
        handles = Some(States::bind(&mut state).expect("bound"));
        state
    });
    let subtasks = subtasks.collect();
    (subtasks, handles.expect("there is a subtask"))
}

/// Demands that both have the same, and shows what only one of them has.
fn assert_same(found: &Dump, expected: &Dump, what: &str) {
    let missing = expected.iter().filter(|(address, items)| found.get(address) != Some(items));
    let wrong = found.iter().filter(|(address, items)| expected.get(address) != Some(items));
    let (missing, wrong): (Vec<_>, Vec<_>) = (missing.take(5).collect(), wrong.take(5).collect());
    assert!(missing.is_empty() && wrong.is_empty(), "{what}: missing {missing:#?}, wrong {wrong:#?}");
}

/// The key with this id.
fn key_of(state: &KeyedState, key: u32) -> Option<i64> {
    let column = state.key_columns(&[key]).remove(0);
    column.as_primitive::<Int64Type>().iter().next().flatten()
}

/// Adds the items of a piece, each with its place in its list. None has expired.
fn collect(state: &str, piece: &RecordBatch, clock: &Clock, items: &mut BTreeMap<(Address, i64), String>) {
    let column = |name: &str| piece.column_by_name(name);
    let keys = column(&format!("{KEY_PREFIX}k")).expect("the key's column").as_primitive::<Int64Type>().clone();
    let named = |prefix: &str| -> Vec<ArrayRef> {
        let fields = piece.schema();
        let columns = fields.fields().iter().zip(piece.columns()).filter(|(field, _)| field.name().starts_with(prefix));
        columns.map(|(_, column)| Arc::clone(column)).collect()
    };
    let text = |columns: &[ArrayRef], row: usize| {
        let values = columns.iter().map(|column| array_value_to_string(column, row).expect("values have texts"));
        values.collect::<Vec<_>>().join("|")
    };
    let (map_keys, values) = (named("map_key"), named("value"));
    for row in 0..piece.num_rows() {
        let namespace = column(NAMESPACE_COLUMN).map(|window| {
            let time = |name: &str| {
                let times = window.as_struct().column_by_name(name).expect("a window has it");
                times.as_primitive::<TimestampMillisecondType>().value(row)
            };
            Namespace { start: time("start"), end: time("end") }
        });
        let index = column(INDEX_COLUMN).map_or(0, |index| index.as_primitive::<Int64Type>().value(row));
        let key = keys.is_valid(row).then(|| keys.value(row));
        let address = Address { state: name_of(state), key, namespace, map_key: text(&map_keys, row) };
        let stamp = column(TTL_COLUMN).map(|stamps| stamps.as_primitive::<TimestampMillisecondType>().value(row));
        let expired = ttl_of(state).zip(stamp).is_some_and(|(ttl, stamp)| ttl.is_expired(stamp, clock.now(ttl.time)));
        assert!(!expired, "an entry of state \"{state}\" with stamp {stamp:?} has expired at {clock:?}");
        let before = items.insert((address, index), text(&values, row));
        assert_eq!(before, None, "an entry is in one row");
    }
}

/// The name as the model has it.
fn name_of(state: &str) -> &'static str {
    STATES.into_iter().find(|name| *name == state).expect("a state of the contract")
}
