//! What a join's sides hold of the memory of all heap states.

use levada_state::keyed::HeapShare;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operators::charge;

/// Notes how much each side holds.
///
/// Errors: `OverBudget` where all states of the TaskManager are over its limit.
pub(super) fn charge(shape: &Shape, share: &mut HeapShare, bytes: [usize; 2]) -> Result<(), EngineError> {
    let [left, right] = shape.sides.each_ref().map(|side| side.state.name.as_str());
    charge::charge(&shape.uid, share, &[(left, bytes[0]), (right, bytes[1])], shape.remedy)
}
