//! Aggregates in windows with a trigger of a user, against the naive model of functions with triggers: what a window gives is what its
//! rows come to, as a changelog or in parts, over restores to other parallelisms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::ids::Uid;
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::{
    AggregateCall, AggregateFunction, AggregateSpec, BadRecordPolicy, FiringSpec, OperatorKind, OperatorSpec, OrderSpec,
    SessionGap, SideOutput, TriggerSpec, WindowPart, WindowSpec, WindowTime,
};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::descriptor::{BindError, Binder};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::build;
use super::firings::trigger;
use super::rig::{MAX_PARALLELISM, Rig, call, spec, store, tumbling};
use super::slices::{cumulate, sliding};
use crate::function::{FunctionError, Functions, KeyedContext, RegisteredFunction, TriggerResult, TriggerRows, WindowTrigger};
use crate::operator::RestoredState;
use crate::operators::process::groups::tests::model::{Change, Model, Row, Setup};
use crate::operators::process::groups::tests::obedient;
use crate::testing::Closures;

/// Windows of processing time that are over are given when such a moment has come.
const MOMENT_MS: i64 = 100;

fn input() -> StreamSchema {
    let column = |name, ty| Column::new(name, ty, false);
    let numbers = ["t", "v", "id", "say", "gap"].map(|name| column(name, LogicalType::Int64));
    let columns = [column("k", LogicalType::Int64), column("s", LogicalType::String)].into_iter().chain(numbers);
    StreamSchema { event_time: Some("t".into()), ..StreamSchema::append(columns.collect()) }
}

/// What a row adds.
fn value(row: &Row) -> i64 {
    row.id % 7 - 3
}

fn batch(rows: &[Row]) -> RecordBatch {
    let ints = |of: fn(&Row) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(rows.iter().map(of))) };
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| format!("row {}", row.id))));
    let numbers = [ints(|row| row.time), ints(value), ints(|row| row.id), ints(|row| row.say), ints(|row| row.gap)];
    let columns = [ints(|row| row.key), texts].into_iter().chain(numbers).collect();
    RecordBatch::try_new(input().to_arrow(), columns).expect("columns match the schema")
}

/// Count, sum, maximum, the first one by value, the text of the last one.
fn calls() -> Vec<AggregateCall> {
    let by = |name: &str, descending| OrderSpec { column: name.into(), ty: LogicalType::Int64, nullable: false, descending };
    vec![
        call("n", AggregateFunction::Count),
        call("total", AggregateFunction::Sum),
        call("most", AggregateFunction::Max),
        AggregateCall {
            order: vec![by("v", true), by("id", false)],
            argument: Some("id".into()),
            ..call("best", AggregateFunction::First)
        },
        AggregateCall {
            order: vec![by("id", false)],
            argument: Some("s".into()),
            argument_type: Some(LogicalType::String),
            result: LogicalType::String,
            ..call("last", AggregateFunction::Last)
        },
    ]
}

fn values(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "0,null,null,null,null".into();
    }
    let (total, most): (i64, i64) = (rows.iter().map(value).sum(), rows.iter().map(value).max().unwrap());
    let best = rows.iter().filter(|row| value(row) == most).map(|row| row.id).min().unwrap();
    let last = rows.iter().map(|row| row.id).max().unwrap();
    format!("{},{total},{most},{best},row {last}", rows.len())
}

fn aggregate(kind: &Kind) -> AggregateSpec {
    let Kind { setup, in_parts, is_keyed } = kind;
    let function = obedient(setup.by_clock).declaration().clone();
    let part = WindowPart { function, options: Default::default() };
    let trigger = TriggerSpec { part, lateness_ms: setup.lateness_ms, accumulate: !*in_parts };
    let time = WindowTime { processing: setup.by_clock, time_zone: None };
    AggregateSpec {
        trigger: Some(Box::new(trigger)),
        time,
        ..spec(if *is_keyed { &["k"] } else { &[] }, setup.window.clone(), calls())
    }
}

