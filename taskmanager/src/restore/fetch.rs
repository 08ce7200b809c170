//! Fetching a stretch of a file to the disk, part by part: it never comes into memory whole.

use std::fs::File;
use std::io::{self, Write};

use levada_common::storage::{Storage, StorageError};

use super::{parts, read_part};

/// Why a stretch was not fetched.
pub(super) enum Unfetched {
    /// The storage failed, behind so many bytes.
    Read(StorageError, u64),
    /// It gave only so many bytes.
    Short(u64),
    /// The disk failed.
    Write(io::Error),
}

/// Fetches `length` bytes from `offset` of a file on into `file`, and answers that with the CRC-32C of the bytes.
pub(super) async fn fetch(
    storage: &Storage,
    path: &str,
    (offset, length): (u64, u64),
    mut file: File,
) -> Result<(File, u32), Unfetched> {
    let mut crc32c = 0;
    for range in parts(offset, length) {
        let before = range.start - offset;
        let part = read_part(storage, path, range.clone()).await.map_err(|error| Unfetched::Read(error, before))?;
        if part.len() as u64 != range.end - range.start {
            return Err(Unfetched::Short(before + part.len() as u64));
        }
        let written = tokio::task::spawn_blocking(move || {
            let sum = crc32c::crc32c_append(crc32c, &part);
            file.write_all(&part).map(|()| (file, sum))
        });
        let written = written.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        (file, crc32c) = written.map_err(Unfetched::Write)?;
    }
    Ok((file, crc32c))
}
