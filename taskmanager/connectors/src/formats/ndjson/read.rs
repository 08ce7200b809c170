//! Records to batches.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::types::{Column, StreamSchema};

use super::column::FieldReaders;
use super::scan::Scanner;
use crate::batch::record_batch;
use crate::error::ConnectorError;
use crate::formats::{Reason, text::not_utf8};

/// Makes a row of every record. A record is checked against all columns that the node declares, so that what is bad does not
/// depend on which of them the graph uses.
pub struct NdjsonDecoder {
    fields: FieldReaders,
    schema: SchemaRef,
    /// For each column of the schema its place among the declared ones.
    wanted: Vec<usize>,
    scratch: String,
    rows_max: usize,
    rows: usize,
    bytes: usize,
}

impl NdjsonDecoder {
    /// A decoder of records with these columns that gives `schema`, some of them.
    pub fn new(columns: &[Column], schema: &StreamSchema, rows_max: usize) -> Self {
        let place = |column: &Column| {
            columns.iter().position(|declared| declared.name == column.name).expect("a plan uses only columns that are declared")
        };
        Self {
            fields: FieldReaders::new(columns),
            schema: schema.to_arrow(),
            wanted: schema.columns.iter().map(place).collect(),
            scratch: String::new(),
            rows_max,
            rows: 0,
            bytes: 0,
        }
    }

    /// Takes a record.
    ///
    /// Errors: why it is bad; nothing of it is kept.
    pub fn push(&mut self, record: &[u8]) -> Result<(), Reason> {
        let text = std::str::from_utf8(record).map_err(|error| not_utf8(&error))?;
        let mut scanner = Scanner::new(text);
        let read = self.fields.read(&mut scanner, self.rows, 0, &mut self.scratch).and_then(|()| scanner.end());
        match read {
            Ok(()) => {
                self.rows += 1;
                self.bytes += record.len();
            }
            Err(_) => self.fields.truncate(self.rows),
        }
        read
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn rows_max(&self) -> usize {
        self.rows_max
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows that wait.
    pub fn take(&mut self) -> Result<RecordBatch, ConnectorError> {
        let mut arrays = Vec::with_capacity(self.fields.columns.len());
        for column in &mut self.fields.columns {
            arrays.push(column.take().map_err(|source| ConnectorError::Shape { source })?);
        }
        let columns = self.wanted.iter().map(|place| arrays[*place].clone()).collect();
        self.bytes = 0;
        record_batch(&self.schema, columns, std::mem::take(&mut self.rows))
    }
}