fn operator_spec(aggregate: &AggregateSpec) -> OperatorSpec {
    let column = |name: &str| input().column(name).expect("it is one").clone();
    let keys = aggregate.keys.iter().map(|key| column(key));
    let windows: &[&str] = if aggregate.window.is_windowed() { &["window_start", "window_end", "window_time"] } else { &[] };
    let windows = windows.iter().map(|name| Column::new(*name, LogicalType::Timestamp, false));
    let results = aggregate.calls.iter().map(|call| Column::new(&call.name, call.result.clone(), true));
    let output = StreamSchema::append(keys.chain(windows).chain(results).collect());
    let late = SideOutput { name: SideOutput::LATE.into(), schema: StreamSchema::append(["id", "k"].map(column).into()) };
    OperatorSpec {
        uid: Uid::new("counts"),
        clause: "aggregate".into(),
        kind: OperatorKind::Aggregate(aggregate.clone()),
        input: input(),
        output: StreamSchema { changelog: aggregate.is_changelog(), ..output },
        sides: vec![late],
        bad_records: BadRecordPolicy::Fail,
    }
}

/// The operator in its subtasks.
struct Subtasks {
    aggregate: AggregateSpec,
    rigs: Vec<(Rig, KeyGroupRange)>,
    /// What those gave that are no more.
    given: Vec<String>,
    late: Vec<i64>,
}

impl Subtasks {
    fn new(aggregate: AggregateSpec, parallelism: u32, restored: &[RestoredState]) -> Self {
        let by_clock = aggregate.time.processing;
        let functions: Functions = [("obedient".to_owned(), obedient(by_clock))].into();
        let rig = |subtask| {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let operator = build(&operator_spec(&aggregate), &aggregate, &Closures::default(), &functions).expect("it is built");
            (Rig::of(operator, None, restored.to_vec(), range).expect("it opens"), range)
        };
        let rigs = (0..parallelism).map(rig).collect();
        Self { aggregate, rigs, given: Vec::new(), late: Vec::new() }
    }

    fn push(&mut self, rows: &[Row]) {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.key)));
        let mut groups = Vec::new();
        key_groups(&[keys], MAX_PARALLELISM, &mut groups);
        let is_keyed = !self.aggregate.keys.is_empty();
        for (rig, range) in &mut self.rigs {
            let mine = rows.iter().zip(&groups).filter(|(_, group)| !is_keyed || range.contains(**group));
            let mine: Vec<Row> = mine.map(|(row, _)| *row).collect();
            if !mine.is_empty() {
                rig.process_batch(batch(&mine));
            }
        }
    }

    fn tick(&mut self, clock: i64) {
        self.rigs.iter_mut().for_each(|(rig, _)| {
            rig.tick(clock);
        });
    }

    fn advance(&mut self, watermark: i64) {
        self.rigs.iter_mut().for_each(|(rig, _)| rig.advance(watermark));
    }

    /// A snapshot that is written while further rows come.
    fn snapshot(&mut self, beside: &[Row]) -> Vec<RestoredState> {
        let mut snapshot = Vec::new();
        let parts: Vec<_> = self.rigs.iter_mut().map(|(rig, _)| rig.barrier(1)).collect();
        (self.given, self.late) = self.take();
        for ((rig, _), parts) in self.rigs.iter_mut().zip(parts) {
            rig.process_batch(batch(beside));
            rig.advance(1_000_000);
            snapshot.extend(store(parts, || rig.background()));
        }
        snapshot
    }

    /// The operator anew, from such a snapshot.
    fn restore(&mut self, parallelism: u32, beside: &[Row]) {
        let snapshot = self.snapshot(beside);
        self.rigs = Self::new(self.aggregate.clone(), parallelism, &snapshot).rigs;
    }

    /// What was given, and the ids of late rows.
    fn take(&mut self) -> (Vec<String>, Vec<i64>) {
        let (mut given, mut late) = (std::mem::take(&mut self.given), std::mem::take(&mut self.late));
        given.extend(self.rigs.iter_mut().flat_map(|(rig, _)| rig.take_rows()));
        late.extend(self.rigs.iter_mut().flat_map(|(rig, _)| rig.take_late()).map(|(id, _)| id));
        (given, late)
    }
}

/// Rows by the key of the changelog, each in the order in which they came: what they are of, and the row.
type ByWindow = BTreeMap<String, Vec<String>>;

fn by_window(rows: impl Iterator<Item = (String, String)>) -> ByWindow {
    let mut found = ByWindow::new();
    rows.for_each(|(of, row)| found.entry(of).or_default().push(row));
    found
}

/// What is told apart in a test.
#[derive(Debug, Clone)]
struct Kind {
    setup: Setup,
    in_parts: bool,
    is_keyed: bool,
}

