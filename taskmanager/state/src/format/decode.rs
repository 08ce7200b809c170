//! From a file back to the rows of a state.

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::keys::KeyGroupRange;

use super::index::spans_in;
use super::{FORMAT_VERSION, FileBytes, GROUPS_FIELD, Layout, TRAILER_BYTES, footer_range};
use crate::snapshot::StateMeta;

/// A state as it stands in a file.
#[derive(Debug, Clone)]
pub struct DecodedState {
    /// Its name and kind.
    pub meta: StateMeta,
    /// Number of key groups of the job that wrote it.
    pub max_parallelism: u32,
    /// Its rows: shape as in the module's text.
    pub batches: Vec<RecordBatch>,
}

/// Why bytes are no state that can be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Another version.
    #[error(
        "the state has format version {found}, this is version {FORMAT_VERSION}; restore it with a release that reads {found}"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// Metadata is missing or no sense.
    #[error("the state's metadata has {found} as {field}")]
    Metadata {
        /// Which.
        field: &'static str,
        /// What stands there.
        found: String,
    },
    /// It is no Arrow file, or a damaged one.
    #[error("the state is not a readable Arrow file of {bytes} bytes")]
    Arrow {
        /// Its size.
        bytes: usize,
        /// Why.
        #[source]
        source: ArrowError,
    },
}

/// The bytes are not those that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the state's checksum is {found:08x}, {expected:08x} was written: its bytes are damaged")]
pub struct Corrupt {
    /// CRC-32C that was noted when it was written.
    pub expected: u32,
    /// CRC-32C of what is here.
    pub found: u32,
}

/// Reads a whole state.
pub fn decode(bytes: Bytes) -> Result<DecodedState, DecodeError> {
    let (bytes, layout) = open(bytes.into())?;
    let batches = (0..layout.batches()).map(|batch| layout.decode(batch, bytes.range(layout.range(batch)))).collect();
    decoded(&layout, batches)
}

/// Reads the rows of the key groups in `range`, and only the batches that have any. Operator state is read whole.
pub fn decode_range(bytes: impl Into<FileBytes>, range: KeyGroupRange) -> Result<DecodedState, DecodeError> {
    let (bytes, layout) = open(bytes.into())?;
    let batch = |batch: usize| layout.decode(batch, bytes.range(layout.range(batch)));
    let Some(spans) = layout.spans() else {
        return decoded(&layout, (0..layout.batches()).map(batch).collect());
    };
    let bad = |reason: &str| DecodeError::Metadata { field: GROUPS_FIELD, found: reason.into() };
    let of_spans = spans_in(spans, range).into_iter().map(|(at, row, rows)| {
        if at as usize >= layout.batches() {
            return Err(bad("a batch that is not there"));
        }
        let whole = batch(at as usize)?;
        match row as usize + rows as usize <= whole.num_rows() {
            true => Ok(whole.slice(row as usize, rows as usize)),
            false => Err(bad("rows that are not there")),
        }
    });
    decoded(&layout, of_spans.collect())
}

fn open(bytes: FileBytes) -> Result<(FileBytes, Layout), DecodeError> {
    let length = bytes.length();
    let trailer = bytes.range(length.saturating_sub(TRAILER_BYTES)..length);
    let footer = bytes.range(footer_range(&trailer, length)?);
    let layout = Layout::read(&footer, length)?;
    Ok((bytes, layout))
}

fn decoded(layout: &Layout, batches: Result<Vec<RecordBatch>, DecodeError>) -> Result<DecodedState, DecodeError> {
    Ok(DecodedState { meta: layout.meta().clone(), max_parallelism: layout.max_parallelism(), batches: batches? })
}
