//! The rows of a changelog, chosen one by one of the rows before and after a batch and made column by column.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array};
use arrow::compute::interleave;
use arrow::record_batch::RecordBatch;
use levada_common::types::RowKind;

use super::shape::Shape;
use crate::error::EngineError;

/// Where a row stands: among those before the batch, or those after it.
const BEFORE: usize = 0;
const AFTER: usize = 1;

/// What goes out, in order.
#[derive(Debug, Default)]
pub(super) struct ChangeRows {
    ops: Vec<i8>,
    places: Vec<(usize, usize)>,
}

impl ChangeRows {
    /// This row after the batch is new.
    pub(super) fn insert(&mut self, after: usize) {
        self.push(RowKind::Insert, (AFTER, after));
    }

    /// This row after the batch replaces another, which goes out before it where it is given.
    pub(super) fn update(&mut self, before: Option<usize>, after: usize) {
        if let Some(before) = before {
            self.push(RowKind::UpdateBefore, (BEFORE, before));
        }
        self.push(RowKind::UpdateAfter, (AFTER, after));
    }

    /// This row before the batch is gone.
    pub(super) fn delete(&mut self, before: usize) {
        self.push(RowKind::Delete, (BEFORE, before));
    }

    fn push(&mut self, op: RowKind, place: (usize, usize)) {
        self.ops.push(op as i8);
        self.places.push(place);
    }

    /// The rows as a batch of the output, of `columns`.
    pub(super) fn batch(self, shape: &Shape, before: &[ArrayRef], after: Vec<ArrayRef>) -> Result<RecordBatch, EngineError> {
        shape.output(self.columns(shape, before, after)?)
    }

    /// The columns of the rows. Shape: the output's; `before` and `after` have them without `_op`, and `before` may have none where no
    /// row of it goes out.
    pub(super) fn columns(self, shape: &Shape, before: &[ArrayRef], after: Vec<ArrayRef>) -> Result<Vec<ArrayRef>, EngineError> {
        let all = after.first().map_or(0, |column| column.len());
        let is_whole = self.ops.len() == all && self.places.iter().enumerate().all(|(row, place)| *place == (AFTER, row));
        let columns = match is_whole {
            true => after,
            false => {
                let columns = after.iter().enumerate().map(|(at, after)| {
                    let before = before.get(at).unwrap_or(after);
                    interleave(&[before.as_ref(), after.as_ref()], &self.places)
                });
                columns.collect::<Result<_, _>>().map_err(|source| shape.kernel(source))?
            }
        };
        let op: ArrayRef = Arc::new(Int8Array::from(self.ops));
        Ok(std::iter::once(op).chain(columns).collect())
    }
}