impl Kind {
    /// How many columns, behind the operation, are the key of the changelog.
    fn key_columns(&self) -> usize {
        let window = match &self.setup.window {
            WindowSpec::Global => 0,
            WindowSpec::Session { .. } => 1,
            _ => 2,
        };
        usize::from(self.is_keyed) + window
    }

    fn found(&self, rows: Vec<String>) -> ByWindow {
        let of = |row: &String| {
            let cells = row.split(',').skip(usize::from(!self.in_parts)).take(self.key_columns());
            cells.collect::<Vec<_>>().join(",")
        };
        by_window(rows.into_iter().map(|row| (of(&row), row)))
    }

    fn expected(&self, changes: Vec<Change>) -> ByWindow {
        let text = |Change { op, key, start, end, rows }: Change| {
            let op = (!self.in_parts).then(|| op.to_string());
            let key = self.is_keyed.then(|| key.to_string());
            let window = self.setup.window.is_windowed().then(|| format!("{start},{end},{}", end - 1));
            op.into_iter().chain(key).chain(window).chain([values(&rows)]).collect::<Vec<_>>().join(",")
        };
        self.found(changes.into_iter().map(text).collect())
    }
}

fn some_kind(rng: &mut StdRng) -> Kind {
    let by_clock = rng.random_bool(0.3);
    let unit = if by_clock { 10 } else { 1 };
    let slide = rng.random_range(1..8) * unit;
    let window = match rng.random_range(0..6) {
        0 => tumbling(rng.random_range(1..20) * unit),
        1 => sliding(slide + rng.random_range(0..15), slide, 0),
        2 => cumulate(slide * rng.random_range(1..4), slide, 0),
        3 => WindowSpec::Session { gap: SessionGap::Column { name: "gap".into() } },
        4 if !by_clock => WindowSpec::Global,
        _ => WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 10 * unit } },
    };
    let is_session = matches!(window, WindowSpec::Session { .. });
    let takes_late = !by_clock && window != WindowSpec::Global && rng.random_bool(0.5);
    let lateness_ms = if takes_late { rng.random_range(1..30) } else { 0 };
    let (in_parts, is_keyed) = (!is_session && rng.random_bool(0.4), rng.random_bool(0.8));
    let setup = Setup {
        window,
        lateness_ms,
        results: None,
        two_inputs: false,
        has_trigger: true,
        has_evictor: false,
        evict_ms: 0,
        by_clock,
    };
    Kind { setup, in_parts, is_keyed }
}

#[test]
fn windows_give_what_the_rows_come_to_that_the_model_gives() {
    let (mut given, mut restores, mut taken_back) = (0, 0, 0);
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let kind = some_kind(&mut rng);
        let (by_clock, is_global) = (kind.setup.by_clock, kind.setup.window == WindowSpec::Global);
        let mut model = Model::new(kind.setup.clone());
        model.in_parts = kind.in_parts;
        let width = |rng: &mut StdRng| if kind.is_keyed { rng.random_range(1..4) } else { 1 };
        let mut subtasks = Subtasks::new(aggregate(&kind), width(&mut rng), &[]);
        subtasks.tick(0);
        model.tick(0);
        let (mut time, mut clock, mut id) = (0, 0_i64, 0);
        for step in 0..rng.random_range(1..40) {
            match rng.random_range(0..10) {
                0..5 => {
                    let mut row = || {
                        id += 1;
                        let (key, time) = (rng.random_range(0..4), time + rng.random_range(-25..30));
                        let say = rng.random_range(0..8);
                        // A window without a beginning has no timer a while after it.
                        let say = if is_global && say == 4 { 0 } else { say };
                        Row { key: if kind.is_keyed { key } else { 0 }, time, id, say, gap: rng.random_range(1..15) }
                    };
                    let rows: Vec<Row> = (0..20).map(|_| row()).collect();
                    for rows in rows.chunks(rng.random_range(1..21)) {
                        subtasks.push(rows);
                        model.take(0, rows);
                    }
                }
                5..7 => {
                    time += rng.random_range(1..20);
                    subtasks.advance(time);
                    if !by_clock {
                        model.advance(time);
                    }
                }
                7..9 => {
                    clock += rng.random_range(1..8);
                    if by_clock && rng.random_bool(0.7) {
                        clock = (clock.div_euclid(MOMENT_MS) + 1) * MOMENT_MS;
                    }
                    subtasks.tick(clock);
                    model.tick(clock);
                }
                _ => {
                    let beside: Vec<Row> = (0..4).map(|key| Row { key, time, id: 1_000_000 + key, say: 3, gap: 5 }).collect();
                    subtasks.restore(width(&mut rng), &beside);
                    subtasks.tick(clock);
                    restores += 1;
                }
            }
            if !by_clock || clock % MOMENT_MS == 0 {
                let (rows, back) = compare(&kind, &mut subtasks, &mut model, &format!("seed {seed}, step {step}"));
                (given, taken_back) = (given + rows, taken_back + back);
            }
        }
        subtasks.rigs.iter_mut().for_each(|(rig, _)| rig.finish());
        model.finish();
        given += compare(&kind, &mut subtasks, &mut model, &format!("seed {seed}, end")).0;
        let left: u64 = subtasks.rigs.iter().map(|(rig, _)| rig.metrics.state_keys.load(Ordering::Relaxed)).sum();
        assert_eq!(left, 0, "seed {seed}: windows are forgotten");
    }
    assert!(given > 5_000 && restores > 300 && taken_back > 100, "the run is empty: {given}, {restores}, {taken_back}");
}

