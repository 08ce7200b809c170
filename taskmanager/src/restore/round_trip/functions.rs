//! The functions that go through the round trip: a state of every type that a function can have.

use std::time::Duration;

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_engine::function::{
    BroadcastProcessFunction, FiredTimers, FlatMapContext, FlatMapFunction, FunctionContext, FunctionError, Functions,
    KeyedContext, Output, RegisteredFunction, Rows, WindowFunction, WindowGroup,
};
use levada_state::descriptor::{
    AggregateFunction, AggregatingState, AggregatingStateDescriptor, BindError, Binder, BroadcastState, BroadcastStateDescriptor,
    FoldingState, FoldingStateDescriptor, ListState, ListStateDescriptor, MapState, MapStateDescriptor, OperatorListDescriptor,
    OperatorListState, ReducingState, ReducingStateDescriptor, Ttl, ValueState, ValueStateDescriptor,
};
use levada_state::keyed::Namespace;
use levada_state::operator_state::{Checkpointed, Variables};

use super::specs::WINDOW_MS;

/// Has keyed states, timers and a broadcast map.
pub const EVERYTHING: &str = "everything";

/// Has lists and variables of its own.
pub const LISTS: &str = "lists";

/// Gets the rows of windows that overlap.
pub const GATHERED: &str = "gathered";

/// How long a remark lives, in milliseconds of processing time.
const REMARK_MS: u64 = 5_000;

/// How long a word and a visit live, in milliseconds of event time.
const WORD_MS: u64 = 400;

/// The functions by name.
pub fn functions() -> Functions {
    let everything = FunctionDeclaration::new(EVERYTHING, FunctionKind::BroadcastProcess)
        .keyed(true)
        .input("k", LogicalType::String)
        .input("v", LogicalType::Int64)
        .input("t", LogicalType::Int64)
        .broadcast_input("name", LogicalType::String)
        .broadcast_input("rate", LogicalType::Int64)
        .output("k", LogicalType::String)
        .output("said", LogicalType::String)
        .event_timers()
        .processing_timers();
    let lists = FunctionDeclaration::new(LISTS, FunctionKind::FlatMap)
        .input("v", LogicalType::Int64)
        .output("what", LogicalType::String)
        .output("v", LogicalType::Int64);
    let gathered = FunctionDeclaration::new(GATHERED, FunctionKind::Window)
        .input("v", LogicalType::Int64)
        .input("t", LogicalType::Int64)
        .output("values", LogicalType::String);
    let registered = [
        RegisteredFunction::broadcast_process(everything, |_| Ok(Everything)),
        RegisteredFunction::flat_map(lists, |_| Ok(Lists { rows: 0 })),
        RegisteredFunction::window(gathered, |_| Ok(Gathered)),
    ];
    let registered = registered.map(|function| function.expect("its declaration fits it"));
    registered
        .into_iter()
        .chain(super::clocks::registered())
        .chain(super::windows::registered())
        .map(|function| (function.declaration().name.clone(), function))
        .collect()
}

/// Says which values a window has of a key.
struct Gathered;

impl WindowFunction for Gathered {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        let mut values = rows.column::<i64>("v")?.values().to_vec();
        values.sort_unstable();
        out.push((values.iter().map(i64::to_string).collect::<Vec<_>>().join("+").as_str(),))
    }
}

/// A keyed state of every type, timers, and what is broadcast.
struct Everything;

struct States {
    count: ValueState<i64>,
    remark: ValueState<String>,
    words: ListState<String>,
    fresh: ListState<String>,
    seen: MapState<i64, String>,
    visits: MapState<String, i64>,
    sum: ReducingState<i64>,
    mean: AggregatingState<Mean>,
    log: FoldingState<i64, String>,
    of_window: ReducingState<i64>,
    rates: BroadcastState<String, i64>,
}

/// Sum and number.
#[derive(Default)]
struct Mean;

impl AggregateFunction for Mean {
    type Input = i64;
    type Accumulator = (i64, i64);
    type Output = (i64, i64);

    fn create(&self) -> (i64, i64) {
        (0, 0)
    }

    fn add(&self, accumulator: &mut (i64, i64), input: i64) {
        *accumulator = (accumulator.0 + input, accumulator.1 + 1);
    }

    fn merge(&self, accumulator: &mut (i64, i64), other: (i64, i64)) {
        *accumulator = (accumulator.0 + other.0, accumulator.1 + other.1);
    }

    fn read(&self, accumulator: &(i64, i64)) -> (i64, i64) {
        *accumulator
    }
}

impl BroadcastProcessFunction for Everything {
    type States = States;

    fn bind(binder: &mut dyn Binder) -> Result<States, BindError> {
        let remarks = Ttl::processing(Duration::from_millis(REMARK_MS));
        let words = Ttl::event(Duration::from_millis(WORD_MS));
        Ok(States {
            count: ValueStateDescriptor::new("count").bind(binder)?,
            remark: ValueStateDescriptor::new("remark").with_ttl(remarks).bind(binder)?,
            words: ListStateDescriptor::new("words").bind(binder)?,
            fresh: ListStateDescriptor::new("fresh").with_ttl(words).bind(binder)?,
            seen: MapStateDescriptor::new("seen").bind(binder)?,
            visits: MapStateDescriptor::new("visits").with_ttl(words.on_read()).per_window().bind(binder)?,
            sum: ReducingStateDescriptor::new("sum", |sum: &mut i64, more| *sum += more).bind(binder)?,
            mean: AggregatingStateDescriptor::new("mean", Mean).bind(binder)?,
            log: FoldingStateDescriptor::new("log", String::new(), |log: &mut String, v: i64| log.push_str(&format!(" {v}")))
                .bind(binder)?,
            of_window: ReducingStateDescriptor::new("of_window", |sum: &mut i64, more| *sum += more).per_window().bind(binder)?,
            rates: BroadcastStateDescriptor::new("rates").bind(binder)?,
        })
    }

