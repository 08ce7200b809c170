//! The key groups of rows, and the column that notes them.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt16Array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use levada_common::keys::key_groups_of_rows;

use super::{KEY_GROUP_COLUMN, KEY_PREFIX};

/// The key groups of a batch's rows, by their columns `key.<name>`; without such a column all rows have the one empty key.
pub fn groups_by_key(batch: &RecordBatch, max_parallelism: u32) -> Vec<u16> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let keys: Vec<ArrayRef> =
        columns.filter(|(field, _)| field.name().starts_with(KEY_PREFIX)).map(|(_, column)| Arc::clone(column)).collect();
    let mut groups = Vec::with_capacity(batch.num_rows());
    key_groups_of_rows(&keys, batch.num_rows(), max_parallelism, &mut groups);
    groups
}

/// A snapshot's piece with its rows' key groups before its columns, as a file has them.
pub fn with_groups(piece: &RecordBatch, max_parallelism: u32) -> RecordBatch {
    let groups: ArrayRef = Arc::new(UInt16Array::from(groups_by_key(piece, max_parallelism)));
    let fields: Vec<FieldRef> = std::iter::once(group_field()).chain(piece.schema().fields().iter().cloned()).collect();
    let columns = std::iter::once(groups).chain(piece.columns().iter().cloned()).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a column as long as the others is added")
}

/// The field of the groups' column.
pub(super) fn group_field() -> FieldRef {
    Arc::new(Field::new(KEY_GROUP_COLUMN, DataType::UInt16, false))
}