/// Compares what was given and what came too late; answers how much was given, and how much of it taken back.
fn compare(kind: &Kind, subtasks: &mut Subtasks, model: &mut Model, what: &str) -> (usize, usize) {
    let (rows, mut late) = subtasks.take();
    let counts = (rows.len(), rows.iter().filter(|row| !kind.in_parts && row.starts_with("3,")).count());
    let expected = kind.expected(std::mem::take(&mut model.changes));
    assert_eq!(kind.found(rows), expected, "{what}: {kind:?}");
    let mut expected_late = std::mem::take(&mut model.late);
    late.sort_unstable();
    expected_late.sort_unstable();
    assert_eq!(late, expected_late, "{what}: {kind:?}");
    counts
}

fn plain(window: WindowSpec) -> Kind {
    let setup = Setup {
        window,
        lateness_ms: 0,
        results: None,
        two_inputs: false,
        has_trigger: true,
        has_evictor: false,
        evict_ms: 0,
        by_clock: false,
    };
    Kind { setup, in_parts: false, is_keyed: true }
}

fn row(key: i64, time: i64, id: i64, say: i64) -> Row {
    Row { key, time, id, say, gap: 1 }
}

/// A window that was emptied begins from nothing, and its next result replaces the last one.
#[test]
fn a_window_that_was_purged_goes_on_with_an_update() {
    let mut subtasks = Subtasks::new(aggregate(&plain(tumbling(100))), 1, &[]);
    subtasks.push(&[row(1, 0, 1, 0), row(1, 1, 2, 3), row(1, 2, 3, 2)]);
    assert_eq!(subtasks.take().0, ["0,1,0,100,99,2,-3,-1,2,row 2"]);
    subtasks.restore(2, &[row(1, 3, 4, 1)]);
    subtasks.push(&[row(1, 4, 5, 1)]);
    assert_eq!(subtasks.take().0, ["2,1,0,100,99,1,2,2,5,row 5"]);
}

/// What a session has given under a beginning that it has no longer is taken back, of no rows where it was purged.
#[test]
fn a_session_that_begins_earlier_takes_back_what_it_gave() {
    let session = WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 10 } };
    let mut subtasks = Subtasks::new(aggregate(&plain(session)), 1, &[]);
    subtasks.push(&[row(1, 20, 1, 1), row(1, 40, 2, 3), row(1, 15, 3, 1)]);
    let given = ["0,1,20,30,29,1,-2,-2,1,row 1", "0,1,40,50,49,1,-1,-1,2,row 2", "3,1,20,30,29,1,-2,-2,1,row 1"];
    assert_eq!(subtasks.take().0, [&given[..], &["0,1,15,30,29,2,-2,0,3,row 3"]].concat());
    subtasks.push(&[row(1, 30, 4, 0), row(1, 35, 5, 1)]);
    let merged = ["3,1,40,50,49,0,null,null,null,null", "2,1,15,50,49,4,1,2,5,row 5"];
    assert_eq!(subtasks.take().0, merged, "the second one was purged");
}

/// Counts how often it is asked about rows, and gives none of them.
struct Silent(Arc<AtomicUsize>);

impl WindowTrigger for Silent {
    type States = ();

    fn bind(_binder: &mut dyn Binder) -> Result<(), BindError> {
        Ok(())
    }

    fn on_rows(
        &mut self,
        _states: &(),
        rows: TriggerRows<'_>,
        _ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        if let (Some(answer), true) = (answers.last_mut(), rows.len() > 1) {
            *answer = TriggerResult::Fire;
        }
        Ok(())
    }
}

