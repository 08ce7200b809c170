//! Rows of operator state on their way out and back.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::types::Column;

use super::OperatorStateError;
use crate::snapshot::StateMeta;

/// The piece of these columns.
pub(super) fn piece(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let piece = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    piece.expect("the columns are those of the state's types")
}

/// Rows of a snapshot, columns in the order of the state's schema.
#[derive(Debug)]
pub struct Rows<'a> {
    meta: &'a StateMeta,
    columns: Vec<ArrayRef>,
    rows: usize,
}

impl<'a> Rows<'a> {
    /// Finds the state's columns by their names. A column that the state's type does not have is refused: to leave it out would
    /// lose it with the next snapshot.
    pub(super) fn new(meta: &'a StateMeta, batch: &RecordBatch) -> Result<Self, OperatorStateError> {
        let own = || meta.schema.map_key.iter().chain(&meta.schema.values);
        let find = |column: &Column| batch.column_by_name(&column.name).cloned();
        let columns: Vec<ArrayRef> = own().filter_map(find).collect();
        if columns.len() != own().count() || columns.len() != batch.num_columns() {
            let fields = batch.schema();
            let found = fields.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
            let expected = own().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(OperatorStateError::Columns { uid: meta.uid.clone(), state: meta.name.clone(), expected, found });
        }
        Ok(Self { meta, columns, rows: batch.num_rows() })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// The columns of the map's key.
    pub(super) fn map_key(&self) -> &[ArrayRef] {
        &self.columns[..self.meta.schema.map_key.len()]
    }

    /// The columns of the value.
    pub(super) fn values(&self) -> &[ArrayRef] {
        &self.columns[self.meta.schema.map_key.len()..]
    }
}
