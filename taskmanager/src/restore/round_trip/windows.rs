//! The windows of the round trip that are not just over once: those that give results early and late, of rows, of a zone's and of the
//! process's clock; and functions that get a whole window, when it is over or when a trigger says so.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::{
    AggregateFunction, AggregateSpec, DistinctSpec, Evict, FiringSpec, OperatorKind, OperatorSpec, ProcessWindow, SecondInput,
    SessionGap, Trigger, TriggerSpec, WindowPart, WindowSpec, WindowTime,
};
use levada_common::types::LogicalType;
use levada_engine::function::{
    CoGroupFunction, FiredTimers, FunctionError, KeyedContext, MergedWindows, Output, RegisteredFunction, Rows, TriggerResult,
    TriggerRows, WindowEvictor, WindowFunction, WindowGroup, WindowTrigger,
};
use levada_state::descriptor::{BindError, Binder, ReducingState, ReducingStateDescriptor};

use super::functions::{GATHERED, functions};
use super::specs::{CLOCK_WINDOW_MS, WINDOW_MS, aggregate, input, windowed};

pub const WHOLE: &str = "whole";
const PAIRED: &str = "paired";
const ENOUGH: &str = "enough";
const ODD: &str = "odd";

/// What rows of a window come to before it is given.
const ENOUGH_SUM: i64 = 80;

pub fn tumbling() -> WindowSpec {
    WindowSpec::Tumbling { size_ms: WINDOW_MS, offset_ms: 0 }
}

fn sliding() -> WindowSpec {
    WindowSpec::Sliding { size_ms: 300, slide_ms: 100, offset_ms: 0 }
}

/// Of processing time.
fn slow_sliding() -> WindowSpec {
    WindowSpec::Sliding { size_ms: CLOCK_WINDOW_MS, slide_ms: CLOCK_WINDOW_MS / 2, offset_ms: 0 }
}

pub fn session() -> WindowSpec {
    WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 100 } }
}

/// An aggregation with something changed.
pub fn with(uid: &str, window: WindowSpec, change: impl FnOnce(&mut AggregateSpec)) -> OperatorSpec {
    let mut spec = aggregate(uid, window);
    let OperatorKind::Aggregate(aggregate) = &mut spec.kind else { unreachable!("it is one") };
    change(aggregate);
    spec.output.changelog = aggregate.is_changelog();
    spec
}

fn early(accumulate: bool) -> Option<FiringSpec> {
    let rows = |rows| Some(Trigger { every_ms: None, rows: Some(rows) });
    Some(FiringSpec { early: rows(2), lateness_ms: 300, late: rows(3), accumulate })
}

/// Each value counts once in a sum.
fn tell_apart(spec: &mut AggregateSpec) {
    spec.distinct = vec!["v".into()];
    for sum in spec.calls.iter_mut().filter(|call| call.function == AggregateFunction::Sum) {
        (sum.argument, sum.argument_nullable) = (Some(DistinctSpec::output_name("v")), true);
    }
}

/// A trigger of an aggregation.
fn asked() -> Option<Box<TriggerSpec>> {
    Some(Box::new(TriggerSpec { part: *part(ENOUGH), lateness_ms: 200, accumulate: true }))
}

/// A function that gets a whole window of two inputs.
fn paired() -> OperatorSpec {
    let mut spec = windowed(PAIRED, PAIRED, ProcessWindow::once(tumbling(), None));
    let OperatorKind::Process(process) = &mut spec.kind else { unreachable!("it is one") };
    process.second = Some(SecondInput { schema: input(), keys: vec!["k".into()] });
    spec
}

/// Windows whose keys give their rows each by itself: with a trigger that has states and timers, and late rows.
fn by_key(window: WindowSpec) -> ProcessWindow {
    let firing = FiringSpec { early: None, lateness_ms: 200, late: None, accumulate: true };
    ProcessWindow { firing: Some(firing), trigger: Some(part(ENOUGH)), ..ProcessWindow::once(window, None) }
}

fn part(name: &str) -> Box<WindowPart> {
    Box::new(WindowPart { function: functions()[name].declaration().clone(), options: Default::default() })
}

