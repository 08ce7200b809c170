//! A disk that loses power or has no room left, for tests of whatever writes there.
//!
//! Everything is done for real below a folder, and written down. What is on the disk after a loss of power follows from that by the
//! rules that a file system keeps: bytes are there once they are synced, a name is there, or gone, once its directory is synced,
//! a rename happens whole; of the rest any part may be there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::durable::{FileSystem, NewFile, RealFileSystem};
use super::files::Files;
use super::{Backend, Storage};

/// ENOSPC.
const NO_SPACE: i32 = 28;

/// What was done.
#[derive(Debug, Clone)]
enum Step {
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    CreateDir(PathBuf),
    RemoveDir(PathBuf),
    SyncDir(PathBuf),
}

/// The disk. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Disk {
    root: Arc<Path>,
    steps: Arc<Mutex<Vec<Step>>>,
    /// The step from which on there is no room.
    full_from: Arc<AtomicUsize>,
}

impl Disk {
    /// A disk whose files are below `root`, which exists and is empty.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), steps: Arc::default(), full_from: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    /// The storage on this disk.
    pub fn storage(&self) -> Storage {
        let files = Files::new(self.root.to_path_buf(), Arc::new(self.clone()));
        Storage { uri: format!("file://{}", self.root.display()).into(), backend: Backend::Files(files) }
    }

    /// Steps done so far.
    pub fn steps(&self) -> usize {
        self.lock().len()
    }

    /// From this step on nothing can be created or written; `usize::MAX` = there is room.
    pub fn fill_from(&self, step: usize) {
        self.full_from.store(step, Ordering::SeqCst);
    }

    /// Makes below `target` what may be left where power is lost after `steps` steps; `survives` decides, each time anew, whether
    /// something is there that need not be.
    pub fn lose_power(&self, steps: usize, target: &Path, mut survives: impl FnMut() -> bool) -> io::Result<()> {
        let mut left = Left::default();
        left.folders.insert(self.root.to_path_buf(), Folder::default());
        for step in &self.lock()[..steps] {
            left.take(step);
        }
        left.write(&self.root, target, &mut survives)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, step: Step) {
        self.lock().push(step);
    }

    fn room(&self) -> io::Result<()> {
        let is_full = self.steps() >= self.full_from.load(Ordering::SeqCst);
        if is_full { Err(io::Error::from_raw_os_error(NO_SPACE)) } else { Ok(()) }
    }
}

struct OpenFile {
    disk: Disk,
    path: PathBuf,
    inner: Box<dyn NewFile>,
}

impl NewFile for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A full disk takes a part.
        let taken = if self.disk.room().is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        self.inner.write(taken)?;
        self.disk.note(Step::Write(self.path.clone(), taken.to_vec()));
        if taken.len() < bytes.len() { self.disk.room() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()?;
        self.disk.note(Step::Sync(self.path.clone()));
        Ok(())
    }
}

impl FileSystem for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.room()?;
        let inner = RealFileSystem.create(path)?;
        self.note(Step::Create(path.into()));
        Ok(Box::new(OpenFile { disk: self.clone(), path: path.into(), inner }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.rename(from, to)?;
        self.note(Step::Rename(from.into(), to.into()));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFileSystem.link(from, to)?;
        self.note(Step::Link(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove(path)?;
        self.note(Step::Remove(path.into()));
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.room()?;
        RealFileSystem.create_dir(path)?;
        self.note(Step::CreateDir(path.into()));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.remove_dir(path)?;
        self.note(Step::RemoveDir(path.into()));
        Ok(())
    }

    fn is_dir(&self, path: &Path) -> bool {
        RealFileSystem.is_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealFileSystem.sync_dir(path)?;
        self.note(Step::SyncDir(path.into()));
        Ok(())
    }
}

/// A file's bytes, and how many of them are there for sure.
#[derive(Debug, Clone, Default)]
struct Bytes {
    all: Vec<u8>,
    synced: usize,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File(usize),
    Folder,
}

/// A change of a directory that may or may not be on the disk: what the names stand for afterwards.
type Change = Vec<(String, Option<Entry>)>;

#[derive(Debug, Default)]
struct Folder {
    /// As programs see it.
    seen: BTreeMap<String, Entry>,
    /// As it was at its last sync.
    synced: BTreeMap<String, Entry>,
    since: Vec<Change>,
}

impl Folder {
    fn change(&mut self, change: Change) {
        for (name, entry) in &change {
            match entry {
                Some(entry) => self.seen.insert(name.clone(), *entry),
                None => self.seen.remove(name),
            };
        }
        self.since.push(change);
    }
}

/// All that can be left.
#[derive(Debug, Default)]
struct Left {
    files: Vec<Bytes>,
    folders: BTreeMap<PathBuf, Folder>,
}

fn split(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().expect("only what is in a folder is changed").to_string_lossy().into_owned();
    (path.parent().expect("it is in a folder").into(), name)
}

impl Left {
    fn folder(&mut self, path: &Path) -> &mut Folder {
        self.folders.entry(path.into()).or_default()
    }

    fn change(&mut self, path: &Path, entry: Option<Entry>) {
        let (folder, name) = split(path);
        self.folder(&folder).change(vec![(name, entry)]);
    }

    fn file(&mut self, path: &Path) -> (Entry, &mut Bytes) {
        let (folder, name) = split(path);
        let entry = self.folder(&folder).seen[&name];
        let Entry::File(number) = entry else { panic!("{} is a folder", path.display()) };
        (entry, &mut self.files[number])
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Create(path) => {
                self.files.push(Bytes::default());
                self.change(path, Some(Entry::File(self.files.len() - 1)));
            }
            Step::Write(path, bytes) => self.file(path).1.all.extend_from_slice(bytes),
            Step::Sync(path) => {
                let (_, bytes) = self.file(path);
                bytes.synced = bytes.all.len();
            }
            Step::Rename(from, to) => {
                let (entry, _) = self.file(from);
                let ((folder, old), (other, new)) = (split(from), split(to));
                assert_eq!(folder, other, "files are renamed within a folder");
                self.folder(&folder).change(vec![(old, None), (new, Some(entry))]);
            }
            Step::Link(from, to) => {
                let (entry, _) = self.file(from);
                self.change(to, Some(entry));
            }
            Step::Remove(path) => self.change(path, None),
            Step::CreateDir(path) => {
                self.folders.insert(path.clone(), Folder::default());
                self.change(path, Some(Entry::Folder));
            }
            Step::RemoveDir(path) => self.change(path, None),
            Step::SyncDir(path) => {
                let folder = self.folder(path);
                folder.synced = folder.seen.clone();
                folder.since.clear();
            }
        }
    }

    /// What is left of a folder and all below it.
    fn write(&self, folder: &Path, target: &Path, survives: &mut impl FnMut() -> bool) -> io::Result<()> {
        let Some(of_folder) = self.folders.get(folder) else { return Ok(()) };
        let mut names = of_folder.synced.clone();
        for (name, entry) in of_folder.since.iter().filter(|_| survives()).flatten() {
            match entry {
                Some(entry) => names.insert(name.clone(), *entry),
                None => names.remove(name),
            };
        }
        for (name, entry) in names {
            let path = target.join(&name);
            match entry {
                Entry::Folder => {
                    fs::create_dir(&path)?;
                    self.write(&folder.join(&name), &path, survives)?;
                }
                Entry::File(number) => {
                    let Bytes { all, synced } = &self.files[number];
                    let length = if survives() { all.len() } else { *synced };
                    fs::write(&path, &all[..length])?;
                }
            }
        }
        Ok(())
    }
}
