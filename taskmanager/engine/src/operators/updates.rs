//! Updates of a full changelog whose two rows part: what stood is then gone, or what comes is new, and so it is said.
//!
//! An update whose rows are in two batches is parted in any case, which changes nothing but words. Must never know why rows part.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int8Array};
use arrow::datatypes::Int8Type;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::types::RowKind;

/// A changelog in which each row of an update that goes without the other says so: `-U` is `-D`, and `+U` is `+I`. `stays` says of
/// the first of two rows, an update, whether both go the same way.
pub(super) fn part_updates(batch: &RecordBatch, stays: impl Fn(usize) -> bool) -> Result<RecordBatch, ArrowError> {
    let ops = batch.column(0).as_primitive::<Int8Type>().values();
    let is = |row: usize, kind: RowKind| ops.get(row) == Some(&(kind as i8));
    let is_whole = |row: usize| is(row, RowKind::UpdateBefore) && is(row + 1, RowKind::UpdateAfter) && stays(row);
    let parted = |row: usize| {
        if is(row, RowKind::UpdateBefore) && !is_whole(row) {
            return RowKind::Delete as i8;
        }
        if is(row, RowKind::UpdateAfter) && !row.checked_sub(1).is_some_and(is_whole) {
            return RowKind::Insert as i8;
        }
        ops[row]
    };
    let parted: ArrayRef = Arc::new(Int8Array::from_iter_values((0..ops.len()).map(parted)));
    let columns = std::iter::once(parted).chain(batch.columns()[1..].iter().cloned());
    RecordBatch::try_new(batch.schema(), columns.collect())
}
