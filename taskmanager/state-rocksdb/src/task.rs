//! The databases of one task: restored off its thread, opened on it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use arrow::record_batch::RecordBatch;
use levada_common::fault::{Failure, Faulty};
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;
use levada_state::cold::{ColdError, ColdStores, Opened, Scan};
use levada_state::row_codec::STAMP_UNKNOWN;

use crate::database::{Database, database_path};
use crate::directory::{TaskDirectory, WorkingDirectoryError, remove};
use crate::restore::{ReadDatabase, choose_base, copy, cut, expired_in_all, rewrite_family};
use crate::rows::put_rows;
use crate::shared::Rocksdb;
use crate::store::RocksdbStore;

/// Rows that wait for their operator, by operator and state.
#[derive(Default)]
struct Fetched(Mutex<HashMap<(Uid, String), Vec<Scan>>>);

impl Fetched {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Uid, String), Vec<Scan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// The databases of one task, in a working directory that goes with the last of them.
#[derive(Debug)]
pub struct TaskDatabases {
    shared: Arc<Rocksdb>,
    directory: Arc<TaskDirectory>,
    max_parallelism: u32,
    key_groups: KeyGroupRange,
    waker: Waker,
    restored: Mutex<HashMap<Uid, Arc<Database>>>,
    fetched: Fetched,
}

impl TaskDatabases {
    /// Makes the task's working directory, which `parts` name: job, attempt, task. `waker` wakes the task.
    ///
    /// Errors: External: the directory cannot be made.
    pub fn new(
        shared: &Arc<Rocksdb>,
        parts: &[String],
        (key_groups, max_parallelism): (KeyGroupRange, u32),
        waker: Waker,
    ) -> Result<Arc<Self>, WorkingDirectoryError> {
        let (shared, directory) = (Arc::clone(shared), shared.directory(parts)?);
        let (restored, fetched) = (Mutex::default(), Fetched::default());
        Ok(Arc::new(Self { shared, directory, max_parallelism, key_groups, waker, restored, fetched }))
    }

    /// A folder on the same file system as the databases, to fetch a database of `uid` into: number `number` of them.
    pub fn fetch_folder(&self, uid: &Uid, number: usize) -> PathBuf {
        self.directory.operator(uid).join(format!("restore-{number}"))
    }

    /// The task's working directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes the database of `uid` of the states `names` in the databases in `fetched`, whose folders are used up. Answers which
    /// of them it was made of, its files kept under their names, if any.
    ///
    /// Errors: `Open`, `Read`, `Entry`, `Write`. Blocks.
    pub fn restore(&self, uid: &Uid, fetched: &[PathBuf], names: &[String]) -> Result<Option<usize>, ColdError> {
        // One database after the other is open: each holds many files.
        let describe = |path: &PathBuf| ReadDatabase::open(&self.shared, uid, path).map(|source| source.description().clone());
        let described = fetched.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
        let base = choose_base(&described, self.key_groups, self.max_parallelism);
        let others = || (0..fetched.len()).filter(|at| Some(*at) != base);
        let database = match base {
            Some(base) => {
                let expired = expired_in_all(&described[base], others().map(|at| &described[at]));
                let database = self.open_cut(uid, &fetched[base], described[base].key_groups, names)?;
                database.describe_expired(&expired);
                database
            }
            None => self.open_database(uid)?,
        };
        for other in others() {
            let source = ReadDatabase::open(&self.shared, uid, &fetched[other])?;
            copy(&database, &source, names, (self.key_groups, self.max_parallelism))?;
        }
        for path in fetched {
            if let Err(error) = remove(path) {
                tracing::warn!(path = %path.display(), %error, "a fetched database stays behind until the task ends");
            }
        }
        self.restored.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone(), database);
        Ok(base)
    }

    /// Puts rows of a state with this schema into the operator's database, those of the task's key groups; `next` gives them batch
    /// by batch, with the state's columns in the open format among their columns. Answers the number of entries.
    ///
    /// Errors: `Open`, `Layout` for rows of another state, `Write`, and whatever `next` says. Blocks.
    pub fn put_rows(
        &self,
        uid: &Uid,
        name: &str,
        schema: &Arc<StateSchema>,
        next: impl FnMut() -> Result<Option<RecordBatch>, Failure>,
    ) -> Result<u64, Failure> {
        let known = self.restored.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned();
        let failed = |error: ColdError| error.to_failure();
        let database = known.map_or_else(|| self.open_database(uid), Ok).map_err(failed)?;
        let (family, rewritten) = database.family(name, schema).map_err(failed)?;
        if let Some(had) = rewritten {
            // Other subtasks had the state in databases, in the form of the job before.
            rewrite_family(&database, &had, &family, STAMP_UNKNOWN).map_err(failed)?;
        }
        let entries = put_rows(&database, &family, self.key_groups, next)?;
        self.restored.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone(), database);
        Ok(entries)
    }

    /// Keeps rows of a state for the operator, which puts them into its database by itself.
    pub fn keep_fetched(&self, uid: &Uid, state: &str, rows: Scan) {
        self.fetched.lock().entry((uid.clone(), state.into())).or_default().push(rows);
    }

    /// Opens the database that was fetched into `folder`, with the groups `had`, as the operator's, without what does not belong to it.
    fn open_cut(&self, uid: &Uid, folder: &Path, had: KeyGroupRange, names: &[String]) -> Result<Arc<Database>, ColdError> {
        let path = database_path(&self.directory.operator(uid));
        let fail = |error| ColdError::Open { uid: uid.clone(), path: path.clone(), source: Arc::new(error) };
        std::fs::rename(folder, &path).map_err(fail)?;
        let database = self.open_database(uid)?;
        database.keep_states(names)?;
        cut(&database, had, self.key_groups)?;
        Ok(database)
    }

    /// The database of an operator that was restored, or an empty one.
    pub(crate) fn take_database(&self, uid: &Uid) -> Result<Arc<Database>, ColdError> {
        let restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        restored.map_or_else(|| self.open_database(uid), Ok)
    }

    /// Opens the database of an operator, restored or empty.
    pub(crate) fn open_database(&self, uid: &Uid) -> Result<Arc<Database>, ColdError> {
        Database::open(&self.shared, &self.directory, uid, self.max_parallelism, self.key_groups)
    }
}

impl ColdStores for TaskDatabases {
    fn open(&self, uid: &Uid) -> Result<Opened, ColdError> {
        let database = self.take_database(uid)?;
        let store = Box::new(RocksdbStore::start(database, self.waker.clone())?);
        Ok(Opened { store, share: self.shared.memory.overlays.share() })
    }

    fn take_fetched(&self, uid: &Uid, state: &str) -> Vec<Scan> {
        self.fetched.lock().remove(&(uid.clone(), state.into())).unwrap_or_default()
    }

    fn unopened(&self) -> Option<Uid> {
        let restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner).keys().next().cloned();
        restored.or_else(|| self.fetched.lock().keys().next().map(|(uid, _)| uid.clone()))
    }
}
