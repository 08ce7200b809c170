//! The bytes of a state, compared with what was noted before anyone looks into them.

use std::ops::Range;

use ::bytes::Bytes;
use levada_common::checkpoint::{Handle, StateHandle};
use levada_common::storage::{Storage, StorageError};

use super::SnapshotError;

/// States up to this size are read once and kept; larger ones are read twice, in parts: for their checksum, then for their rows.
pub const WHOLE_MAX: u64 = 64 << 20;

/// Bytes of a part.
const PART_BYTES: u64 = 4 << 20;

/// The bytes of one state, whole and as they were written.
#[derive(Debug)]
pub struct Checked {
    length: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Bytes),
    File { storage: Storage, path: String, offset: u64 },
}

impl Checked {
    /// Reads the bytes of `handle` and compares length and CRC-32C.
    ///
    /// Contract: the handle is no database. Errors: `Damaged` where they differ, `Unreadable` where the storage fails.
    pub async fn read(storage: &Storage, handle: &StateHandle) -> Result<Self, SnapshotError> {
        let length = handle.handle.length();
        let place = match &handle.handle {
            Handle::Inline(bytes) => {
                compare(handle, crc32c::crc32c(bytes))?;
                Place::Memory(bytes.clone())
            }
            Handle::File { path, offset, .. } if length <= WHOLE_MAX => {
                let bytes = part(storage, handle, path, *offset..*offset + length).await?;
                compare(handle, crc32c::crc32c(&bytes))?;
                Place::Memory(bytes)
            }
            Handle::File { path, offset, .. } => {
                let (mut crc32c, mut at, end) = (0, *offset, *offset + length);
                while at < end {
                    let next = (at + PART_BYTES).min(end);
                    crc32c = crc32c::crc32c_append(crc32c, &part(storage, handle, path, at..next).await?);
                    at = next;
                }
                compare(handle, crc32c)?;
                Place::File { storage: storage.clone(), path: path.clone(), offset: *offset }
            }
            Handle::Database { .. } => unreachable!("a database has files of its own, read by its reader"),
        };
        Ok(Self { length, place })
    }

    /// Number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Some of them.
    ///
    /// Contract: `range` lies within `0..length()`.
    pub async fn range(&self, range: Range<u64>) -> Result<Bytes, StorageError> {
        match &self.place {
            Place::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Place::File { storage, path, offset } => storage.get_range(path, offset + range.start..offset + range.end).await,
        }
    }
}

fn compare(handle: &StateHandle, found: u32) -> Result<(), SnapshotError> {
    let noted = handle.crc32c;
    if found == noted {
        return Ok(());
    }
    Err(SnapshotError::damaged(handle, format!("CRC-32C is {found:08x}, {noted:08x} was noted when it was written")))
}

async fn part(storage: &Storage, handle: &StateHandle, path: &str, range: Range<u64>) -> Result<Bytes, SnapshotError> {
    storage.get_range(path, range.clone()).await.map_err(|error| match error {
        StorageError::Truncated { found, .. } => {
            let (end, needed) = (range.start + found, handle_end(&handle.handle));
            SnapshotError::damaged(handle, format!("it ends at byte {end}, the state reaches to byte {needed}"))
        }
        error => SnapshotError::unreadable(handle, error),
    })
}

fn handle_end(handle: &Handle) -> u64 {
    match handle {
        Handle::File { offset, length, .. } => offset + length,
        Handle::Inline(_) | Handle::Database { .. } => handle.length(),
    }
}
