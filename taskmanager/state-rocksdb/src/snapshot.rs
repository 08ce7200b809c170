//! A database as it was at a barrier: hard links to its files, in a folder that goes when nobody needs them any more.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_state::cold::ColdError;
use levada_state::snapshot::{DatabaseSnapshot, SnapshotFile, VisitRows};

use crate::database::Database;
use crate::directory::{TaskDirectory, remove};
use crate::restore::ReadDatabase;
use crate::shared::Rocksdb;

/// A snapshot on its way, or there.
#[derive(Debug)]
pub struct RocksdbSnapshot {
    uid: Uid,
    shared: Arc<Rocksdb>,
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    NotYet,
    Taken(Arc<Taken>),
    Failed(ColdError),
}

/// The files, until this is dropped.
#[derive(Debug)]
struct Taken {
    folder: PathBuf,
    files: Vec<SnapshotFile>,
    entries: Vec<(String, u64)>,
    /// The task's directory stays as long as a snapshot of it is read.
    _directory: Arc<TaskDirectory>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(path = %self.folder.display(), %error, "the files of a snapshot stay behind");
        }
    }
}

/// The duty to settle a snapshot; dropped unused, it gives it up.
#[derive(Debug)]
pub struct Ticket {
    snapshot: Arc<RocksdbSnapshot>,
    /// States whose entries expire, and the time at the barrier of the last touch of those that had.
    pub expired: Vec<(String, Option<i64>)>,
}

impl RocksdbSnapshot {
    /// A snapshot that someone waits for, and the duty to settle it.
    pub fn begin(database: &Database, expired: Vec<(String, Option<i64>)>) -> (Arc<Self>, Ticket) {
        let (state, settled) = (Mutex::default(), Condvar::new());
        let snapshot = Arc::new(Self { uid: database.uid.clone(), shared: Arc::clone(&database.shared), state, settled });
        (Arc::clone(&snapshot), Ticket { snapshot, expired })
    }

    /// Whether its files are still to be taken.
    pub fn is_under_way(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::NotYet)
    }

    fn settle(&self, with: State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::NotYet) {
            *state = with;
        }
        drop(state);
        self.settled.notify_all();
    }

    fn taken(&self) -> Result<Arc<Taken>, ColdError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.settled.wait_while(state, |state| matches!(state, State::NotYet));
        match &*state.unwrap_or_else(PoisonError::into_inner) {
            State::Taken(taken) => Ok(Arc::clone(taken)),
            State::Failed(error) => Err(error.clone()),
            State::NotYet => unreachable!("waited while it was"),
        }
    }
}

impl Ticket {
    /// The checkpoint is in `folder`.
    ///
    /// Errors: `Write`; the snapshot is not settled then.
    pub fn take(&self, database: &Database, folder: PathBuf, entries: Vec<(String, u64)>) -> Result<(), ColdError> {
        let listed = files_of(&folder);
        let files = listed.map_err(|error| database.write_error("listing a checkpoint", Arc::new(error)))?;
        let directory = Arc::clone(&database.directory);
        self.snapshot.settle(State::Taken(Arc::new(Taken { folder, files, entries, _directory: directory })));
        Ok(())
    }

    /// It failed.
    pub fn fail(&self, error: ColdError) {
        self.snapshot.settle(State::Failed(error));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.snapshot.settle(State::Failed(ColdError::Abandoned { uid: self.snapshot.uid.clone() }));
    }
}

/// The files that make a database: tables, the list of them, and the name of the list. Logs are empty, options are ours.
fn files_of(folder: &Path) -> std::io::Result<Vec<SnapshotFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_immutable = name.ends_with(".sst");
        if is_immutable || name.starts_with("MANIFEST-") || name == "CURRENT" {
            files.push(SnapshotFile { length: entry.metadata()?.len(), path: entry.path(), name, is_immutable });
        }
    }
    files.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(files)
}

impl DatabaseSnapshot for RocksdbSnapshot {
    fn files(&self) -> Result<Vec<SnapshotFile>, ColdError> {
        Ok(self.taken()?.files.clone())
    }

    fn rows(&self, state: &str, visit: VisitRows<'_>) -> Result<(), ColdError> {
        let taken = self.taken()?;
        let database = ReadDatabase::open(&self.shared, &self.uid, &taken.folder)?;
        let everything = KeyGroupRange { start: 0, end: u16::MAX };
        database.rows(state, everything, visit)
    }

    fn entries(&self, state: &str) -> u64 {
        let Ok(taken) = self.taken() else { return 0 };
        taken.entries.iter().find(|(name, _)| name == state).map_or(0, |(_, entries)| *entries)
    }
}
