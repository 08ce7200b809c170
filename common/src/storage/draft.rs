//! Files that are written piece by piece, by one thread, so that of their bytes few are in memory, and that appear when they are whole.
//!
//! On the local file system a draft stands beside the place that it is to get, under a temporary name; for an object store it is a
//! local file without a name, which is uploaded in parts. Invariant: one that is not finished leaves nothing behind, but where
//! the process is killed a temporary name.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use super::durable::{self, FileSystem, NewFile, Replace, Wanted};
use super::files::temporary_path;
use super::{Backend, LocalFile, Storage, StorageError, check_path, retried};

/// A file on its way into a storage; given up where it is dropped.
pub struct Draft {
    path: String,
    bytes: u64,
    place: Place,
}

enum Place {
    Beside(Beside),
    Scratch(File),
}

/// A file under a temporary name.
pub(super) struct Beside {
    fs: Arc<dyn FileSystem>,
    temporary: PathBuf,
    path: PathBuf,
    /// `None` once it has its name.
    file: Option<Box<dyn NewFile>>,
}

impl Storage {
    /// Begins a file that is to be at `path`; where it cannot be written in its place it is in `folder` until it is finished. Blocks.
    pub fn begin(&self, path: &str, folder: &Path) -> Result<Draft, StorageError> {
        check_path(path)?;
        let place = match &self.backend {
            Backend::Files(files) => Place::Beside(files.begin(path)?),
            Backend::Objects(_) => {
                let begun = std::fs::create_dir_all(folder).and_then(|()| LocalFile::scratch(folder));
                let shown = folder.display().to_string();
                Place::Scratch(begun.map_err(|source| StorageError::Io { action: "write to", path: shown, source })?)
            }
        };
        Ok(Draft { path: path.into(), bytes: 0, place })
    }

    /// Puts a file in its place as `put` does, by `deadline`: an upload is tried again until then.
    pub async fn finish(&self, draft: Draft, deadline: Instant) -> Result<(), StorageError> {
        let Draft { path, place, .. } = draft;
        match (place, &self.backend) {
            (Place::Beside(beside), Backend::Files(files)) => files.finish(&path, beside).await,
            (Place::Scratch(file), Backend::Objects(objects)) => {
                let failed = |source| StorageError::Io { action: "read", path: format!("the file to be \"{path}\""), source };
                let file = LocalFile::new(file).map_err(failed)?;
                retried(deadline, || objects.put_file(&path, &file)).await
            }
            (Place::Beside(_), Backend::Objects(_)) | (Place::Scratch(_), Backend::Files(_)) => {
                unreachable!("a draft is finished in the storage that began it")
            }
        }
    }
}

impl Draft {
    /// The path that it is to get.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Bytes written to it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.place {
            Place::Beside(beside) => beside.write(bytes)?,
            Place::Scratch(file) => file.write_all(bytes)?,
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Beside {
    /// Begins a file that is to be at `path`.
    pub fn begin(fs: Arc<dyn FileSystem>, path: PathBuf) -> io::Result<Self> {
        let temporary = temporary_path(&path);
        durable::create_dir_on(&*fs, durable::parent(&path))?;
        let file = Some(fs.create(&temporary)?);
        Ok(Self { fs, temporary, path, file })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write(bytes))
    }

    /// Makes it durable under its name.
    pub fn finish(mut self, wanted: &Wanted) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.sync())?;
        durable::give_name(&*self.fs, &self.temporary, &self.path, Replace::Yes, wanted)?;
        self.file = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // A leftover would be filtered from listings, yet take up space.
            let _ = self.fs.remove(&self.temporary);
        }
    }
}
