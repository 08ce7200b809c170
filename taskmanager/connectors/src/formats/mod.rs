//! Formats: what a record's bytes mean.

pub mod ndjson;
pub mod text;

use std::fmt;

use arrow::record_batch::RecordBatch;
use levada_common::types::{Column, StreamSchema};

use crate::batch::BATCH_BYTES_MAX;
use crate::error::ConnectorError;
use crate::options::OptionReader;

/// Why a record is bad: what was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(pub(crate) String);

impl Reason {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How records are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// A line is a row: `line STRING NOT NULL`.
    Text,
    /// A line is a JSON object, with these columns.
    Ndjson(Vec<Column>),
}

impl Format {
    /// Names of the options that `read` reads.
    pub const OPTIONS: [&str; 2] = ["format", "columns"];

    /// Reads `format` and `columns`.
    pub fn read(reader: &mut OptionReader<'_>) -> Option<Self> {
        reader.require("format", "text or ndjson");
        match reader.choice("format", &["text", "ndjson"])? {
            "text" => {
                if reader.has("columns") {
                    reader.defect(
                        "columns",
                        "text has one column, `line STRING NOT NULL`; leave `columns` out, or set `format: ndjson`",
                    );
                }
                Some(Self::Text)
            }
            _ => {
                reader.require("columns", "name the columns of the objects and their types, such as `price: INT64 NOT NULL`");
                Some(Self::Ndjson(reader.columns("columns")))
            }
        }
    }

    /// The columns that it gives.
    pub fn columns(&self) -> Vec<Column> {
        match self {
            Self::Text => vec![text::line_column()],
            Self::Ndjson(columns) => columns.clone(),
        }
    }
}

/// Makes rows of records.
pub enum Decoder {
    /// Of lines.
    Text(text::TextDecoder),
    /// Of JSON objects.
    Ndjson(Box<ndjson::read::NdjsonDecoder>),
}

impl Decoder {
    /// A decoder that gives `schema`, a part of the format's columns.
    pub fn new(format: &Format, schema: &StreamSchema, rows_max: usize) -> Self {
        let rows_max = rows_max.max(1);
        match format {
            Format::Text => Self::Text(text::TextDecoder::new(schema, rows_max)),
            Format::Ndjson(columns) => Self::Ndjson(Box::new(ndjson::read::NdjsonDecoder::new(columns, schema, rows_max))),
        }
    }

    /// Takes a record.
    ///
    /// Errors: why it is bad; nothing of it is kept.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), Reason> {
        match self {
            Self::Text(decoder) => decoder.push(record),
            Self::Ndjson(decoder) => decoder.push(record),
        }
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        match self {
            Self::Text(decoder) => decoder.rows(),
            Self::Ndjson(decoder) => decoder.rows(),
        }
    }

    /// Whether the rows that wait are a full batch.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Text(decoder) => decoder.rows() >= decoder.rows_max() || decoder.bytes() >= BATCH_BYTES_MAX,
            Self::Ndjson(decoder) => decoder.rows() >= decoder.rows_max() || decoder.bytes() >= BATCH_BYTES_MAX,
        }
    }

    /// The rows that wait.
    pub fn take(&mut self) -> Result<RecordBatch, ConnectorError> {
        match self {
            Self::Text(decoder) => decoder.take(),
            Self::Ndjson(decoder) => decoder.take(),
        }
    }
}
