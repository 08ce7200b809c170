//! Where checkpoints and files go: named by a URI, written so that a crash leaves all of a file or none of it.
//!
//! Must never know what is stored. Invariant: when a write returns, its bytes survive a power failure under their final name, and
//! until then nothing is visible under it. Names are taken as given: nothing is percent-decoded or encoded.

mod draft;
mod error;
mod files;
mod idle;
mod leftovers;
mod local_file;
mod location;
mod objects;
mod options;
mod parts;
mod retry;
mod s3;
mod staged;

pub mod contract;
pub mod durable;
pub mod power;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;

pub use draft::Draft;
pub use error::StorageError;
pub use leftovers::Leftover;
pub use local_file::LocalFile;
pub use location::Location;
pub use options::{S3Keys, S3Options, StorageOptions};
pub use retry::{Pauses, retried};
pub use staged::{Staged, StagedWriter, Staging, Upload};

use files::Files;
use objects::{Objects, Store};
use retry::tried;

/// Tries of each step of a probe.
const PROBE_TRIES: u32 = 3;

/// A file in a storage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// Its path below the storage's root, with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// A place for files, below the root that its URI names.
///
/// Paths are relative, with `/`, without empty, `.` and `..` parts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Storage {
    uri: Arc<str>,
    backend: Backend,
}

#[derive(Debug, Clone)]
enum Backend {
    Files(Files),
    Objects(Objects),
}

/// Calls the backend's method of this name.
macro_rules! backend {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match &$self.backend {
            Backend::Files(files) => files.$method($($argument),*).await,
            Backend::Objects(objects) => objects.$method($($argument),*).await,
        }
    };
}

impl Storage {
    /// The storage at `uri`, reached as this process is told to; touches nothing yet.
    ///
    /// Errors: the URI has no scheme, no bucket, no path, names the root directory, or a scheme that this release does not know;
    /// a setting does not fit.
    pub fn open(uri: &str) -> Result<Self, StorageError> {
        Self::open_with(uri, &StorageOptions::of_process())
    }

    /// The storage at `uri`, reached as `options` say.
    pub fn open_with(uri: &str, options: &StorageOptions) -> Result<Self, StorageError> {
        Self::at(uri, Location::parse(uri)?, options)
    }

    /// The storage that holds the file or glob `uri`, at its root, and the path there.
    ///
    /// Errors: as `open`.
    pub fn open_file(uri: &str) -> Result<(Self, String), StorageError> {
        let (location, path) = Location::parse_file(uri)?;
        let root = uri.strip_suffix(path.as_str()).unwrap_or(uri);
        Ok((Self::at(root, location, &StorageOptions::of_process())?, path))
    }

    fn at(uri: &str, location: Location, options: &StorageOptions) -> Result<Self, StorageError> {
        let backend = match location {
            Location::File(root) => Backend::Files(Files::new(root, Arc::new(durable::RealFileSystem))),
            Location::S3 { bucket, path } => {
                Backend::Objects(Objects::new(Store::S3(s3::Bucket::open(uri, &bucket, &options.s3)?), uri, &path))
            }
            Location::Hdfs { name_node, path } => Backend::Objects(Objects::new(Store::hdfs(uri, &name_node)?, uri, &path)),
        };
        Ok(Self { uri: uri.into(), backend })
    }

    /// A storage in memory, for tests; clones share it.
    pub fn in_memory() -> Self {
        let uri = "memory:///";
        Self { uri: uri.into(), backend: Backend::Objects(Objects::new(Store::Memory(InMemory::new()), uri, "")) }
    }

    fn objects(&self) -> Option<&Objects> {
        match &self.backend {
            Backend::Files(_) => None,
            Backend::Objects(objects) => Some(objects),
        }
    }

    /// The URI that it was opened with.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The directory of a storage on the local file system.
    pub fn local_root(&self) -> Option<PathBuf> {
        match &self.backend {
            Backend::Files(files) => Some(files.root().to_owned()),
            Backend::Objects(_) => None,
        }
    }

