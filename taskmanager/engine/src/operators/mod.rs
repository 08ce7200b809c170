//! Operators: one file or folder each, and the chain that drives them.

pub mod aggregate;
pub(crate) mod bad_records;
mod behind;
pub(crate) mod chain;
pub(crate) mod charge;
mod event_time;
mod filter;
mod join;
mod late;
mod pending;
mod process;
mod project;
mod reached;
mod rows;
mod split;
mod top;
mod updates;
mod waiting;
mod watermark;
mod window;

use levada_common::plan::{JoinScope, OperatorKind, OperatorSpec, ProcessSpec};
use levada_common::state_schema::StateSchema;

use crate::error::EngineError;
use crate::expr::ExpressionCompiler;
use crate::function::Functions;
use crate::operator::Operator;

/// Whether a keyed state of such an operator is kept in its store, where it has one: then `open` needs no rows of it, the store has
/// them. All others come as rows, whatever the backend.
pub fn keeps_in_store(kind: &OperatorKind, state: &str) -> bool {
    match kind {
        OperatorKind::Aggregate(aggregate) => aggregate::keeps_in_store(aggregate, state),
        OperatorKind::Join(_) | OperatorKind::Top(_) if stands_in_panes(kind) => true,
        OperatorKind::Distinct(distinct) => distinct.counted().iter().any(|counted| counted.state == state),
        OperatorKind::Join(join) => matches!(join.scope, JoinScope::Standing { .. }),
        OperatorKind::Top(top) => !top.local,
        OperatorKind::Process(process) if process.window.is_some() => ProcessSpec::WINDOW_ROWS.contains(&state),
        OperatorKind::Process(process) => {
            let mut states = process.function.states.iter();
            states.any(|declared| declared.kind.is_keyed() && declared.name == state)
        }
        _ => false,
    }
}

/// How a store of such an operator lays a state out, where that is not how the state says it of itself.
pub fn stored_schema(operator: &OperatorSpec, state: &str) -> Option<StateSchema> {
    match &operator.kind {
        OperatorKind::Aggregate(aggregate) if aggregate.state_name() == Some(state) => {
            Some(aggregate.stored_schema(&operator.input))
        }
        _ => None,
    }
}

/// Whether such an operator opens no store, whatever the backend: what keyed state it has is on the heap, and comes as rows.
pub fn stands_on_heap(kind: &OperatorKind) -> bool {
    match kind {
        OperatorKind::Aggregate(aggregate) => aggregate::stands_on_heap(aggregate),
        OperatorKind::Join(join) => matches!(join.scope, JoinScope::Lookup { .. }),
        OperatorKind::Top(top) => top.local,
        OperatorKind::Process(_) | OperatorKind::Distinct(_) => false,
        OperatorKind::Watermark(_) | OperatorKind::Filter { .. } | OperatorKind::Project { .. } => true,
        OperatorKind::Assign(_) | OperatorKind::Split { .. } => true,
    }
}

/// Whether rows of such an operator stand in panes of time, or by window: they are all that is in its store. Where they stand there is no
/// part of the state itself.
pub fn stands_in_panes(kind: &OperatorKind) -> bool {
    match kind {
        OperatorKind::Join(join) => join.scope.is_in_windows() || matches!(join.scope, JoinScope::Within { .. }),
        OperatorKind::Process(process) => process.window.is_some(),
        OperatorKind::Top(top) => top.window.is_some() && !top.local,
        _ => false,
    }
}

/// The operator of `spec`, not yet opened.
///
/// Errors: `Invariant` where the plan names a column, type or expression that the engine does not have.
pub fn build(
    spec: &OperatorSpec,
    compiler: &dyn ExpressionCompiler,
    functions: &Functions,
) -> Result<Box<dyn Operator>, EngineError> {
    match &spec.kind {
        OperatorKind::Watermark(watermark) => watermark::build(spec, watermark, compiler),
        OperatorKind::Filter { predicate, parts_updates } => filter::build(spec, predicate, *parts_updates, compiler),
        OperatorKind::Project { columns, unnest } => project::build(spec, columns, *unnest, compiler),
        OperatorKind::Assign(assign) => aggregate::assign::build(spec, assign),
        OperatorKind::Distinct(distinct) => aggregate::distinct::build(spec, distinct),
        OperatorKind::Aggregate(aggregate) => aggregate::build(spec, aggregate, compiler, functions),
        OperatorKind::Process(process) => process::build(spec, process, functions),
        OperatorKind::Join(join) => join::build(spec, join),
        OperatorKind::Top(top) => top::build(spec, top),
        OperatorKind::Split { branches, parts_updates } => split::build(spec, branches, *parts_updates, compiler),
    }
}
