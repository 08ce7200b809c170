//! Working directories: `<data dir>/levada-<owner>/<job>/<attempt>/<task>.<number>/<operator>`.
//!
//! A process holds a lock on `levada-<owner>.lock` beside its folder for as long as it lives. Whoever starts removes the folders
//! whose lock nobody holds: what killed processes left. Invariant: a folder is made after its lock is held, so that one of a
//! living process is never taken for a leftover.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_common::ids::Uid;

use crate::escape::folder_name;

/// What the names of working folders begin with.
const PREFIX: &str = "levada-";

/// The end of a lock file's name.
const LOCK_SUFFIX: &str = ".lock";

/// How often a task's folder is made at most: each time another task has to end just then.
const MAKES_MAX: usize = 100;

/// A data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{doing} \"{path}\" failed (taskmanager.data_dir)")]
pub struct WorkingDirectoryError {
    /// What was attempted.
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// The working folders of this process, one in each data directory.
#[derive(Debug)]
pub struct WorkingDirectories {
    roots: Vec<Root>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Root {
    folder: PathBuf,
    lock_file: PathBuf,
    /// Locked until it is dropped.
    _lock: File,
}

/// The folder of one task; it is gone when the last of its owners is.
#[derive(Debug)]
pub struct TaskDirectory {
    path: PathBuf,
    _root: Arc<WorkingDirectories>,
}

impl WorkingDirectories {
    /// Locks and makes the folders of `owner`, and removes those of processes that are gone.
    ///
    /// Errors: External: a data directory cannot be made or locked.
    pub fn open(data_dirs: &[PathBuf], owner: &str) -> Result<Arc<Self>, WorkingDirectoryError> {
        let mut roots = Vec::with_capacity(data_dirs.len());
        for data_dir in data_dirs {
            fs::create_dir_all(data_dir).map_err(failed("making", data_dir))?;
            remove_leftovers(data_dir);
            roots.push(Root::make(data_dir, owner)?);
        }
        Ok(Arc::new(Self { roots, next: AtomicUsize::new(0) }))
    }

    /// A folder for a task, on the next data directory in turn. `parts` name it: job, attempt, task.
    pub fn task(self: &Arc<Self>, parts: &[String]) -> Result<Arc<TaskDirectory>, WorkingDirectoryError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut path = self.roots[turn % self.roots.len()].folder.clone();
        let (last, before) = parts.split_last().expect("a task has a name");
        path.extend(before.iter().map(|part| folder_name(part)));
        // The number makes it nobody else's, whatever else of the same name has not ended yet.
        path.push(format!("{}.{turn}", folder_name(last)));
        make(&path).map_err(failed("making", &path))?;
        Ok(Arc::new(TaskDirectory { path, _root: Arc::clone(self) }))
    }
}

impl Root {
    fn make(data_dir: &Path, owner: &str) -> Result<Self, WorkingDirectoryError> {
        let name = format!("{PREFIX}{}", folder_name(owner));
        let (folder, lock_file) = (data_dir.join(&name), data_dir.join(format!("{name}{LOCK_SUFFIX}")));
        let lock = File::create(&lock_file).map_err(failed("making", &lock_file))?;
        lock.try_lock().map_err(|error| failed("locking", &lock_file)(io_error(error)))?;
        fs::create_dir_all(&folder).map_err(failed("making", &folder))?;
        Ok(Self { folder, lock_file, _lock: lock })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for (path, removed) in [(&self.folder, remove(&self.folder)), (&self.lock_file, fs::remove_file(&self.lock_file))] {
            if let Err(error) = removed {
                tracing::warn!(path = %path.display(), %error, "a working file stays behind");
            }
        }
    }
}

impl TaskDirectory {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of an operator's database: its name is the operator's, since a task may have several.
    pub fn operator(&self, uid: &Uid) -> PathBuf {
        self.path.join(folder_name(uid.as_str()))
    }
}

impl Drop for TaskDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a task's working directory stays behind");
        }
        // The folders of attempt and job go with their last task.
        for parent in self.path.ancestors().skip(1).take(2) {
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
    }
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> WorkingDirectoryError + 'a {
    move |source| WorkingDirectoryError { doing, path: path.to_owned(), source }
}

