//! Functions on their operator: timers, time, failures, and snapshots at any parallelism against a plain model.

mod connected;
mod store;
mod unkeyed;
mod windows;

use std::collections::BTreeMap;

use levada_common::fault::{Faulty, Retry};
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_state::descriptor::{
    AggregateFunction, BindError, Binder, ListState, ListStateDescriptor, OperatorListDescriptor, OperatorListState, ValueState,
    ValueStateDescriptor,
};
use levada_state::timers::TimerKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::error::EngineError;
use crate::function::{
    FiredTimers, FlatMapContext, FlatMapFunction, FoldFunction, FunctionContext, FunctionError, KeyedContext,
    KeyedProcessFunction, Output, RegisteredFunction, Rows,
};
use crate::harness::{Harness, HarnessError, HarnessRun};

/// Does what `what` says to the key, and gives (key, what happened, number).
struct Obedient;

struct States {
    count: ValueState<i64>,
    notes: ListState<String>,
}

impl KeyedProcessFunction for Obedient {
    type States = States;

    fn bind(binder: &mut dyn Binder) -> Result<States, BindError> {
        let count = ValueStateDescriptor::new("count").with_default(0).bind(binder)?;
        Ok(States { count, notes: ListStateDescriptor::new("notes").bind(binder)? })
    }

