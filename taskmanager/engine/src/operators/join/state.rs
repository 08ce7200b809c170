//! A join's state: the rows of each side whose time has not passed, and how far time had come.
//!
//! A snapshot's pieces are the chunks themselves, so its synchronous part does no work for a row. Which pane a row is in is
//! found anew when it is restored: nothing of it is saved.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::record_batch::RecordBatch;
use levada_common::keys::KeyGroupRange;
use levada_state::keyed::HeapShare;
use levada_state::row_codec::TTL_COLUMN;
use levada_state::snapshot::{StatePart, ready};

use super::shape::{Shape, Side};
use crate::error::EngineError;
use crate::operator::{RestoredState, in_groups, restored_column};
use crate::operators::charge;
use crate::operators::event_time::{restored_watermark, watermark_part};
use crate::operators::rows::{Marks, RowBuffer, restored_since};

/// Appends the pieces of a pane's rows.
pub(super) fn save(side: &Side, rows: &RowBuffer, marks: Option<&Marks>, pieces: &mut Vec<RecordBatch>) {
    for chunk in rows.chunks() {
        let columns = side.saved.iter().map(|at| Arc::clone(&chunk.columns[*at]));
        let marks = marks.filter(|_| side.saves_marks).map(|marks| Arc::new(marks.column(chunk.start, chunk.rows)) as ArrayRef);
        let piece = RecordBatch::try_new(Arc::clone(&side.pieces), columns.chain(marks).collect());
        pieces.push(piece.expect("a chunk has the input's columns"));
    }
}

/// The states of a snapshot, by side.
pub(super) fn parts(shape: &Shape, pieces: [Vec<RecordBatch>; 2], watermark: i64) -> Vec<StatePart> {
    let sides = shape.sides.iter().zip(pieces);
    let mut parts: Vec<StatePart> =
        sides.map(|(side, pieces)| StatePart { meta: side.state.clone(), contents: ready(pieces).into() }).collect();
    parts.extend(watermark_part(&shape.uid, watermark));
    parts
}

/// Rows that a snapshot had.
pub(super) struct RestoredRows {
    /// The columns of the side's input.
    pub(super) columns: Vec<ArrayRef>,
    /// Since when they stand, where that was saved.
    pub(super) since: Option<ArrayRef>,
    /// What was noted of each row, where that was saved.
    pub(super) marks: Option<BooleanArray>,
}

/// What a snapshot had.
pub(super) struct Restored {
    /// By side.
    pub(super) rows: [Vec<RestoredRows>; 2],
    /// How far time had come.
    pub(super) watermark: i64,
}

impl Restored {
    /// The rows of these key groups.
    ///
    /// Errors: `Restore` where another state, column or type was saved than this join has.
    pub(super) fn read(shape: &Shape, key_groups: KeyGroupRange, mut restored: Vec<RestoredState>) -> Result<Self, EngineError> {
        let watermark = restored_watermark(&shape.uid, &mut restored)?;
        let mut read = Self { rows: [Vec::new(), Vec::new()], watermark };
        for state in restored {
            let Some(at) = shape.sides.iter().position(|side| side.state.name == state.name) else {
                return Err(refuse(
                    shape,
                    &state.name,
                    "this operator is a join, whose states are \"left\" and \"right\"".into(),
                ));
            };
            for batch in &state.batches {
                let batch = in_groups(batch, key_groups).map_err(|reason| refuse(shape, &state.name, reason))?;
                if batch.num_rows() > 0 {
                    let rows = columns(&shape.sides[at], &batch).map_err(|reason| refuse(shape, &state.name, reason))?;
                    read.rows[at].push(rows);
                }
            }
        }
        Ok(read)
    }
}

fn refuse(shape: &Shape, state: &str, reason: String) -> EngineError {
    EngineError::Restore { uid: shape.uid.clone(), state: state.into(), reason }
}

/// The columns of a restored batch in the order of the input.
fn columns(side: &Side, batch: &RecordBatch) -> Result<RestoredRows, String> {
    let mut columns: Vec<Option<ArrayRef>> = vec![None; side.input.fields().len()];
    let (mut since, mut marks) = (None, None);
    for (at, field) in side.pieces.fields().iter().enumerate() {
        match side.saved.get(at) {
            Some(place) => columns[*place] = Some(Arc::clone(restored_column(batch, field)?)),
            None if field.name() == TTL_COLUMN => since = Some(restored_since(batch, field)?),
            None => marks = Some(restored_column(batch, field)?.as_boolean().clone()),
        }
    }
    let columns = columns.into_iter().collect::<Option<Vec<_>>>().ok_or("a column of the input is not saved")?;
    Ok(RestoredRows { columns, since, marks })
}

/// Notes how much each side holds.
///
/// Errors: `OverBudget` where all states of the TaskManager are over its limit.
pub(super) fn charge(shape: &Shape, share: &mut HeapShare, bytes: [usize; 2]) -> Result<(), EngineError> {
    let [left, right] = shape.sides.each_ref().map(|side| side.state.name.as_str());
    charge::charge(&shape.uid, share, &[(left, bytes[0]), (right, bytes[1])], shape.remedy)
}
