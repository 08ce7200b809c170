//! A join's state: the rows of each side whose time has not passed, and how far time had come.

use arrow::record_batch::RecordBatch;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::{StatePart, ready};

use super::shape::Shape;
use crate::error::EngineError;
use crate::operators::charge;
use crate::operators::event_time::watermark_part;

/// The states of a snapshot, by side.
pub(super) fn parts(shape: &Shape, pieces: [Vec<RecordBatch>; 2], watermark: i64) -> Vec<StatePart> {
    let sides = shape.sides.iter().zip(pieces);
    let mut parts: Vec<StatePart> =
        sides.map(|(side, pieces)| StatePart { meta: side.state.clone(), contents: ready(pieces).into() }).collect();
    parts.extend(watermark_part(&shape.uid, watermark));
    parts
}

/// Notes how much each side holds.
///
/// Errors: `OverBudget` where all states of the TaskManager are over its limit.
pub(super) fn charge(shape: &Shape, share: &mut HeapShare, bytes: [usize; 2]) -> Result<(), EngineError> {
    let [left, right] = shape.sides.each_ref().map(|side| side.state.name.as_str());
    charge::charge(&shape.uid, share, &[(left, bytes[0]), (right, bytes[1])], shape.remedy)
}