fn io_error(error: TryLockError) -> io::Error {
    match error {
        TryLockError::WouldBlock => io::Error::new(io::ErrorKind::WouldBlock, "another process of the same name holds it"),
        TryLockError::Error(error) => error,
    }
}

/// Makes the folder of a task. One of an attempt before may remove folders above it, which it leaves empty, between two steps of this.
fn make(path: &Path) -> io::Result<()> {
    for _ in 1..MAKES_MAX {
        match fs::create_dir_all(path) {
            // One that was there is not when it is looked at, or not when the next is made in it.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
            made => return made,
        }
    }
    fs::create_dir_all(path)
}

/// Removes a folder with all that is in it; one that is not there is removed already.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes the folders of processes that are gone. What cannot be removed is said, and left.
fn remove_leftovers(data_dir: &Path) {
    let Ok(entries) = fs::read_dir(data_dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let lock_file = data_dir.join(format!("{name}{LOCK_SUFFIX}"));
            match remove_leftover(&entry.path(), &lock_file) {
                Ok(true) => tracing::info!(path = %entry.path().display(), "a working directory that a process left is removed"),
                Ok(false) => {}
                Err(error) => tracing::warn!(path = %entry.path().display(), %error, "a left working directory stays behind"),
            }
        }
    }
}

/// Removes a folder unless its owner lives.
fn remove_leftover(folder: &Path, lock_file: &Path) -> io::Result<bool> {
    let lock = match File::open(lock_file) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match lock.as_ref().map(File::try_lock) {
        Some(Err(TryLockError::WouldBlock)) => return Ok(false),
        Some(Err(TryLockError::Error(error))) => return Err(error),
        Some(Ok(())) | None => {}
    }
    remove(folder)?;
    if lock.is_some() {
        fs::remove_file(lock_file)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn parts(task: &str) -> Vec<String> {
        vec!["job".into(), "1-2".into(), task.into()]
    }

    #[test]
    fn tasks_take_the_disks_in_turn_and_leave_nothing() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        let working = WorkingDirectories::open(&paths, "a").unwrap();
        let tasks: Vec<_> = (0..3).map(|task| working.task(&parts(&format!("{task}"))).unwrap()).collect();
        let on = |task: usize, disk: usize| tasks[task].path().starts_with(&paths[disk]);
        assert!(on(0, 0) && on(1, 1) && on(2, 0));
        let uid = Uid::new("c1");
        fs::create_dir_all(tasks[0].operator(&uid)).unwrap();
        assert_ne!(tasks[0].operator(&uid), tasks[0].operator(&Uid::new("c2")));
        assert_eq!(names(&paths[0]), ["levada-a", "levada-a.lock"]);
        drop(tasks);
        assert_eq!(names(&paths[0].join("levada-a")), [] as [&str; 0]);
        drop(working);
        assert_eq!(names(&paths[0]), [] as [&str; 0]);
    }

    #[test]
    fn a_task_begins_while_the_last_one_of_its_job_ends() {
        let dir = tempfile::tempdir().unwrap();
        let working = WorkingDirectories::open(&[dir.path().to_owned()], "a").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let working = &working;
                scope.spawn(move || {
                    for attempt in 0..500 {
                        let parts = ["job".to_owned(), format!("{attempt}"), format!("{thread}")];
                        let task = working.task(&parts).unwrap();
                        assert!(task.path().is_dir());
                    }
                });
            }
        });
    }

    #[test]
    fn leftovers_go_and_the_living_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let living = WorkingDirectories::open(std::slice::from_ref(&path), "living").unwrap();
        let task = living.task(&parts("x")).unwrap();
        for name in ["levada-killed/job", "levada-without-lock", "other"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        fs::write(path.join("levada-killed.lock"), "").unwrap();
        let started = WorkingDirectories::open(std::slice::from_ref(&path), "started").unwrap();
        assert_eq!(names(&path), ["levada-living", "levada-living.lock", "levada-started", "levada-started.lock", "other"]);
        assert!(task.path().exists());
        let error = WorkingDirectories::open(std::slice::from_ref(&path), "started").unwrap_err();
        assert!(error.to_string().contains("levada-started.lock"), "{error}");
        drop(started);
    }
}
