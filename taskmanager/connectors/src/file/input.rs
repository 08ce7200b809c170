//! Bytes of a file at a place, wherever the file is; blocking, for the reader's thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use levada_common::storage::{Storage, StorageError, retried};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::ahead;
use super::place::{self, Place};
use super::split::FileSplit;
use crate::error::ConnectorError;

/// How long a request is tried: then the task fails, and is restarted where the job's policy says so.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A file that is open for reading.
pub(super) enum Input {
    /// On this machine.
    Local(File),
    /// In a storage.
    Remote(Box<RemoteFile>),
}

/// A file in a storage. What is read in order was asked for ahead.
pub(super) struct RemoteFile {
    handle: Handle,
    storage: Storage,
    path: String,
    length: u64,
    /// Where the next bytes that were asked for ahead begin.
    at: u64,
    /// Those that came and were not read.
    rest: Bytes,
    ahead: BoxStream<'static, Result<Bytes, StorageError>>,
}

impl Input {
    /// Opens a split's file, and makes sure that it still has what was listed of it.
    ///
    /// Contract: called on a thread that may block, within the IO runtime.
    pub fn open(split: &FileSplit) -> Result<Self, ConnectorError> {
        let path = || split.path.clone();
        let missing = || ConnectorError::MissingFile { path: path(), position: split.position.unwrap_or(split.start) };
        let text = split.path.to_str().expect("paths of splits are UTF-8");
        let (input, length) = match Place::parse_file(text)? {
            Place::Local(local) => {
                let file = File::open(&local).map_err(|source| match source.kind() {
                    io::ErrorKind::NotFound => missing(),
                    _ => ConnectorError::Io { attempt: "open", path: path(), source },
                })?;
                let metadata = file.metadata().map_err(|source| ConnectorError::Io { attempt: "open", path: path(), source })?;
                (Self::Local(file), metadata.len())
            }
            Place::Remote(uri) => {
                let file = RemoteFile::open(&uri).map_err(|error| match error {
                    ConnectorError::Storage { source } if source.is_not_found() => missing(),
                    error => error,
                })?;
                let length = file.length;
                (Self::Remote(Box::new(file)), length)
            }
        };
        if length < split.end {
            return Err(ConnectorError::ShrunkenFile { path: path(), length, expected: split.end });
        }
        Ok(input)
    }

    /// Fills the buffer from `at` on; answers how many bytes, fewer only at the file's end.
    pub fn read_full(&mut self, path: &Path, buffer: &mut [u8], at: u64) -> Result<usize, ConnectorError> {
        match self {
            Self::Local(file) => read_full(file, buffer, at).map_err(|source| ConnectorError::Io {
                attempt: "read",
                path: path.to_path_buf(),
                source,
            }),
            Self::Remote(file) => file.read_full(buffer, at).map_err(|source| ConnectorError::Storage { source }),
        }
    }
}

impl RemoteFile {
    fn open(uri: &str) -> Result<Self, ConnectorError> {
        let handle = Handle::current();
        let (storage, path) = place::open(uri)?;
        let length = handle.block_on(retried(Instant::now() + READ_TIMEOUT, || storage.size(&path)));
        let length = length.map_err(|source| ConnectorError::Storage { source })?;
        let (rest, ahead) = (Bytes::new(), futures::stream::empty().boxed());
        Ok(Self { handle, storage, path, length, at: u64::MAX, rest, ahead })
    }

    fn read_full(&mut self, buffer: &mut [u8], at: u64) -> Result<usize, StorageError> {
        if at != self.at {
            self.start(at);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            if self.rest.is_empty() {
                match self.handle.block_on(self.ahead.next()) {
                    Some(bytes) => self.rest = bytes?,
                    None => break,
                }
            }
            let count = self.rest.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&self.rest.split_to(count));
            filled += count;
            self.at += count as u64;
        }
        Ok(filled)
    }

    /// Begins to ask for what follows `at`.
    fn start(&mut self, at: u64) {
        let (storage, path) = (self.storage.clone(), Arc::<str>::from(self.path.as_str()));
        let get = move |range| {
            let (storage, path) = (storage.clone(), Arc::clone(&path));
            async move { storage.get_range(&path, range).await }
        };
        self.ahead = ahead::ranges(self.handle.clone(), at..self.length, READ_TIMEOUT, get);
        self.rest = Bytes::new();
        self.at = at;
    }
}

fn read_full(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