    fn process(
        &mut self,
        states: &States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (key, what) = (rows.column::<i64>("key")?, rows.column::<str>("what")?);
        for row in 0..rows.len() {
            let (verb, number) = what.get(row).split_once(' ').unwrap_or((what.get(row), "0"));
            let number: i64 = number.parse().unwrap_or(0);
            if verb == "no-key" {
                ctx.set_event_timer(1)?;
            }
            ctx.enter(row);
            match verb {
                "add" => {
                    let count = states.count.get(ctx)?.copied().unwrap_or(0) + number;
                    states.count.set(ctx, count)?;
                    states.notes.add(ctx, number.to_string())?;
                    out.push((key.get(row), "count", count))?;
                }
                "clear" => {
                    states.count.clear(ctx)?;
                    states.notes.clear(ctx)?;
                }
                "notes" => {
                    let notes = states.notes.get(ctx)?.join(",");
                    out.push((key.get(row), notes, 0_i64))?;
                }
                "event" => ctx.set_event_timer(number)?,
                "no-event" => ctx.delete_event_timer(number)?,
                "processing" => ctx.set_processing_timer(ctx.processing_time_ms() + number)?,
                "many" => (0..number).try_for_each(|n| out.push((key.get(row), "many", n)))?,
                "width" => out.push((key.get(row), "width"))?,
                "fail" => return Err(FunctionError::failed("as told")),
                "transient" => return Err(FunctionError::transient("as told")),
                _ => panic!("no verb {verb}"),
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        states: &States,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let keys = timers.keys().column::<i64>("key")?;
        let kind = if timers.kind() == TimerKind::Event { "event" } else { "processing" };
        for (row, time) in timers.times_ms().iter().enumerate() {
            ctx.enter(row);
            out.push((keys.get(row), kind, *time))?;
            if states.count.get(ctx)?.is_some_and(|count| *count == 7) {
                states.count.set(ctx, 8)?;
                ctx.set_event_timer(*time)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, _states: &States, _ctx: &mut KeyedContext<'_>, out: &mut Output) -> Result<(), FunctionError> {
        out.push((-1_i64, "closed", 0_i64))
    }
}

fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("obedient", FunctionKind::KeyedProcess)
        .input("key", LogicalType::Int64)
        .input("what", LogicalType::String)
        .output("key", LogicalType::Int64)
        .output("what", LogicalType::String)
        .output("number", LogicalType::Int64)
}

fn obedient() -> Harness {
    let declaration = declaration().event_timers().processing_timers();
    Harness::new(RegisteredFunction::keyed_process(declaration, |_| Ok(Obedient)).unwrap()).key("key", LogicalType::Int64)
}

fn told(key: i64, what: &str) -> Value {
    json!({"key": key, "what": what})
}

/// The output as `key what number`.
fn said(run: &mut HarnessRun) -> Vec<String> {
    let rows = run.output().unwrap();
    rows.iter().map(|row| format!("{} {} {}", row["key"], row["what"].as_str().unwrap(), row["number"])).collect()
}

fn error_of(harness: Harness, what: &str) -> EngineError {
    match harness.start().unwrap().push(&[told(1, what)]) {
        Err(HarnessError::Engine(error)) => error,
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn event_timers_fire_in_order_once_and_before_the_watermark() {
    let mut run = obedient().start().unwrap();
    let rows = [(1, "event 30"), (2, "event 10"), (1, "event 10"), (1, "event 10"), (3, "event 20"), (3, "no-event 20")];
    run.push(&rows.map(|(key, what)| told(key, what))).unwrap();
    run.watermark(9).unwrap();
    assert_eq!(said(&mut run), Vec::<String>::new());
    run.watermark(29).unwrap();
    assert_eq!(said(&mut run).iter().collect::<std::collections::BTreeSet<_>>().len(), 2);
    // One whose time has come already fires at once.
    run.push(&[told(5, "event 3")]).unwrap();
    assert_eq!(said(&mut run), ["5 event 3"]);
    run.finish().unwrap();
    assert_eq!(said(&mut run), ["1 event 30", "-1 closed 0"]);
}

#[test]
fn a_timer_may_set_a_timer_and_sees_the_state_of_its_key() {
    let mut run = obedient().start().unwrap();
    run.push(&[told(1, "add 7"), told(1, "event 10")]).unwrap();
    run.watermark(10).unwrap();
    run.push(&[told(1, "add 0")]).unwrap();
    assert_eq!(said(&mut run), ["1 count 7", "1 event 10", "1 event 10", "1 count 8"]);
}

#[test]
fn processing_timers_go_by_the_clock_that_is_told() {
    let mut run = obedient().start().unwrap();
    run.processing_time(1_000).unwrap();
    run.push(&[told(1, "processing 50"), told(2, "processing 20")]).unwrap();
    run.watermark(i64::MAX - 1).unwrap();
    assert_eq!(said(&mut run), Vec::<String>::new(), "event time does not move them");
    run.processing_time(1_020).unwrap();
    assert_eq!(said(&mut run), ["2 processing 1020"]);
    let snapshot = run.snapshot().unwrap();
    let mut later = obedient().parallelism(3).restore(&snapshot).unwrap();
    later.processing_time(9_000).unwrap();
    assert_eq!(said(&mut later), ["1 processing 1050"], "one that is overdue fires at once");
    later.finish().unwrap();
    assert_eq!(said(&mut later).len(), 3, "each instance is closed");
}

#[test]
fn output_comes_in_batches_and_in_order() {
    let mut run = obedient().batch_rows(10).start().unwrap();
    run.push(&[told(1, "many 25"), told(2, "add 1")]).unwrap();
    let batches = run.batches();
    assert_eq!(batches.iter().map(arrow::array::RecordBatch::num_rows).collect::<Vec<_>>(), [10, 10, 6]);
}

#[test]
fn a_key_that_was_cleared_begins_anew() {
    let mut run = obedient().start().unwrap();
    run.push(&[told(1, "add 1"), told(2, "event 10"), told(3, "add 2")]).unwrap();
    run.push(&[told(1, "clear")]).unwrap();
    run.watermark(10).unwrap();
    run.push(&[told(1, "add 5"), told(2, "add 6"), told(3, "add 1"), told(1, "notes")]).unwrap();
    assert_eq!(said(&mut run), ["1 count 1", "3 count 2", "2 event 10", "1 count 5", "2 count 6", "3 count 3", "1 5 0"]);
}

#[test]
fn failures_name_the_function_and_say_whether_to_try_again() {
    for (what, text, retry) in [
        ("fail", "as told", Retry::Never),
        ("transient", "as told", Retry::Backoff),
        ("width", "a row of 2 columns, and its declaration has 3", Retry::Never),
        ("dance", "it panicked: no verb dance", Retry::Backoff),
        ("no-key", "before it has entered a row", Retry::Never),
    ] {
        let error = error_of(obedient(), what);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.to_string().contains("function \"obedient\""), "{error}");
        assert!(cause.contains(text), "{what}: {cause}");
        assert_eq!(error.retry(), retry, "{what}");
    }
    let silent = RegisteredFunction::keyed_process(declaration(), |_| Ok(Obedient)).unwrap();
    let error = error_of(Harness::new(silent).key("key", LogicalType::Int64), "event 1");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("a timer of event time, which its declaration does not have"), "{cause}");
}

#[test]
fn a_declaration_that_does_not_fit_is_refused() {
    struct Sum;
    impl crate::function::ReduceFunction for Sum {
        type Value = i64;
        fn reduce(so_far: &mut i64, next: i64) {
            *so_far += next;
        }
    }
    let declaration = FunctionDeclaration::new("sum", FunctionKind::Reduce).input("n", LogicalType::String);
    let error = RegisteredFunction::reduce::<Sum>(declaration.output("n", LogicalType::Int64)).err().unwrap().to_string();
    assert!(error.contains("its input columns are declared (STRING NOT NULL), and i64 has (INT64 NOT NULL)"), "{error}");
    let wrong = FunctionDeclaration { kind: FunctionKind::Fold, ..self::declaration() };
    let error = RegisteredFunction::keyed_process(wrong, |_| Ok(Obedient)).err().unwrap().to_string();
    assert!(error.contains("it is declared as a fold and is a keyed process"), "{error}");
}

#[test]
fn states_are_declared_at_registration() {
    let function = RegisteredFunction::keyed_process(declaration(), |_| Ok(Obedient)).unwrap();
    let states: Vec<_> =
        function.declaration().states.iter().map(|state| (state.name.as_str(), state.schema.shape.name())).collect();
    assert_eq!(states, [("count", "value"), ("notes", "list")]);
    let spec = levada_common::plan::ProcessSpec {
        function: FunctionDeclaration { event_timers: true, processing_timers: true, ..function.declaration().clone() },
        options: Default::default(),
        keys: vec![levada_common::types::Column::new("key", LogicalType::Int64, false)],
        broadcast: None,
        second: None,
        window: None,
    };
    let states = spec.states();
    assert!(states.iter().all(|state| state.schema.keys == spec.keys));
    for (kind, state) in TimerKind::ALL.into_iter().zip(&states[2..]) {
        assert_eq!(*state, {
            let declared = kind.declaration::<()>();
            levada_common::state_schema::StateDeclaration { schema: declared.schema(&spec.keys), ..declared }
        });
    }
}

/// Gives each row's number, counted by this instance; its variables are a list of counts.
#[derive(Default)]
struct Counter {
    counts: Vec<i64>,
}

impl FlatMapFunction for Counter {
    type States = OperatorListState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        OperatorListDescriptor::split("counts").bind(binder)
    }

    fn open(
        &mut self,
        states: &Self::States,
        ctx: &mut FlatMapContext<'_>,
        _context: &FunctionContext,
    ) -> Result<(), FunctionError> {
        self.counts = states.get(ctx).to_vec();
        Ok(())
    }

    fn flat_map(
        &mut self,
        _states: &Self::States,
        rows: Rows<'_>,
        _ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let n = rows.column::<i64>("n")?;
        for row in 0..rows.len() {
            self.counts.push(n.get(row));
            out.push((self.counts.len() as i64, self.counts.iter().sum::<i64>()))?;
        }
        Ok(())
    }

    fn snapshot(&mut self, states: &Self::States, ctx: &mut FlatMapContext<'_>) -> Result<(), FunctionError> {
        states.update(ctx, self.counts.clone());
        Ok(())
    }
}

#[test]
fn a_flat_map_keeps_its_variables_and_shares_them() {
    let declaration = FunctionDeclaration::new("counter", FunctionKind::FlatMap)
        .input("n", LogicalType::Int64)
        .output("rows", LogicalType::Int64)
        .output("sum", LogicalType::Int64);
    let harness = Harness::new(RegisteredFunction::flat_map(declaration, |_| Ok(Counter::default())).unwrap());
    let mut run = harness.clone().parallelism(2).start().unwrap();
    for n in 1..=6 {
        run.push(&[json!({"n": n})]).unwrap();
    }
    let snapshot = run.snapshot().unwrap();
    let mut one = harness.clone().restore(&snapshot).unwrap();
    one.push(&[json!({"n": 0})]).unwrap();
    assert_eq!(one.output().unwrap(), [json!({"rows": 7, "sum": 21})]);
    let mut three = harness.parallelism(3).restore(&snapshot).unwrap();
    (0..3).try_for_each(|_| three.push(&[json!({"n": 0})])).unwrap();
    let sums: Vec<i64> = three.output().unwrap().iter().map(|row| row["sum"].as_i64().unwrap()).collect();
    assert_eq!((sums.len(), sums.iter().sum::<i64>()), (3, 21), "nothing is lost and nothing doubled");
}

struct Longest;

impl FoldFunction for Longest {
    type Input = String;
    type Accumulator = (i64, String);

    fn initial() -> (i64, String) {
        (0, String::new())
    }

    fn fold(so_far: &mut (i64, String), next: String) {
        so_far.0 += 1;
        if next.len() > so_far.1.len() {
            so_far.1 = next;
        }
    }
}

#[derive(Default)]
struct Mean;

impl AggregateFunction for Mean {
    type Input = f64;
    type Accumulator = (f64, i64);
    type Output = f64;

    fn create(&self) -> (f64, i64) {
        (0.0, 0)
    }

    fn add(&self, accumulator: &mut (f64, i64), input: f64) {
        *accumulator = (accumulator.0 + input, accumulator.1 + 1);
    }

    fn merge(&self, accumulator: &mut (f64, i64), other: (f64, i64)) {
        *accumulator = (accumulator.0 + other.0, accumulator.1 + other.1);
    }

    fn read(&self, accumulator: &(f64, i64)) -> f64 {
        accumulator.0 / accumulator.1 as f64
    }
}

#[test]
fn folds_and_aggregates_give_the_key_and_what_they_come_to() {
    let declaration = FunctionDeclaration::new("longest", FunctionKind::Fold).input("word", LogicalType::String);
    let declaration = declaration.output("words", LogicalType::Int64).output("longest", LogicalType::String);
    let longest = RegisteredFunction::fold::<Longest>(declaration).unwrap();
    let mut run = Harness::new(longest).key("key", LogicalType::Int64).start().unwrap();
    run.push(&[json!({"key": 1, "word": "ab"}), json!({"key": 2, "word": ""}), json!({"key": 1, "word": "c"})]).unwrap();
    let row = |key: i64, words: i64, longest: &str| json!({"key": key, "words": words, "longest": longest});
    assert_eq!(run.output().unwrap(), [row(1, 1, "ab"), row(2, 1, ""), row(1, 2, "ab")]);

    let declaration = FunctionDeclaration::new("mean", FunctionKind::Aggregate).input("x", LogicalType::Float64);
    let mean = RegisteredFunction::aggregate::<Mean>(declaration.output("mean", LogicalType::Float64)).unwrap();
    let mut run = Harness::new(mean).key("key", LogicalType::Int64).start().unwrap();
    run.push(&[json!({"key": 1, "x": 1.0}), json!({"key": 1, "x": 2.0})]).unwrap();
    assert_eq!(run.output().unwrap(), [json!({"key": 1, "mean": 1.0}), json!({"key": 1, "mean": 1.5})]);
}

/// What happens to the function, and to the model.
#[derive(Debug, Clone)]
enum Step {
    Add(i64, i64),
    Clear(i64),
    Timer(i64, i64),
    Watermark(i64),
    /// At this parallelism, before a store with so many bytes at hand, or on the heap.
    Restore(u32, Option<usize>),
}

fn overlay() -> impl Strategy<Value = Option<usize>> {
    prop::sample::select(vec![None, Some(0), Some(50_000), Some(1 << 20)])
}

/// The function with its state in a store, or on the heap.
fn kept_in(overlay_bytes: Option<usize>) -> Harness {
    overlay_bytes.into_iter().fold(obedient(), Harness::store)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20_i64, 1..6_i64).prop_map(|(key, number)| Step::Add(key, number)),
        1 => (0..20_i64).prop_map(Step::Clear),
        2 => (0..20_i64, 0..100_i64).prop_map(|(key, time)| Step::Timer(key, time)),
        1 => (0..20_i64).prop_map(Step::Watermark),
        1 => (prop::sample::select(vec![1, 2, 3, 5, 8]), overlay()).prop_map(|(to, overlay)| Step::Restore(to, overlay)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn state_and_timers_survive_any_change_of_parallelism_and_backend(
        overlay in overlay(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut counts, mut timers, mut time) = (BTreeMap::new(), std::collections::BTreeSet::new(), -1_i64);
        let mut run = kept_in(overlay).start().unwrap();
        for step in steps {
            let mut expected: Vec<String> = Vec::new();
            match step {
                Step::Add(key, number) => {
                    // Seven has a meaning of its own.
                    let count = counts.entry(key).or_insert(0_i64);
                    let number = if *count + number == 7 { number + 1 } else { number };
                    *count += number;
                    expected.push(format!("{key} count {count}"));
                    run.push(&[told(key, &format!("add {number}"))]).unwrap();
                }
                Step::Clear(key) => {
                    counts.remove(&key);
                    run.push(&[told(key, "clear")]).unwrap();
                }
                Step::Timer(key, at) => {
                    if at <= time { expected.push(format!("{key} event {at}")) } else { timers.insert((at, key)); }
                    run.push(&[told(key, &format!("event {at}"))]).unwrap();
                }
                Step::Watermark(further) => {
                    time += further;
                    let later = timers.split_off(&(time + 1, i64::MIN));
                    expected.extend(std::mem::replace(&mut timers, later).iter().map(|(at, key)| format!("{key} event {at}")));
                    run.watermark(time).unwrap();
                }
                Step::Restore(parallelism, overlay) => {
                    let snapshot = run.snapshot().unwrap();
                    run.push(&[told(1, "add 100"), told(2, "clear"), told(3, "event 1000")]).unwrap();
                    run = kept_in(overlay).parallelism(parallelism).restore(&snapshot).unwrap();
                    run.watermark(time).unwrap();
                }
            }
            let mut found = said(&mut run);
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