/// Rows of sessions that begin earlier with each of them are one batch to the trigger all the same.
#[test]
fn rows_from_the_last_to_the_first_are_asked_about_at_once() {
    let kind = plain(WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 10 } });
    let (mut aggregate, asked) = (aggregate(&kind), Arc::new(AtomicUsize::new(0)));
    let declaration = FunctionDeclaration::new("silent", FunctionKind::Trigger).merging();
    let counts = Arc::clone(&asked);
    let silent = RegisteredFunction::trigger(declaration, move |_| Ok(Silent(Arc::clone(&counts)))).expect("it is declared so");
    if let Some(trigger) = &mut aggregate.trigger {
        trigger.part.function = silent.declaration().clone();
    }
    let functions: Functions = [("silent".to_owned(), silent)].into();
    let operator = build(&operator_spec(&aggregate), &aggregate, &Closures::default(), &functions).expect("it is built");
    let mut rig = Rig::of(operator, None, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM)).expect("it opens");
    let rows = |from: i64| -> Vec<Row> { (0..100).map(|at| row(at % 2, from - at, from + at, 0)).collect() };
    rig.process_batch(batch(&rows(1000)));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let given = rig.take_rows();
    assert!(given.len() == 1 && given[0].starts_with("0,1,901,1009,1008,50,"), "{given:?}");
    rig.process_batch(batch(&rows(900)));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let given = rig.take_rows();
    let [back, now] = given.as_slice() else { panic!("{given:?}") };
    assert!(back.starts_with("3,1,901,1009,1008,50,") && now.starts_with("0,1,801,1009,1008,100,"), "{given:?}");
}

/// A row that fires again and again in one batch is answered each time as the window is then.
#[test]
fn each_row_is_answered_as_the_window_is_then() {
    let mut subtasks = Subtasks::new(aggregate(&plain(tumbling(100))), 1, &[]);
    let rows: Vec<Row> = (0..50).map(|id| row(id % 3, id, id, if id % 5 == 0 { 3 } else { 1 })).collect();
    subtasks.push(&rows);
    assert_eq!(subtasks.take().0.len(), 50);
    assert!(subtasks.take().0.is_empty());
}

/// A job that puts a trigger into its windows goes on with what they have come to.
#[test]
fn windows_of_before_get_a_trigger() {
    for window in [tumbling(100), WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 100 } }, WindowSpec::Global] {
        let kind = plain(window);
        let with = aggregate(&kind);
        let without = AggregateSpec { trigger: None, ..with.clone() };
        let mut before = Subtasks::new(without, 1, &[]);
        before.push(&[row(1, 0, 1, 0), row(2, 5, 2, 0), row(1, 7, 3, 0)]);
        let snapshot = before.snapshot(&[row(1, 8, 4, 0)]);
        let mut after = Subtasks::new(with, 3, &snapshot);
        after.push(&[row(1, 9, 5, 1)]);
        let given = after.take().0;
        assert_eq!(given.len(), 1, "{kind:?}: {given:?}");
        assert!(given[0].ends_with(",3,0,2,5,row 5"), "{kind:?}: {given:?}");
    }
}

/// Which results were given it would not know.
#[test]
fn windows_that_gave_early_results_get_no_trigger() {
    let with = aggregate(&plain(tumbling(100)));
    let early = FiringSpec { early: Some(trigger(None, Some(2))), lateness_ms: 0, late: None, accumulate: true };
    let without = AggregateSpec { trigger: None, firing: Some(early), ..with.clone() };
    for gives in [false, true] {
        let mut before = Subtasks::new(without.clone(), 1, &[]);
        before.push(&[row(1, 0, 1, 0)]);
        if gives {
            before.push(&[row(1, 1, 2, 0)]);
        }
        assert_eq!(before.take().0.len(), usize::from(gives));
        let snapshot = before.snapshot(&[row(2, 8, 4, 0)]);
        let functions: Functions = [("obedient".to_owned(), obedient(false))].into();
        let operator = build(&operator_spec(&with), &with, &Closures::default(), &functions).expect("it is built");
        match Rig::of(operator, None, snapshot, KeyGroupRange::all(MAX_PARALLELISM)) {
            Ok(_) => assert!(!gives, "it takes over what was given"),
            Err(error) => assert!(gives && error.to_string().contains("were given early or late"), "{error}"),
        }
    }
}
