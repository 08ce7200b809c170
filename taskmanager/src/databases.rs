//! The databases of this TaskManager: settings, and what all of them share once the first is needed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, TaskId};
use levada_common::keys::KeyGroupRange;
use levada_state_rocksdb::{MemoryUse, Rocksdb, RocksdbSettings, TaskDatabases, WorkingDirectoryError};

use crate::upload::DatabaseTraffic;

/// The databases of a TaskManager.
#[derive(Debug)]
pub struct Databases {
    settings: RocksdbSettings,
    shared: Mutex<Option<Arc<Rocksdb>>>,
    traffic: Arc<DatabaseTraffic>,
}

impl Databases {
    /// None is open; nothing is touched yet.
    pub fn new(settings: RocksdbSettings) -> Self {
        Self { settings, shared: Mutex::default(), traffic: Arc::default() }
    }

    /// What all of them share; makes the working directories at the first call that can, and removes what killed processes left.
    ///
    /// Errors: External: a data directory cannot be used.
    pub fn shared(&self) -> Result<Arc<Rocksdb>, WorkingDirectoryError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = &*shared {
            return Ok(Arc::clone(shared));
        }
        let started = Rocksdb::start(&self.settings)?;
        *shared = Some(Arc::clone(&started));
        Ok(started)
    }

    /// The databases of one task, which `waker` wakes.
    ///
    /// Errors: External: its working directory cannot be made.
    pub fn of_task(
        &self,
        attempt: AttemptId,
        task: TaskId,
        range: (KeyGroupRange, u32),
        waker: Waker,
    ) -> Result<Arc<TaskDatabases>, Failure> {
        let parts = [
            attempt.job.to_string(),
            format!("{}-{}", attempt.epoch, attempt.attempt),
            format!("{}-{}", task.vertex, task.subtask),
        ];
        let made = self.shared().and_then(|shared| TaskDatabases::new(&shared, &parts, range, waker));
        made.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            Failure::external(format!("the working directory of task {task}: {error}: {cause}"))
        })
    }

    /// A folder on their first disk for files without names; it need not exist.
    pub fn scratch(&self) -> PathBuf {
        self.settings.data_dirs.first().cloned().unwrap_or_else(std::env::temp_dir)
    }

    /// What their snapshots moved.
    pub fn traffic(&self) -> &Arc<DatabaseTraffic> {
        &self.traffic
    }

    /// Compactions that run or are due.
    pub fn compactions(&self) -> u64 {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_ref().map_or(0, |shared| shared.compactions())
    }

    /// The memory that they use; nothing before the first.
    pub fn memory(&self) -> MemoryUse {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_ref().map(|shared| shared.memory()).unwrap_or_default()
    }
}
