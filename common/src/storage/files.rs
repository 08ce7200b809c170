//! A storage on the local file system.
//!
//! Not object_store's own: that never syncs, and refuses names such as `#1`. Blocking calls run on tokio's blocking pool.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::durable::{self, FileSystem, Replace, Wanted, Writing};
use super::{StorageError, Stored};

/// How the names of files being written begin; no file of a storage has such a name.
const TEMPORARY_PREFIX: &str = ".levada-tmp-";

/// Files below a directory.
#[derive(Debug, Clone)]
pub(super) struct Files {
    root: Arc<Path>,
    fs: Arc<dyn FileSystem>,
}

impl Files {
    pub fn new(root: PathBuf, fs: Arc<dyn FileSystem>) -> Self {
        Self { root: root.into(), fs }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.write(path, bytes, Replace::Yes).await
    }

    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.write(path, bytes, Replace::No).await
    }

    pub async fn get(&self, path: &str) -> Result<Bytes, StorageError> {
        self.run("read", path, |path| fs::read(path).map(Bytes::from)).await
    }

    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        let read = move |path: &Path| {
            let mut file = fs::File::open(path)?;
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
            Ok(Bytes::from(bytes))
        };
        self.run("read", path, read).await
    }

    pub async fn size(&self, path: &str) -> Result<u64, StorageError> {
        let size = |path: &Path| match fs::metadata(path)? {
            metadata if metadata.is_file() => Ok(metadata.len()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        self.run("read", path, size).await
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<Stored>, StorageError> {
        let root = Arc::clone(&self.root);
        let list = move |path: &Path| {
            let mut files = Vec::new();
            list_below(&root, path, &mut files)?;
            Ok(files)
        };
        self.run("list", prefix, list).await
    }

    pub async fn delete(&self, path: &str) -> Result<(), StorageError> {
        let fs = Arc::clone(&self.fs);
        self.run("delete", path, move |path| found(fs.remove(path))).await
    }

    pub async fn delete_all(&self, prefix: &str) -> Result<(), StorageError> {
        let fs = Arc::clone(&self.fs);
        self.run("delete", prefix, move |path| found(remove_all(&*fs, path))).await
    }

    async fn write(&self, path: &str, bytes: Bytes, replace: Replace) -> Result<(), StorageError> {
        let fs = Arc::clone(&self.fs);
        // The thread goes on when this future is dropped.
        let (wanted, _waiting) = Wanted::new();
        let write = move |path: &Path| {
            let temporary = path.with_file_name(format!("{TEMPORARY_PREFIX}{}", uuid::Uuid::new_v4().simple()));
            let file = Writing { temporary: &temporary, path, bytes: &bytes, replace };
            durable::write_on(&*fs, &file, &wanted)
        };
        self.run("write", path, write).await
    }

    /// Runs a blocking operation on a path of this storage.
    async fn run<T, F>(&self, action: &'static str, path: &str, operation: F) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> io::Result<T> + Send + 'static,
    {
        let full = if path.is_empty() { self.root.to_path_buf() } else { self.root.join(path) };
        let shown = full.display().to_string();
        let done = tokio::task::spawn_blocking(move || operation(&full)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if action == "read" => StorageError::NotFound { path: shown },
            io::ErrorKind::AlreadyExists => StorageError::AlreadyExists { path: shown },
            _ => StorageError::Io { action, path: shown, source },
        })
    }
}

/// What is not there need not be deleted.
fn found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Removes a directory with all that is in it.
fn remove_all(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        found(if entry.file_type()?.is_dir() { remove_all(fs, &path) } else { fs.remove(&path) })?;
    }
    fs.remove_dir(dir)
}

/// Directories and files that vanish meanwhile are left out, as are names that are no UTF-8: a storage writes none.
fn list_below(root: &Path, dir: &Path, files: &mut Vec<Stored>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_temporary = entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes());
        let metadata = match fs::metadata(entry.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            list_below(root, &entry.path(), files)?;
        } else if !is_temporary && let Some(path) = entry.path().strip_prefix(root).ok().and_then(Path::to_str) {
            files.push(Stored { path: path.to_owned(), bytes: metadata.len() });
        }
    }
    Ok(())
}
