//! The bytes of `_metadata`, the file that makes a checkpoint: magic, version, CRC-32C, content.
//!
//! Shape: 8 bytes `LEVADACK`, version u32 LE, CRC-32C u32 LE of all that follows, then `CheckpointMetadataFile` in protobuf.

use bytes::Bytes;
use levada_common::checkpoint::CheckpointMetadata;
use prost::Message;

use crate::convert::{ConvertError, metadata_from_file, metadata_to_file};
use crate::v1;

/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"LEVADACK";

/// Version of what follows the CRC.
pub const VERSION: u32 = 1;

const HEADER_BYTES: usize = 16;

/// Bytes that are not a `_metadata` file of this release.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// It ends before its header does.
    #[error("a _metadata file has at least {HEADER_BYTES} bytes, this one has {found}")]
    Short {
        /// Its length.
        found: usize,
    },
    /// It begins with something else.
    #[error("not a _metadata file: it does not begin with LEVADACK")]
    Magic,
    /// Another release wrote it.
    #[error("the _metadata file has format version {found}, this release reads {VERSION}")]
    Version {
        /// The version in it.
        found: u32,
    },
    /// Its bytes are not those that were written.
    #[error("the _metadata file is damaged: CRC-32C is {found:08x}, written was {expected:08x}")]
    Damaged {
        /// The CRC in it.
        expected: u32,
        /// The CRC of what is there.
        found: u32,
    },
    /// The content cannot be decoded.
    #[error("the content of the _metadata file cannot be decoded")]
    Decode(#[from] prost::DecodeError),
    /// The content says what cannot be.
    #[error("the content of the _metadata file is wrong")]
    Convert(#[from] ConvertError),
}

/// The bytes of `_metadata`.
pub fn encode(metadata: CheckpointMetadata) -> Bytes {
    let content = metadata_to_file(metadata);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + content.encoded_len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    content.encode(&mut bytes).expect("a Vec grows");
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[12..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

/// Reads the bytes of `_metadata`; inline states share them.
pub fn decode(bytes: Bytes) -> Result<CheckpointMetadata, MetadataError> {
    if bytes.len() < HEADER_BYTES {
        return Err(MetadataError::Short { found: bytes.len() });
    }
    if bytes[..8] != MAGIC {
        return Err(MetadataError::Magic);
    }
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (version, expected) = (number(8), number(12));
    if version != VERSION {
        return Err(MetadataError::Version { found: version });
    }
    let content = bytes.slice(HEADER_BYTES..);
    let found = crc32c::crc32c(&content);
    if found != expected {
        return Err(MetadataError::Damaged { expected, found });
    }
    Ok(metadata_from_file(v1::CheckpointMetadataFile::decode(content)?)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levada_common::checkpoint::{Handle, StateHandle, StateKind, TaskSnapshot, VertexOperators};
    use levada_common::ids::{CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, Uid, VertexId};
    use levada_common::keys::KeyGroupRange;

    use super::*;

    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/metadata-1.bin");

    const GOLDEN_SAVEPOINT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/metadata-1-savepoint.bin");

    fn sample() -> CheckpointMetadata {
        let state = |name: &str, kind, subtask, handle| StateHandle {
            uid: Uid::new("counts"),
            name: name.into(),
            kind,
            schema: Arc::default(),
            subtask: SubtaskIndex(subtask),
            key_groups: KeyGroupRange { start: 0, end: 127 },
            rows: 3,
            crc32c: 0x0102_0304,
            handle,
        };
        CheckpointMetadata {
            job: JobId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001),
            epoch: Epoch(1),
            id: CheckpointId(42),
            triggered_at_ms: 1_700_000_000_000,
            max_parallelism: 128,
            savepoint: false,
            vertices: Vec::new(),
            tasks: vec![
                TaskSnapshot {
                    task: TaskId::new(VertexId(0), 0),
                    finished: true,
                    states: vec![state("splits", StateKind::OperatorList, 0, Handle::Inline(Bytes::from_static(b"inline")))],
                },
                TaskSnapshot {
                    task: TaskId::new(VertexId(1), 3),
                    finished: false,
                    states: vec![state(
                        "count",
                        StateKind::Keyed,
                        3,
                        Handle::File { path: "chk-42/1-1-a".into(), offset: 64, length: 4096 },
                    )],
                },
            ],
        }
    }

    /// What release 0.1 wrote is read.
    #[test]
    fn the_first_golden_file_is_read() {
        let golden = std::fs::read(GOLDEN).unwrap();
        assert_eq!(decode(golden.into()).unwrap(), sample());
    }

    /// To make the file anew for a *new* version (old ones are kept): `LEVADA_BLESS=1 cargo test -p levada-proto`.
    #[test]
    fn the_golden_file_of_a_savepoint_is_read_and_written() {
        let vertices = vec![VertexOperators { parallelism: 3, uids: vec![Uid::new("lines"), Uid::new("counts")] }];
        let savepoint = CheckpointMetadata { savepoint: true, vertices, ..sample() };
        if std::env::var_os("LEVADA_BLESS").is_some() {
            std::fs::write(GOLDEN_SAVEPOINT, encode(savepoint.clone())).unwrap();
        }
        let golden = std::fs::read(GOLDEN_SAVEPOINT).unwrap();
        assert_eq!(decode(golden.clone().into()).unwrap(), savepoint);
        assert_eq!(encode(savepoint), golden);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(sample());
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(decode(damaged.into()).is_err(), "bit {at}");
        }
        for length in 0..bytes.len() {
            assert!(decode(bytes.slice(..length)).is_err(), "length {length}");
        }
    }
}
