//! A storage on the local file system.
//!
//! Not object_store's own: that never syncs, and refuses names such as `#1`. Blocking calls run on tokio's blocking pool.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::draft::Beside;
use super::durable::{self, FileSystem, Replace, Wanted, Writing};
use super::{LocalFile, StorageError, Stored};

/// How the names of files being written begin; no file of a storage has such a name. A unique number follows, and the name that the
/// file is to get, where all of that is not too long for a name.
const TEMPORARY_PREFIX: &str = ".levada-tmp-";

/// Digits of the unique number.
const UNIQUE_DIGITS: usize = 32;

/// Most bytes of a name on usual file systems.
const NAME_BYTES_MAX: usize = 255;

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
        self.write(path, Replace::Yes, bytes).await
    }

    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.write(path, Replace::No, bytes).await
    }

    pub async fn put_file(&self, path: &str, from: &LocalFile) -> Result<(), StorageError> {
        let (fs, from) = (Arc::clone(&self.fs), from.clone());
        // The thread goes on when this future is dropped.
        let (wanted, _waiting) = Wanted::new();
        let copy = move |path: &Path| {
            let mut file = Beside::begin(fs, path.to_path_buf())?;
            from.read_through(|bytes| file.write(bytes))?;
            file.finish(&wanted)
        };
        self.run("write", path, copy).await
    }

    /// Begins a file that is to be at `path`. Blocks.
    pub fn begin(&self, path: &str) -> Result<Beside, StorageError> {
        let path = self.root.join(path);
        let shown = path.display().to_string();
        Beside::begin(Arc::clone(&self.fs), path).map_err(|source| failed("write", shown, source))
    }

    /// Puts a file in its place.
    pub async fn finish(&self, path: &str, file: Beside) -> Result<(), StorageError> {
        // The thread goes on when this future is dropped.
        let (wanted, _waiting) = Wanted::new();
        self.run("write", path, move |_| file.finish(&wanted)).await
    }

    pub async fn get(&self, path: &str) -> Result<Bytes, StorageError> {
        self.run("read", path, |path| fs::read(path).map(Bytes::from)).await
    }

    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        let read = move |path: &Path| {
            let mut file = fs::File::open(path)?;
            let end = range.end.min(file.metadata()?.len());
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::with_capacity(end.saturating_sub(range.start) as usize);
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
            files.retain(|file| !is_temporary(&file.path));
            Ok(files)
        };
        self.run("list", prefix, list).await
    }

    /// The files below a directory that are being written, or were when their writer was lost: the path that each is to get, where
    /// its name says it, and its own.
    pub async fn begun(&self, prefix: &str) -> Result<Vec<(String, String)>, StorageError> {
        let root = Arc::clone(&self.root);
        let list = move |path: &Path| {
            let mut files = Vec::new();
            list_below(&root, path, &mut files)?;
            Ok(files.into_iter().filter_map(|file| Some((path_of_temporary(&file.path)?, file.path))).collect())
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

    async fn write(&self, path: &str, replace: Replace, bytes: Bytes) -> Result<(), StorageError> {
        let fs = Arc::clone(&self.fs);
        // The thread goes on when this future is dropped.
        let (wanted, _waiting) = Wanted::new();
        let write = move |path: &Path| {
            let temporary = temporary_path(path);
            durable::write_on(&*fs, &Writing { temporary: &temporary, path, bytes: &bytes, replace }, &wanted)
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
        done.map_err(|source| failed(action, shown, source))
    }
}

fn failed(action: &'static str, path: String, source: io::Error) -> StorageError {
    match source.kind() {
        io::ErrorKind::NotFound if action == "read" => StorageError::NotFound { path },
        io::ErrorKind::AlreadyExists => StorageError::AlreadyExists { path },
        _ => StorageError::Io { action, path, source },
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

/// The name under which a file is written that is to get `path`.
pub(super) fn temporary_path(path: &Path) -> PathBuf {
    let mut name = format!("{TEMPORARY_PREFIX}{}", uuid::Uuid::new_v4().simple());
    let wanted = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.len() + 1 + wanted.len() <= NAME_BYTES_MAX {
        name.push('-');
        name.push_str(wanted);
    }
    path.with_file_name(name)
}

fn is_temporary(path: &str) -> bool {
    path.rsplit_once('/').map_or(path, |(_, name)| name).starts_with(TEMPORARY_PREFIX)
}

/// The path that a file being written is to get, where its name says it.
fn path_of_temporary(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').map_or((None, path), |(folder, name)| (Some(folder), name));
    let (unique, wanted) = name.strip_prefix(TEMPORARY_PREFIX)?.split_once('-')?;
    let is_one = unique.len() == UNIQUE_DIGITS && !wanted.is_empty();
    is_one.then(|| folder.map_or_else(|| wanted.to_owned(), |folder| format!("{folder}/{wanted}")))
}

/// All files, those being written too. Directories and files that vanish meanwhile are left out, as are names that are no UTF-8: a
/// storage writes none.
fn list_below(root: &Path, dir: &Path, files: &mut Vec<Stored>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let metadata = match fs::metadata(entry.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            list_below(root, &entry.path(), files)?;
        } else if let Some(path) = entry.path().strip_prefix(root).ok().and_then(Path::to_str) {
            files.push(Stored { path: path.to_owned(), bytes: metadata.len() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_says_what_it_is_to_be() {
        for path in ["a", "shared/1-12-0190", "chk-1/a-b c"] {
            let temporary = temporary_path(Path::new(path)).display().to_string();
            assert!(is_temporary(&temporary), "{temporary}");
            assert_eq!(path_of_temporary(&temporary).as_deref(), Some(path));
        }
        for (length, says_it) in [(210, true), (211, false), (255, false)] {
            let temporary = temporary_path(&Path::new("out").join("x".repeat(length))).display().to_string();
            assert!(temporary.len() <= "out/".len() + NAME_BYTES_MAX && is_temporary(&temporary), "{length}");
            assert_eq!(path_of_temporary(&temporary).is_some(), says_it, "{length}");
        }
        for other in ["a", "shared/.levada-tmp-1", "shared/.levada-tmp-1-a", "shared/.levada-tmp-"] {
            assert_eq!(path_of_temporary(other), None, "{other}");
        }
    }
}
