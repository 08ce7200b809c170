//! What goes through the round trip: a state of every type, in four operators of one vertex.

use std::sync::Arc;
use std::time::Duration;

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::ids::Uid;
use levada_common::plan::{
    AggregateCall, AggregateFunction as Call, AggregatePhase, AggregateSpec, BadRecordPolicy, OperatorKind, OperatorSpec,
    OrderSpec, ProcessSpec, WindowSpec,
};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_engine::function::{
    BroadcastProcessFunction, FiredTimers, FlatMapContext, FlatMapFunction, FunctionContext, FunctionError, Functions,
    KeyedContext, Output, RegisteredFunction, Rows,
};
use levada_state::descriptor::{
    AggregateFunction, AggregatingState, AggregatingStateDescriptor, BindError, Binder, BroadcastState, BroadcastStateDescriptor,
    FoldingState, FoldingStateDescriptor, ListState, ListStateDescriptor, MapState, MapStateDescriptor, OperatorListDescriptor,
    OperatorListState, ReducingState, ReducingStateDescriptor, Ttl, ValueState, ValueStateDescriptor,
};
use levada_state::keyed::Namespace;
use levada_state::operator_state::{Checkpointed, Variables};

/// The operators, in their order; all take [`input`].
pub const EVERYTHING: &str = "everything";
pub const LISTS: &str = "lists";
pub const RUNNING: &str = "running";
pub const PANES: &str = "panes";

/// Milliseconds of a window.
pub const WINDOW_MS: i64 = 200;

/// How long a remark lives, in milliseconds of processing time.
const REMARK_MS: u64 = 5_000;

fn columns(columns: &[(&str, LogicalType)]) -> Vec<Column> {
    columns.iter().map(|(name, ty)| Column::new(*name, ty.clone(), false)).collect()
}

/// Key, value, time.
pub fn input() -> StreamSchema {
    let columns = columns(&[("k", LogicalType::String), ("v", LogicalType::Int64), ("t", LogicalType::Int64)]);
    StreamSchema { event_time: Some("t".into()), ..StreamSchema::append(columns) }
}

/// What is broadcast.
pub fn rates() -> StreamSchema {
    StreamSchema::append(columns(&[("name", LogicalType::String), ("rate", LogicalType::Int64)]))
}

/// The functions among the operators.
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
    let registered = [
        RegisteredFunction::broadcast_process(everything, |_| Ok(Everything)),
        RegisteredFunction::flat_map(lists, |_| Ok(Lists { rows: 0 })),
    ];
    let registered = registered.map(|function| function.expect("its declaration fits it"));
    registered.into_iter().map(|function| (function.declaration().name.clone(), function)).collect()
}

/// The operators of the vertex.
pub fn specs() -> Vec<OperatorSpec> {
    let function = |name: &str, keys: &[&str], broadcast| {
        let function = functions()[name].declaration().clone();
        let output = StreamSchema::append(function.outputs.clone());
        let keys = keys.iter().map(|key| input().column(key).expect("a column").clone()).collect();
        let process = ProcessSpec { function, options: Default::default(), keys, broadcast };
        spec(name, OperatorKind::Process(Box::new(process)), output)
    };
    vec![
        function(EVERYTHING, &["k"], Some(rates())),
        function(LISTS, &[], None),
        aggregate(RUNNING, WindowSpec::Running, &[]),
        aggregate(
            PANES,
            WindowSpec::Tumbling { size_ms: WINDOW_MS, offset_ms: 0 },
            &["window_start", "window_end", "window_time"],
        ),
    ]
}

fn spec(uid: &str, kind: OperatorKind, output: StreamSchema) -> OperatorSpec {
    OperatorSpec { uid: Uid::new(uid), clause: "test".into(), kind, input: input(), output, bad_records: BadRecordPolicy::Fail }
}

fn aggregate(uid: &str, window: WindowSpec, times: &[&str]) -> OperatorSpec {
    let call = |name: &str, function, result| AggregateCall {
        name: name.into(),
        function,
        argument: (function != Call::Count).then(|| "v".into()),
        argument_type: (function != Call::Count).then_some(LogicalType::Int64),
        argument_nullable: false,
        order: Vec::new(),
        result,
    };
    let order = OrderSpec { column: "v".into(), ty: LogicalType::Int64, nullable: false, descending: true };
    let calls = vec![
        call("n", Call::Count, LogicalType::Int64),
        call("total", Call::Sum, LogicalType::Decimal(38, 0)),
        call("least", Call::Min, LogicalType::Int64),
        call("mean", Call::Avg, LogicalType::Float64),
        AggregateCall { argument: Some("t".into()), order: vec![order], ..call("when", Call::First, LogicalType::Int64) },
    ];
    let times = times.iter().map(|name| Column::new(*name, LogicalType::Timestamp, false));
    let results = calls.iter().map(|call| Column::new(&call.name, call.result.clone(), true));
    let columns = std::iter::once(input().columns[0].clone()).chain(times).chain(results).collect();
    let output = StreamSchema { changelog: window == WindowSpec::Running, ..StreamSchema::append(columns) };
    let phase = AggregatePhase::Single;
    let aggregate = AggregateSpec { keys: vec!["k".into()], window, phase, calls, changelog_full: false };
    spec(uid, OperatorKind::Aggregate(aggregate), output)
}

/// A keyed state of every type, timers, and what is broadcast.
struct Everything;

struct States {
    count: ValueState<i64>,
    remark: ValueState<String>,
    words: ListState<String>,
    seen: MapState<i64, String>,
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
        Ok(States {
            count: ValueStateDescriptor::new("count").bind(binder)?,
            remark: ValueStateDescriptor::new("remark").with_ttl(remarks).bind(binder)?,
            words: ListStateDescriptor::new("words").bind(binder)?,
            seen: MapStateDescriptor::new("seen").bind(binder)?,
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
            states.seen.put(ctx, &(v % 5), format!("{v}"))?;
            states.sum.add(ctx, v)?;
            states.mean.add(ctx, v)?;
            states.log.add(ctx, v)?;
            let start = t.div_euclid(WINDOW_MS) * WINDOW_MS;
            ctx.set_namespace(Some(Namespace { start, end: start + WINDOW_MS }));
            states.of_window.add(ctx, v)?;
            let of_window = states.of_window.get(ctx)?.copied();
            ctx.set_namespace(None);
            if v % 2 == 0 {
                ctx.set_event_timer(t + 150)?;
            }
            if v % 7 == 0 {
                ctx.set_processing_timer(10_000 + v)?;
            }
            let words = states.words.get(ctx)?.join(",");
            let mut seen: Vec<String> = states.seen.iter(ctx)?.map(|(key, value)| format!("{key}={value}")).collect();
            seen.sort_unstable();
            let (sum, mean) = (states.sum.get(ctx)?.copied(), states.mean.get(ctx)?);
            let log = states.log.get(ctx)?.cloned();
            let rate = states.rates.get(ctx.broadcast(), &format!("r{}", v % 4)).copied();
            let said = format!("{count} {remark:?} {words} {seen:?} {sum:?} {mean:?} {log:?} {of_window:?} {rate:?}");
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

/// The compiler of operators that have no expressions.
pub fn compiler() -> Arc<levada_sql::Compiler> {
    Arc::new(levada_sql::Compiler::new())
}
