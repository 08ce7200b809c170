//! Groups and aggregates: running, in event-time windows, over everything; in one phase or two.

pub(super) mod assign;
mod change_rows;
mod changed;
mod counted;
mod counts;
pub(super) mod distinct;
mod given;
mod global;
mod group_rows;
mod group_table;
mod library;
mod over_changes;
mod panes;
mod partial;
mod restore;
mod running;
mod sessions;
mod shape;
mod shown;
mod slices;
mod triggered;
mod updating;
mod value_sets;
mod windows;

use std::sync::Arc;

use levada_common::plan::{AggregatePhase, AggregateSpec, OperatorSpec, SideOutput, WindowSpec};

use crate::error::EngineError;
use crate::expr::ExpressionCompiler;
use crate::function::Functions;
use crate::operator::Operator;
use crate::operators::late::LateRows;
use crate::operators::window::Series;
use shape::Shape;

pub(super) use sessions::{Ends, SessionSource, behind};

/// The operator of this aggregation.
///
/// Errors: `Invariant` where the plan names a column, type or combination that the engine does not have; a trigger that is not registered
/// here, or was declared otherwise at planning.
pub fn build(
    spec: &OperatorSpec,
    aggregate: &AggregateSpec,
    compiler: &dyn ExpressionCompiler,
    functions: &Functions,
) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Arc::new(Shape::new(spec, aggregate, compiler)?);
    let late = LateRows::new(spec, SideOutput::LATE, &spec.input)?;
    if let Some(trigger) = &aggregate.trigger {
        return triggered::build((spec, aggregate, trigger), shape, late, functions);
    }
    Ok(match (aggregate.phase, &aggregate.window) {
        (AggregatePhase::Partial, _) if aggregate.time.processing => Box::new(partial::Partial::new(shape, aggregate)),
        (AggregatePhase::Partial, WindowSpec::Session { .. }) => Box::new(sessions::Partial::new(shape, spec, aggregate)?),
        (_, WindowSpec::Session { .. }) if let Some(firing) = aggregate.firing => {
            Box::new(sessions::UpdatingSessions::new(shape, late, firing, (spec, aggregate))?)
        }
        (_, WindowSpec::Session { .. }) => Box::new(sessions::Sessions::new(shape, late, spec, aggregate)?),
        (AggregatePhase::Partial, _) => Box::new(partial::Partial::new(shape, aggregate)),
        (_, window) if let Some(firing) = aggregate.firing => {
            let series = shape.grid.and_then(|grid| Series::of(window, grid));
            Box::new(updating::Updating::new(shape, late, firing, (series, &aggregate.time)))
        }
        (_, WindowSpec::Running) if aggregate.takes_changes => Box::new(over_changes::OverChanges::new(shape, spec, aggregate)?),
        (_, WindowSpec::Running) => Box::new(running::Running::new(shape, aggregate.changelog_full)),
        (_, WindowSpec::Global) => Box::new(global::Global::new(shape)),
        (_, WindowSpec::Count { size, .. }) if shape.is_whole_count => Box::new(counts::WholeCounts::new(shape, *size)),
        (_, WindowSpec::Count { size, slide }) => Box::new(counts::Counts::new(shape, counts::Lengths::new(*size, *slide))),
        (_, WindowSpec::Tumbling { .. } | WindowSpec::Same) => Box::new(windows::Windows::new(shape, late, &aggregate.time)),
        (_, window @ (WindowSpec::Sliding { .. } | WindowSpec::Cumulate { .. })) => {
            let series = shape.grid.and_then(|grid| Series::of(window, grid));
            let series = series.ok_or_else(|| shape.invariant(format!("{window:?} has no slices")))?;
            Box::new(slices::Slices::new(shape, late, series, &aggregate.time))
        }
    })
}

/// Whether the state is in the aggregation's store as it is, where it has one: sessions are there twice, and of windows of rows that a
/// key has whole it is looked first whether they are those.
pub(super) fn keeps_in_store(aggregate: &AggregateSpec, state: &str) -> bool {
    let is_own = ["panes", "slices", "aggregate", "groups"].contains(&state) || aggregate.keeps_chunks();
    let is_own = is_own && aggregate.state_name() == Some(state);
    let has_counted = aggregate.takes_changes || aggregate.keeps_chunks();
    let is_counted = has_counted && aggregate.counted().iter().any(|counted| counted.state == state);
    (is_own || is_counted) && !stands_on_heap(aggregate)
}

/// Whether the aggregation is on the heap: windows with a trigger, and values in their order of which there is no key.
pub(super) fn stands_on_heap(aggregate: &AggregateSpec) -> bool {
    let is_one_group = aggregate.takes_changes && !aggregate.counted().is_empty() && aggregate.keys.is_empty();
    is_one_group || aggregate.trigger.is_some()
}

#[cfg(test)]
mod tests;