/// The operators.
pub fn specs() -> Vec<OperatorSpec> {
    let evicted = ProcessWindow { evictor: Some(part(ODD)), ..ProcessWindow::once(session(), None) };
    let evicted_by_clock = ProcessWindow { time: WindowTime::processing(), ..evicted.clone() };
    let given_early = ProcessWindow { firing: early(true), ..ProcessWindow::once(session(), None) };
    let by_clock = ProcessWindow { time: WindowTime::processing(), ..ProcessWindow::once(slow_sliding(), None) };
    vec![
        with("early", tumbling(), |spec| spec.firing = early(true)),
        with("early_full", tumbling(), |spec| (spec.firing, spec.changelog_full) = (early(true), true)),
        with("parts", tumbling(), |spec| spec.firing = early(false)),
        with("early_sliding", sliding(), |spec| spec.firing = early(true)),
        with("early_sessions", session(), |spec| spec.firing = early(true)),
        with("early_full_sessions", session(), |spec| (spec.firing, spec.changelog_full) = (early(true), true)),
        with("chunks", WindowSpec::Count { size: 4, slide: 2 }, |_| ()),
        with("distinct_chunks", WindowSpec::Count { size: 4, slide: 2 }, tell_apart),
        with("distinct_counts", WindowSpec::Count { size: 3, slide: 3 }, tell_apart),
        with("distinct_sessions", session(), tell_apart),
        with("distinct_early_sessions", session(), |spec| {
            spec.firing = early(true);
            tell_apart(spec);
        }),
        with("zoned", tumbling(), |spec| spec.time.time_zone = Some("Europe/Berlin".into())),
        with("by_clock", WindowSpec::Tumbling { size_ms: CLOCK_WINDOW_MS, offset_ms: 0 }, |spec| spec.time.processing = true),
        with("sessions_by_clock", WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 1_000 } }, |spec| {
            spec.time.processing = true;
        }),
        with("sums_with_trigger", sliding(), |spec| spec.trigger = asked()),
        with("session_sums_with_trigger", session(), |spec| spec.trigger = asked()),
        windowed(WHOLE, WHOLE, ProcessWindow::once(tumbling(), Some(Evict::Rows { rows: 3 }))),
        paired(),
        windowed("triggered", GATHERED, by_key(sliding())),
        windowed("triggered_sessions", GATHERED, by_key(session())),
        windowed("evicted_sessions", GATHERED, evicted),
        windowed("sessions_given_early", GATHERED, given_early),
        windowed("gathered_by_clock", GATHERED, by_clock),
        windowed("evicted_sessions_by_clock", GATHERED, evicted_by_clock),
    ]
}

/// The functions.
pub fn registered() -> Vec<RegisteredFunction> {
    let whole = FunctionDeclaration::new(WHOLE, FunctionKind::Window)
        .input("v", LogicalType::Int64)
        .output("rows", LogicalType::Int64)
        .output("last", LogicalType::Int64);
    let paired = FunctionDeclaration::new(PAIRED, FunctionKind::CoGroup)
        .input("v", LogicalType::Int64)
        .second_input("t", LogicalType::Int64)
        .output("first", LogicalType::Int64)
        .output("second", LogicalType::Int64);
    let enough = FunctionDeclaration::new(ENOUGH, FunctionKind::Trigger).input("v", LogicalType::Int64);
    let odd = FunctionDeclaration::new(ODD, FunctionKind::Evictor).input("v", LogicalType::Int64);
    let registered = [
        RegisteredFunction::window(whole, |_| Ok(Whole)),
        RegisteredFunction::co_group(paired, |_| Ok(Paired)),
        RegisteredFunction::trigger(enough.event_timers().merging(), |_| Ok(Enough)),
        RegisteredFunction::evictor(odd, |_| Ok(Odd)),
    ];
    registered.map(|function| function.expect("its declaration fits it")).into()
}

/// The number of rows, and the last one's value.
struct Whole;

impl WindowFunction for Whole {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        let values = rows.column::<i64>("v")?.values();
        out.push((rows.len() as i64, values.last().copied().unwrap_or_default()))
    }
}

/// The sum of the values of the first input, and of the times of the second.
struct Paired;

impl CoGroupFunction for Paired {
    fn co_group(
        &mut self,
        _group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (first, second) = (first.column::<i64>("v")?, second.column::<i64>("t")?);
        out.push((first.values().iter().sum::<i64>(), second.values().iter().sum::<i64>()))
    }
}

/// Gives a window whenever its rows have come to a sum, and once more a while after the first one.
struct Enough;

impl WindowTrigger for Enough {
    type States = ReducingState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ReducingStateDescriptor::new("untold", |sum: &mut i64, next: i64| *sum += next).per_window().bind(binder)
    }

    fn on_rows(
        &mut self,
        untold: &Self::States,
        rows: TriggerRows<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        let values = rows.rows().column::<i64>("v")?;
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            if untold.get(ctx)?.is_none() {
                ctx.set_event_timer(rows.windows()[row].start + WINDOW_MS / 2)?;
            }
            untold.add(ctx, values.get(row))?;
            if untold.get(ctx)?.is_some_and(|sum| *sum >= ENOUGH_SUM) {
                untold.clear(ctx)?;
                *answer = TriggerResult::Fire;
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        _untold: &Self::States,
        _timers: FiredTimers<'_>,
        _ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        answers.fill(TriggerResult::Fire);
        Ok(())
    }

    fn on_merge(
        &mut self,
        untold: &Self::States,
        merged: MergedWindows<'_>,
        ctx: &mut KeyedContext<'_>,
    ) -> Result<(), FunctionError> {
        Ok(untold.merge_namespaces(ctx, merged.kept(), merged.gone())?)
    }
}

/// Leaves every fifth value out.
struct Odd;

impl WindowEvictor for Odd {
    fn before(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, keep: &mut [bool]) -> Result<(), FunctionError> {
        keep.iter_mut().zip(rows.column::<i64>("v")?.values()).for_each(|(keep, v)| *keep = v % 5 != 0);
        Ok(())
    }
}
