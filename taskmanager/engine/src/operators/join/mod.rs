//! Joins of two inputs by equal keys: in event-time windows, within an interval of event time, and of all rows that stand.
//!
//! Rows wait in columns, where time matters in panes that are dropped whole; what meets goes out batch by batch through a cursor,
//! so that no product is ever held. Invariant: null meets nothing.

mod indexed;
mod interval;
mod regular;
mod shape;
mod state;
mod window;

use std::sync::Arc;

use levada_common::plan::{JoinScope, JoinSpec, OperatorSpec};

use crate::error::EngineError;
use crate::operator::Operator;
use shape::Shape;

/// The operator of this join.
///
/// Errors: `Invariant` where the plan names a column that there is not.
pub(super) fn build(spec: &OperatorSpec, join: &JoinSpec) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Arc::new(Shape::new(spec, join)?);
    Ok(match join.scope {
        JoinScope::Tumbling { .. } | JoinScope::Same => Box::new(window::WindowJoin::new(shape)),
        JoinScope::Standing { ttl_ms, .. } => Box::new(regular::RegularJoin::new(shape, ttl_ms)),
        JoinScope::Within { from_ms, to_ms } => Box::new(interval::IntervalJoin::new(shape, from_ms, to_ms)),
    })
}

#[cfg(test)]
mod tests;
