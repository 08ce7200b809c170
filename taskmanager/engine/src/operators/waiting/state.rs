//! Rows that wait, in snapshots: the chunks themselves, so that the synchronous part does no work for a row. Which window a row is
//! in is found anew when it is restored: nothing of it is saved.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_state::row_codec::TTL_COLUMN;

use super::Side;
use crate::error::EngineError;
use crate::operator::{RestoredState, in_groups, restored_column};
use crate::operators::rows::{Marks, RowBuffer, restored_since};

/// Appends the pieces of a pane's rows.
pub(in crate::operators) fn save(side: &Side, rows: &RowBuffer, marks: Option<&Marks>, pieces: &mut Vec<RecordBatch>) {
    for chunk in rows.chunks() {
        let columns = side.saved.iter().map(|at| Arc::clone(&chunk.columns[*at]));
        let marks = marks.filter(|_| side.saves_marks).map(|marks| Arc::new(marks.column(chunk.start, chunk.rows)) as ArrayRef);
        let piece = RecordBatch::try_new(Arc::clone(&side.pieces), columns.chain(marks).collect());
        pieces.push(piece.expect("a chunk has the input's columns"));
    }
}

/// Rows that a snapshot had.
pub(in crate::operators) struct RestoredRows {
    /// Which side's they are.
    pub(in crate::operators) side: usize,
    /// In the columns of the side's input.
    pub(in crate::operators) batch: RecordBatch,
    /// Since when they stand, where that was saved.
    pub(in crate::operators) since: Option<ArrayRef>,
    /// In which window each stands, where the state has windows.
    pub(in crate::operators) windows: Option<ArrayRef>,
    /// What was noted of each row, where that was saved.
    pub(in crate::operators) marks: Option<BooleanArray>,
}

/// The rows of these key groups, side by side, of an operator with these sides.
///
/// Contract: nothing else is restored; how far time had come was taken out.
///
/// Errors: `Restore` where another state, column or type was saved than it has.
pub(in crate::operators) fn read(
    uid: &Uid,
    sides: &[Side],
    key_groups: KeyGroupRange,
    restored: Vec<RestoredState>,
) -> Result<Vec<RestoredRows>, EngineError> {
    let mut read = Vec::new();
    for state in restored {
        let refuse = |reason: String| EngineError::Restore { uid: uid.clone(), state: state.name.clone(), reason };
        let Some(at) = sides.iter().position(|side| side.state.name == state.name) else {
            let names: Vec<String> = sides.iter().map(|side| format!("\"{}\"", side.state.name)).collect();
            return Err(refuse(format!("the rows of this operator are in {}", names.join(" and "))));
        };
        for batch in state.batches {
            read.extend(read_batch(uid, sides, key_groups, (at, &batch))?);
        }
    }
    read.sort_by_key(|rows: &RestoredRows| rows.side);
    Ok(read)
}

/// Likewise of one batch of the side at this place; nothing where it has none of these key groups.
pub(in crate::operators) fn read_batch(
    uid: &Uid,
    sides: &[Side],
    key_groups: KeyGroupRange,
    (at, batch): (usize, &RecordBatch),
) -> Result<Option<RestoredRows>, EngineError> {
    let refuse = |reason: String| EngineError::Restore { uid: uid.clone(), state: sides[at].state.name.clone(), reason };
    let batch = in_groups(batch, key_groups).map_err(refuse)?;
    if batch.num_rows() == 0 {
        return Ok(None);
    }
    rows_of(sides, at, &batch).map(Some).map_err(refuse)
}

/// A restored batch of the side at this place, in the order of the input's columns.
fn rows_of(sides: &[Side], at: usize, batch: &RecordBatch) -> Result<RestoredRows, String> {
    let side = &sides[at];
    let windowed = side.state.schema.windowed;
    let mut columns: Vec<Option<ArrayRef>> = vec![None; side.input.fields().len() + usize::from(windowed)];
    let (mut since, mut marks) = (None, None);
    for (at, field) in side.pieces.fields().iter().enumerate() {
        match side.saved.get(at) {
            Some(place) => columns[*place] = Some(Arc::clone(restored_column(batch, field)?)),
            None if field.name() == TTL_COLUMN => since = Some(restored_since(batch, field)?),
            None => marks = Some(restored_column(batch, field)?.as_boolean().clone()),
        }
    }
    let mut columns = columns.into_iter().collect::<Option<Vec<_>>>().ok_or("a column of the input is not saved")?;
    let windows = if windowed { columns.pop() } else { None };
    let batch = side.batch(columns).map_err(|error| error.to_string())?;
    Ok(RestoredRows { side: at, batch, since, windows, marks })
}
