//! Writing to the local file system so that it survives a power failure: plain blocking functions, also for sinks.
//!
//! A file is durable once its bytes are synced *and* the directory that names it; a rename, once the directory is. The operations
//! stand behind a trait so that a recording file system can assert their order.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Makes the names in a directory durable: of files created, renamed or deleted in it.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Gives a file another name, durably; replaces a file that has it.
///
/// Contract: the file's bytes are synced already.
pub fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    rename_on(&RealFileSystem, from, to)
}

/// Creates a directory and those above it, each durably; fine where it exists.
pub fn create_dir_durably(path: &Path) -> io::Result<()> {
    create_dir_on(&RealFileSystem, path)
}

/// ENOTDIR.
const NOT_A_DIRECTORY: i32 = 20;

/// The directory that holds `path`.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file being written.
pub(super) trait NewFile: Send {
    /// Writes bytes at its end.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes them durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The operations of a file system whose order matters for durability.
pub(super) trait FileSystem: fmt::Debug + Send + Sync {
    /// Creates a file that must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Gives a file another name, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must be free.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory; its parent exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Whether there is a directory.
    fn is_dir(&self, path: &Path) -> bool;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Whether a file may replace another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replace {
    Yes,
    No,
}

/// Whether somebody still waits for a write. Locked while a file gets its name: who gives a write up knows afterwards whether the
/// file is there, and that it will not come later.
#[derive(Debug, Clone)]
pub(super) struct Wanted(Arc<Mutex<bool>>);

/// Gives a write up when it is dropped.
pub(super) struct Waiting(Wanted);

impl Wanted {
    /// A write that is wanted as long as the other one is not dropped.
    pub fn new() -> (Self, Waiting) {
        let wanted = Self(Arc::new(Mutex::new(true)));
        (wanted.clone(), Waiting(wanted))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.0.lock() = false;
    }
}

/// A file to be written.
pub(super) struct Writing<'a> {
    /// Its name until all of it is there, in the same directory.
    pub temporary: &'a Path,
    /// Its name.
    pub path: &'a Path,
    /// All of it.
    pub bytes: &'a [u8],
    /// Whether there may be one.
    pub replace: Replace,
}

/// Writes all of a file or nothing: to a temporary name beside it, synced, then renamed, then the directory synced. One that is not
/// wanted any more gets no name.
pub(super) fn write_on(fs: &dyn FileSystem, file: &Writing<'_>, wanted: &Wanted) -> io::Result<()> {
    let Writing { temporary, path, bytes, replace } = *file;
    create_dir_on(fs, parent(path))?;
    let written = write_synced(fs, temporary, bytes).and_then(|()| give_name(fs, temporary, path, replace, wanted));
    if written.is_err() {
        // A leftover would be filtered from listings, yet take up space. The first error is the one that matters.
        let _ = fs.remove(temporary);
    }
    written
}

/// Gives a file that is synced its name, durably, unless it is not wanted any more.
pub(super) fn give_name(fs: &dyn FileSystem, temporary: &Path, path: &Path, replace: Replace, wanted: &Wanted) -> io::Result<()> {
    {
        let wanted = wanted.lock();
        match replace {
            _ if !*wanted => return Err(io::ErrorKind::Interrupted.into()),
            Replace::Yes => fs.rename(temporary, path)?,
            // A rename would replace; a link refuses to.
            Replace::No => fs.link(temporary, path).and_then(|()| fs.remove(temporary))?,
        }
    }
    fs.sync_dir(parent(path))
}

fn write_synced(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs.create(path)?;
    file.write(bytes)?;
    file.sync()
}

fn rename_on(fs: &dyn FileSystem, from: &Path, to: &Path) -> io::Result<()> {
    fs.rename(from, to)?;
    fs.sync_dir(parent(to))?;
    if parent(from) != parent(to) {
        fs.sync_dir(parent(from))?;
    }
    Ok(())
}

pub(super) fn create_dir_on(fs: &dyn FileSystem, path: &Path) -> io::Result<()> {
    if fs.is_dir(path) {
        return Ok(());
    }
    if path.parent().is_some_and(|parent| !parent.as_os_str().is_empty()) {
        create_dir_on(fs, parent(path))?;
    }
    match fs.create_dir(path) {
        Ok(()) => fs.sync_dir(parent(path)),
        // Another task was faster; whether it has synced yet is not known.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs.is_dir(path) => fs.sync_dir(parent(path)),
        // What is there is a file: no one may take this for "the file to be written exists".
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(io::Error::from_raw_os_error(NOT_A_DIRECTORY)),
        Err(error) => Err(error),
    }
}

/// The machine's own file system.
#[derive(Debug)]
pub(super) struct RealFileSystem;

/// Bytes after which a file is synced beside the writing: the disk is at work long before the last byte.
const SYNCED_BYTES: usize = 32 << 20;

/// A file of the machine's own file system.
struct RealFile {
    file: File,
    /// Bytes written since a sync began.
    unsynced: usize,
    /// A sync of what was written before it, which says what went wrong with that: the system tells it once.
    syncing: Option<JoinHandle<io::Result<()>>>,
}

impl RealFile {
    fn new(file: File) -> Self {
        Self { file, unsynced: 0, syncing: None }
    }

    fn sync_beside(&mut self) -> io::Result<()> {
        self.synced()?;
        // Without another handle, or a thread, all is synced at the end.
        if let Ok(file) = self.file.try_clone() {
            self.syncing = thread::Builder::new().name("sync".into()).spawn(move || file.sync_data()).ok();
        }
        self.unsynced = 0;
        Ok(())
    }

    fn synced(&mut self) -> io::Result<()> {
        match self.syncing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(synced)) => synced,
            Some(Err(_)) => Err(io::Error::other("syncing the file panicked")),
        }
    }
}

impl NewFile for RealFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.unsynced += bytes.len();
        let is_free = self.syncing.as_ref().is_none_or(JoinHandle::is_finished);
        if self.unsynced >= SYNCED_BYTES && is_free { self.sync_beside() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.synced()?;
        self.file.sync_all()
    }
}

impl FileSystem for RealFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(RealFile::new(OpenOptions::new().write(true).create_new(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        sync_dir(path)
    }
}
