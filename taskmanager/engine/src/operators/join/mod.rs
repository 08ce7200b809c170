//! Joins of two inputs by equal keys: in windows, within an interval of event time, of all rows that stand, and with
//! what a table has.
//!
//! Rows wait in columns, where time matters in panes that are dropped whole; what meets goes out batch by batch through a cursor,
//! so that no product is ever held. Invariant: null meets nothing.

mod indexed;
mod interval;
mod lookup;
mod regular;
mod shape;
mod state;
mod window;

use std::sync::Arc;

use levada_common::plan::{JoinScope, JoinSide, JoinSpec, OperatorSpec, WindowTime};

use crate::error::EngineError;
use crate::operator::Operator;
use crate::operators::late::LateRows;
use shape::Shape;

/// The operator of this join.
///
/// Errors: `Invariant` where the plan names a column that there is not.
pub(super) fn build(spec: &OperatorSpec, join: &JoinSpec) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Arc::new(Shape::new(spec, join)?);
    let late = |side: JoinSide, input| LateRows::new(spec, side.late_output(), input);
    let late = [late(JoinSide::Left, &spec.input)?, late(JoinSide::Right, &join.right)?];
    Ok(match &join.scope {
        JoinScope::Tumbling { time, .. } | JoinScope::Overlapping { time, .. } => {
            Box::new(window::WindowJoin::new(shape, time, late))
        }
        JoinScope::Same => Box::new(window::WindowJoin::new(shape, &WindowTime::default(), late)),
        JoinScope::Lookup { moves, .. } => Box::new(lookup::LookupJoin::new(shape, join.table(&join.right), *moves)),
        JoinScope::Standing { ttl_ms, .. } => Box::new(regular::RegularJoin::new(shape, *ttl_ms)),
        JoinScope::Within { from_ms, to_ms } => Box::new(interval::IntervalJoin::new(shape, late, *from_ms, *to_ms)),
    })
}

#[cfg(test)]
mod tests;
