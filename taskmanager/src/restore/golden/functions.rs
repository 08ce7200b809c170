//! The functions of golden jobs: what gets whole windows, and triggers and evictors of these.
//!
//! Invariant: what they give depends on which rows they get, not on their order.

use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_engine::function::{
    CoGroupFunction, FiredTimers, FunctionError, Functions, KeyedContext, MergedWindows, Output, RegisteredFunction, Rows,
    TriggerResult, TriggerRows, WindowEvictor, WindowFunction, WindowGroup, WindowTrigger,
};
use levada_state::descriptor::{BindError, Binder, ReducingState, ReducingStateDescriptor, ValueState, ValueStateDescriptor};

/// How long after a window's start `halfway` gives it.
const HALFWAY_MS: i64 = 5_000;

/// They, by name.
pub fn functions() -> Functions {
    let declaration = |name: &str, kind| FunctionDeclaration::new(name, kind).input("n", LogicalType::Int64);
    let list =
        declaration("list", FunctionKind::Window).output("rows", LogicalType::Int64).output("numbers", LogicalType::String);
    let pair = declaration("pair", FunctionKind::CoGroup)
        .second_input("n", LogicalType::Int64)
        .output("first", LogicalType::String)
        .output("second", LogicalType::String);
    let enough = declaration("enough", FunctionKind::Trigger).options(["sum"]).merging();
    let halfway = declaration("halfway", FunctionKind::Trigger).event_timers();
    let halfway_by_clock = declaration("halfway_by_clock", FunctionKind::Trigger).processing_timers().merging();
    let small = declaration("small", FunctionKind::Evictor).options(["most"]);
    let registered = [
        RegisteredFunction::window(list, |_| Ok(List)),
        RegisteredFunction::co_group(pair, |_| Ok(Pair)),
        RegisteredFunction::trigger(enough, |options| Ok(Enough { sum: number(options, "sum")? })),
        RegisteredFunction::trigger(halfway, |_| Ok(Halfway { by_clock: false })),
        RegisteredFunction::trigger(halfway_by_clock, |_| Ok(Halfway { by_clock: true })),
        RegisteredFunction::evictor(small, |options| Ok(Small { most: number(options, "most")? })),
    ];
    let registered = registered.map(|function| function.expect("its declaration fits it"));
    registered.into_iter().map(|function| (function.declaration().name.clone(), function)).collect()
}

fn number(options: &Options, name: &str) -> Result<i64, FunctionError> {
    options.get(name).and_then(|value| value.as_i64()).ok_or_else(|| FunctionError::option(name, "a number is expected"))
}

/// The numbers of rows, in their order.
fn numbers(rows: Rows<'_>) -> Result<String, FunctionError> {
    let mut numbers = rows.column::<i64>("n")?.values().to_vec();
    numbers.sort_unstable();
    Ok(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join("+"))
}

/// How many rows there are, and their numbers.
struct List;

impl WindowFunction for List {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        out.push((rows.len() as i64, numbers(rows)?.as_str()))
    }
}

/// The numbers of both inputs.
struct Pair;

impl CoGroupFunction for Pair {
    fn co_group(
        &mut self,
        _group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let of = |rows: Rows<'_>| if rows.is_empty() { Ok("none".to_owned()) } else { numbers(rows) };
        out.push((of(first)?.as_str(), of(second)?.as_str()))
    }
}

/// Gives a window whenever the numbers since it was last given come to a sum.
struct Enough {
    sum: i64,
}

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
        let numbers = rows.rows().column::<i64>("n")?;
        for (row, answer) in answers.iter_mut().enumerate() {
            ctx.enter(row);
            untold.add(ctx, numbers.get(row))?;
            if untold.get(ctx)?.is_some_and(|sum| *sum >= self.sum) {
                untold.clear(ctx)?;
                *answer = TriggerResult::Fire;
            }
        }
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

/// Gives a window a while after its start, once, and then what came since.
struct Halfway {
    by_clock: bool,
}

impl WindowTrigger for Halfway {
    type States = ValueState<bool>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new("is_set").per_window().bind(binder)
    }

    fn on_rows(
        &mut self,
        is_set: &Self::States,
        rows: TriggerRows<'_>,
        ctx: &mut KeyedContext<'_>,
        _answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        for (row, window) in rows.windows().iter().enumerate() {
            ctx.enter(row);
            if is_set.get(ctx)?.is_none() {
                is_set.set(ctx, true)?;
                let at = window.start + HALFWAY_MS;
                if self.by_clock { ctx.set_processing_timer(at)? } else { ctx.set_event_timer(at)? }
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        _is_set: &Self::States,
        _timers: FiredTimers<'_>,
        _ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        answers.fill(TriggerResult::FireAndPurge);
        Ok(())
    }

    fn on_merge(
        &mut self,
        _is_set: &Self::States,
        _merged: MergedWindows<'_>,
        _ctx: &mut KeyedContext<'_>,
    ) -> Result<(), FunctionError> {
        // The session that goes on is the earliest, which has set its timer.
        Ok(())
    }
}

/// Leaves out what is greater than a number.
struct Small {
    most: i64,
}

impl WindowEvictor for Small {
    fn before(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, keep: &mut [bool]) -> Result<(), FunctionError> {
        let numbers = rows.column::<i64>("n")?.values();
        keep.iter_mut().zip(numbers).for_each(|(keep, n)| *keep = *n <= self.most);
        Ok(())
    }
}
