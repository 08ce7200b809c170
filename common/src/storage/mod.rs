//! Where checkpoints and files go: named by a URI, written so that a crash leaves all of a file or none of it.
//!
//! Must never know what is stored. Invariant: when a write returns, its bytes survive a power failure under their final name, and
//! until then nothing is visible under it. Names are taken as given: nothing is percent-decoded or encoded.

mod error;
mod files;
mod location;
mod objects;

pub mod durable;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;

pub use error::StorageError;
pub use location::Location;

use files::Files;
use objects::Objects;

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
    /// The storage at `uri`; touches nothing yet.
    ///
    /// Errors: the URI has no scheme, no path, names the root directory, or a scheme that this release does not know.
    pub fn open(uri: &str) -> Result<Self, StorageError> {
        let Location::File(root) = Location::parse(uri)?;
        Ok(Self { uri: uri.into(), backend: Backend::Files(Files::new(root, Arc::new(durable::RealFileSystem))) })
    }

    /// A storage in memory, for tests; clones share it.
    pub fn in_memory() -> Self {
        Self::on_objects("memory:///", Arc::new(InMemory::new()))
    }

    fn on_objects(uri: &str, store: Arc<dyn ObjectStore>) -> Self {
        Self { uri: uri.into(), backend: Backend::Objects(Objects::new(store)) }
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

    /// Deletes the directory `prefix` with everything below it, leftovers of crashed writes included; fine where there is none.
    pub async fn delete_all(&self, prefix: &str) -> Result<(), StorageError> {
        check_path(prefix)?;
        backend!(self.delete_all(prefix))
    }

    /// Checks at a job's submission that everything that a checkpoint needs works here: write, rename, list, read, delete.
    pub async fn probe(&self) -> Result<(), StorageError> {
        let path = format!("probe-{}", uuid::Uuid::new_v4().simple());
        let bytes = Bytes::from_static(b"levada");
        self.put_new(&path, bytes.clone()).await?;
        self.put(&path, bytes.clone()).await?;
        let listed = self.list("").await?.iter().any(|stored| stored.path == path);
        let read = self.get(&path).await?;
        self.delete(&path).await?;
        if !listed || read != bytes {
            return Err(StorageError::Unreliable { uri: self.uri.to_string() });
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
