//! Batches of the planned shape, made of columns.

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use crate::error::ConnectorError;

/// Bytes after which a batch is full, whatever its rows.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// A batch of `rows` rows; `columns` may be none where nobody reads any.
pub fn record_batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ConnectorError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(|source| ConnectorError::Shape { source })
}