    fn process(
        &mut self,
        states: &States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (k, v, t) = (rows.column::<str>("k")?, rows.column::<i64>("v")?, rows.column::<i64>("t")?);
        for row in 0..rows.len() {
            ctx.enter(row);
            let (v, t) = (v.get(row), t.get(row));
            let count = states.count.get(ctx)?.copied().unwrap_or(0) + 1;
            let remark = states.remark.get(ctx)?.cloned();
            states.count.set(ctx, count)?;
            if v % 3 == 0 {
                states.remark.set(ctx, format!("{v} at {t}"))?;
            }
            states.words.add(ctx, format!("word {v}"))?;
            states.fresh.add(ctx, format!("fresh {v}"))?;
            states.seen.put(ctx, &(v % 5), format!("{v}"))?;
            states.sum.add(ctx, v)?;
            states.mean.add(ctx, v)?;
            states.log.add(ctx, v)?;
            let start = t.div_euclid(WINDOW_MS) * WINDOW_MS;
            ctx.set_namespace(Some(Namespace { start, end: start + WINDOW_MS }));
            states.of_window.add(ctx, v)?;
            let of_window = states.of_window.get(ctx)?.copied();
            states.visits.put(ctx, &format!("v{}", v % 3), v)?;
            let mut visits: Vec<String> = states.visits.iter(ctx)?.map(|(key, value)| format!("{key}={value}")).collect();
            visits.sort_unstable();
            ctx.set_namespace(None);
            if v % 2 == 0 {
                ctx.set_event_timer(t + 150)?;
            }
            if v % 7 == 0 {
                ctx.set_processing_timer(10_000 + v)?;
            }
            let words = states.words.get(ctx)?.join(",");
            let fresh = states.fresh.get(ctx)?.join(",");
            let mut seen: Vec<String> = states.seen.iter(ctx)?.map(|(key, value)| format!("{key}={value}")).collect();
            seen.sort_unstable();
            let (sum, mean) = (states.sum.get(ctx)?.copied(), states.mean.get(ctx)?);
            let log = states.log.get(ctx)?.cloned();
            let rate = states.rates.get(ctx.broadcast(), &format!("r{}", v % 4)).copied();
            let said = [
                format!("{count} {remark:?} {words} {fresh} {seen:?} {visits:?}"),
                format!("{sum:?} {mean:?} {log:?} {of_window:?} {rate:?}"),
            ]
            .join(" ");
            out.push((k.get(row), said.as_str()))?;
        }
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        states: &States,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (name, rate) = (rows.column::<str>("name")?, rows.column::<i64>("rate")?);
        (0..rows.len()).for_each(|row| states.rates.put(ctx, name.get(row).to_owned(), rate.get(row)));
        Ok(())
    }

    fn on_timers(
        &mut self,
        states: &States,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let keys = timers.keys().column::<str>("k")?;
        for (row, time) in timers.times_ms().iter().enumerate() {
            ctx.enter(row);
            let count = states.count.get(ctx)?.copied();
            out.push((keys.get(row), format!("{:?} {time} {count:?}", timers.kind()).as_str()))?;
        }
        Ok(())
    }
}

/// Lists of a subtask, and a variable of its own.
struct Lists {
    rows: i64,
}

struct ListStates {
    split: OperatorListState<i64>,
    union: OperatorListState<i64>,
    variables: Variables<Lists>,
}

impl Checkpointed for Lists {
    type State = i64;

    fn snapshot_state(&self) -> i64 {
        self.rows
    }

    fn restore_state(&mut self, rows: i64) {
        self.rows += rows;
    }
}

impl FlatMapFunction for Lists {
    type States = ListStates;

    fn bind(binder: &mut dyn Binder) -> Result<ListStates, BindError> {
        Ok(ListStates {
            split: OperatorListDescriptor::split("split").bind(binder)?,
            union: OperatorListDescriptor::union("union").bind(binder)?,
            variables: Variables::bind("variables", binder)?,
        })
    }

    fn open(&mut self, states: &ListStates, ctx: &mut FlatMapContext<'_>, _: &FunctionContext) -> Result<(), FunctionError> {
        states.variables.load(self, ctx);
        Ok(())
    }

    fn flat_map(
        &mut self,
        states: &ListStates,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        let v = rows.column::<i64>("v")?;
        for row in 0..rows.len() {
            self.rows += 1;
            states.split.add(ctx, v.get(row));
            states.union.add(ctx, v.get(row));
        }
        Ok(())
    }

    fn snapshot(&mut self, states: &ListStates, ctx: &mut FlatMapContext<'_>) -> Result<(), FunctionError> {
        states.variables.save(self, ctx);
        Ok(())
    }

    /// Each element, and a row for each row that was counted: alike at every parallelism.
    fn close(&mut self, states: &ListStates, ctx: &mut FlatMapContext<'_>, out: &mut Output) -> Result<(), FunctionError> {
        for v in states.split.get(ctx) {
            out.push(("element", *v))?;
        }
        (0..self.rows).try_for_each(|_| out.push(("counted", 0i64)))
    }
}
