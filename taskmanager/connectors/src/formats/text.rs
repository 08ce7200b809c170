//! Lines as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::Reason;
use crate::batch::record_batch;
use crate::error::ConnectorError;

/// The only column of text.
pub fn line_column() -> Column {
    Column::new("line", LogicalType::String, false)
}

/// Makes a row of every line; a line that is not UTF-8 is bad, an empty one is not.
pub struct TextDecoder {
    schema: SchemaRef,
    rows_max: usize,
    lines: StringBuilder,
    rows: usize,
    bytes: usize,
}

impl TextDecoder {
    pub(super) fn new(schema: &StreamSchema, rows_max: usize) -> Self {
        Self { schema: schema.to_arrow(), rows_max, lines: StringBuilder::new(), rows: 0, bytes: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), Reason> {
        let line = std::str::from_utf8(record).map_err(|error| not_utf8(&error))?;
        self.lines.append_value(line);
        self.rows += 1;
        self.bytes += line.len();
        Ok(())
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn rows_max(&self) -> usize {
        self.rows_max
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self) -> Result<RecordBatch, ConnectorError> {
        // The next batch will be about as large as this one.
        let next = StringBuilder::with_capacity(self.rows + 1, self.bytes);
        let lines = std::mem::replace(&mut self.lines, next).finish();
        let columns: Vec<ArrayRef> = match self.schema.fields().len() {
            0 => Vec::new(),
            _ => vec![Arc::new(lines)],
        };
        self.bytes = 0;
        record_batch(&self.schema, columns, std::mem::take(&mut self.rows))
    }
}

/// A record that is no text.
pub(super) fn not_utf8(error: &std::str::Utf8Error) -> Reason {
    Reason::new(format!("invalid UTF-8 at byte {} of the record", error.valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, AsArray};

    #[test]
    fn every_line_is_a_row_but_one_that_is_no_text() {
        let mut decoder = TextDecoder::new(&StreamSchema::append(vec![line_column()]), 10);
        for line in ["a", "", "ä\r", "\0"] {
            decoder.push(line.as_bytes()).expect(line);
        }
        // Two halves of one letter do not make up for each other.
        assert_eq!(decoder.push(b"x\xC3").expect_err("cut off").to_string(), "invalid UTF-8 at byte 1 of the record");
        assert!(decoder.push(b"\xA4").is_err());
        let batch = decoder.take().expect("a batch");
        let lines: Vec<&str> = batch.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(lines, ["a", "", "ä\r", "\0"]);
        assert_eq!(batch.column(0).null_count(), 0);
        assert_eq!(decoder.rows(), 0);
    }
}
