//! Groups and aggregates: running, in event-time windows, over everything; in one phase or two.

use levada_common::plan::{AggregateSpec, OperatorSpec};

use crate::error::EngineError;
use crate::operator::Operator;

/// The operator of this aggregation.
///
/// Errors: `Invariant` where the plan names a column, type or combination that the engine does not have.
pub fn build(spec: &OperatorSpec, aggregate: &AggregateSpec) -> Result<Box<dyn Operator>, EngineError> {
    let _ = aggregate;
    Err(EngineError::Invariant { uid: spec.uid.clone(), message: "aggregations are not built yet".into() })
}
