//! From a file back to the rows of a state.

use std::io::Cursor;

use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::keys::KeyGroupRange;

use super::index::{from_json, spans_in};
use super::{FORMAT_VERSION, GROUPS_FIELD, from_metadata};
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

/// Compares the bytes with the CRC-32C that was noted when they were written.
///
/// Contract: to be called before `decode`, which trusts its bytes.
pub fn verify(bytes: &[u8], expected: u32) -> Result<(), Corrupt> {
    let found = crc32c::crc32c(bytes);
    if found == expected { Ok(()) } else { Err(Corrupt { expected, found }) }
}

/// Reads a whole state.
pub fn decode(bytes: Bytes) -> Result<DecodedState, DecodeError> {
    let mut file = File::open(bytes)?;
    let batches = (0..file.reader.num_batches()).map(|batch| file.batch(batch)).collect::<Result<_, _>>()?;
    Ok(DecodedState { meta: file.meta, max_parallelism: file.max_parallelism, batches })
}

/// Reads the rows of the key groups in `range`, and only the batches that have any. Operator state is read whole.
pub fn decode_range(bytes: Bytes, range: KeyGroupRange) -> Result<DecodedState, DecodeError> {
    let mut file = File::open(bytes)?;
    let Some(text) = file.reader.custom_metadata().get(GROUPS_FIELD) else {
        let batches = (0..file.reader.num_batches()).map(|batch| file.batch(batch)).collect::<Result<_, _>>()?;
        return Ok(DecodedState { meta: file.meta, max_parallelism: file.max_parallelism, batches });
    };
    let bad = |reason: &str| DecodeError::Metadata { field: GROUPS_FIELD, found: reason.into() };
    let spans = from_json(text).ok_or_else(|| bad("no list of [group, batch, row, rows]"))?;
    let mut batches = Vec::new();
    for (batch, row, rows) in spans_in(&spans, range) {
        let whole = file.batch(batch as usize)?;
        if row as usize + rows as usize > whole.num_rows() {
            return Err(bad("rows that are not there"));
        }
        batches.push(whole.slice(row as usize, rows as usize));
    }
    Ok(DecodedState { meta: file.meta, max_parallelism: file.max_parallelism, batches })
}

/// An open file.
struct File {
    meta: StateMeta,
    max_parallelism: u32,
    bytes: usize,
    reader: FileReader<Cursor<Bytes>>,
}

impl File {
    fn open(bytes: Bytes) -> Result<Self, DecodeError> {
        let size = bytes.len();
        let reader =
            FileReader::try_new(Cursor::new(bytes), None).map_err(|source| DecodeError::Arrow { bytes: size, source })?;
        let (meta, max_parallelism) = from_metadata(reader.schema().metadata())?;
        Ok(Self { meta, max_parallelism, bytes: size, reader })
    }

    fn batch(&mut self, batch: usize) -> Result<RecordBatch, DecodeError> {
        let fail = |source| DecodeError::Arrow { bytes: self.bytes, source };
        self.reader.set_index(batch).map_err(fail)?;
        match self.reader.next() {
            Some(rows) => rows.map_err(fail),
            None => Err(fail(ArrowError::IpcError(format!("batch {batch} is not there")))),
        }
    }
}