    /// Writes a file, replacing one of the same path: all of it or nothing, durable when this returns.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        check_path(path)?;
        backend!(self.put(path, bytes))
    }

    /// Writes a file as `put` does, but never over another one.
    ///
    /// Errors: `AlreadyExists`, which leaves the other one untouched.
    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        check_path(path)?;
        backend!(self.put_new(path, bytes))
    }

    /// Writes a copy of a local file as `put` does; few of its bytes are in memory.
    pub async fn put_file(&self, path: &str, file: &LocalFile) -> Result<(), StorageError> {
        check_path(path)?;
        backend!(self.put_file(path, file))
    }

    /// Reads a file.
    ///
    /// Errors: `NotFound` where there is none.
    pub async fn get(&self, path: &str) -> Result<Bytes, StorageError> {
        check_path(path)?;
        backend!(self.get(path))
    }

    /// Reads the bytes `range` of a file.
    ///
    /// Errors: `NotFound`; `Truncated` where the file ends before the range does.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        check_path(path)?;
        let wanted = range.end.saturating_sub(range.start);
        let bytes = backend!(self.get_range(path, range.clone()))?;
        if bytes.len() as u64 != wanted {
            return Err(StorageError::Truncated { path: path.into(), wanted, found: bytes.len() as u64 });
        }
        Ok(bytes)
    }

    /// The size of a file.
    ///
    /// Errors: `NotFound` where there is none, or a directory.
    pub async fn size(&self, path: &str) -> Result<u64, StorageError> {
        check_path(path)?;
        backend!(self.size(path))
    }

    /// The files below the directory `prefix` (all files for an empty one), at any depth, in the order of paths; none where the
    /// directory does not exist. Files still being written are not among them.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Stored>, StorageError> {
        check_prefix(prefix)?;
        let mut files = backend!(self.list(prefix))?;
        files.sort_unstable();
        Ok(files)
    }

    /// Deletes a file; fine where there is none.
    pub async fn delete(&self, path: &str) -> Result<(), StorageError> {
        check_path(path)?;
        backend!(self.delete(path))
    }

    /// Deletes the directory `prefix` with everything below it, leftovers of crashed writes included (on S3 uploads that were
    /// never completed); fine where there is none.
    pub async fn delete_all(&self, prefix: &str) -> Result<(), StorageError> {
        check_path(prefix)?;
        backend!(self.delete_all(prefix))
    }

    /// Checks at a job's submission that everything that a checkpoint needs works here: to write a file that is not there, and
    /// not over one that is; to list, read and delete.
    ///
    /// Contract: bounded by the caller. Errors: the first that is met; `Unreliable` where the storage says yes and does not.
    pub async fn probe(&self) -> Result<(), StorageError> {
        let folder = format!("probe-{}", uuid::Uuid::new_v4().simple());
        let path = format!("{folder}/probe");
        let bytes = Bytes::from_static(b"levada");
        let unreliable = |what| Err(StorageError::Unreliable { uri: self.uri.to_string(), what });
        match tried(PROBE_TRIES, || self.put_new(&path, bytes.clone())).await {
            // A try that failed for the caller only: nobody else has this name.
            Err(StorageError::AlreadyExists { .. }) => {}
            written => written?,
        }
        match tried(PROBE_TRIES, || self.put_new(&path, Bytes::new())).await {
            Err(StorageError::AlreadyExists { .. }) => {}
            Ok(()) => return unreliable("a file is replaced by one that must not replace it"),
            Err(error) => return Err(error),
        }
        let listed = tried(PROBE_TRIES, || self.list(&folder)).await?;
        if listed != [Stored { path: path.clone(), bytes: bytes.len() as u64 }] {
            return unreliable("a file just written is not listed");
        }
        if tried(PROBE_TRIES, || self.get(&path)).await? != bytes {
            return unreliable("a file just written reads otherwise");
        }
        tried(PROBE_TRIES, || self.delete_all(&folder)).await?;
        if !tried(PROBE_TRIES, || self.list(&folder)).await?.is_empty() {
            return unreliable("a file just deleted is still listed");
        }
        Ok(())
    }
}

fn check_prefix(prefix: &str) -> Result<(), StorageError> {
    if prefix.is_empty() { Ok(()) } else { check_path(prefix) }
}

fn check_path(path: &str) -> Result<(), StorageError> {
    let is_bad = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
    if path.split('/').any(is_bad) {
        return Err(StorageError::BadPath { path: path.into() });
    }
    Ok(())
}
