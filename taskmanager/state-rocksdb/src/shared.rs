//! What all databases of a TaskManager share: memory, file descriptors, working directories.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use levada_common::config::RocksdbProfile;
use levada_state::cold::OverlayBudget;
use rocksdb::{Cache, Env, WriteBufferManager};

use crate::database::Database;
use crate::descriptors::Descriptors;
use crate::directory::{TaskDirectory, WorkingDirectories, WorkingDirectoryError};
use crate::settings::RocksdbSettings;

/// Least memory of the cache: index and filter blocks alone need some.
const CACHE_MIN: u64 = 8 << 20;

/// What all databases of a TaskManager share.
///
/// The memory is one budget: a part of it is the overlays', the rest one cache, in which blocks, indexes, filters and memtables
/// of all databases are counted.
#[derive(Debug)]
pub struct Rocksdb {
    pub(crate) profile: RocksdbProfile,
    pub(crate) memory: SharedMemory,
    pub(crate) descriptors: Arc<Descriptors>,
    directories: Arc<WorkingDirectories>,
    /// Those that are open, and some that were.
    open: Mutex<Vec<Weak<Database>>>,
}

/// The memory of all databases.
pub(crate) struct SharedMemory {
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
    cache_bytes: u64,
    pub(crate) overlays: Arc<OverlayBudget>,
}

/// The memory of all databases, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Most bytes of the cache.
    pub cache_max_bytes: u64,
    /// Bytes in the cache: blocks, indexes, filters and memtables.
    pub cache_bytes: u64,
    /// Bytes of these that cannot be dropped.
    pub pinned_bytes: u64,
    /// Most bytes of the overlays.
    pub overlay_max_bytes: u64,
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cache_bytes, overlays, .. } = self;
        f.debug_struct("SharedMemory").field("cache_bytes", cache_bytes).field("overlays", overlays).finish()
    }
}

impl SharedMemory {
    fn new(total_bytes: u64, overlay_bytes: u64) -> Self {
        let cache_bytes = total_bytes.saturating_sub(overlay_bytes).max(CACHE_MIN);
        let cache = Cache::new_lru_cache(cache_bytes as usize);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(cache_bytes as usize / 4, false, cache.clone());
        let overlays = OverlayBudget::new(usize::try_from(overlay_bytes).unwrap_or(usize::MAX));
        Self { cache, buffers, cache_bytes, overlays }
    }
}

impl Rocksdb {
    /// Locks the working directories and removes what killed processes left in them.
    ///
    /// Errors: External: a data directory cannot be used.
    pub fn start(settings: &RocksdbSettings) -> Result<Arc<Self>, WorkingDirectoryError> {
        share_cores();
        Ok(Arc::new(Self {
            profile: settings.profile,
            memory: SharedMemory::new(settings.memory_bytes, settings.overlay_bytes),
            descriptors: Descriptors::new(settings.open_files),
            directories: WorkingDirectories::open(&settings.data_dirs, &settings.owner)?,
            open: Mutex::default(),
        }))
    }

    /// The memory that is used.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse {
            cache_max_bytes: self.memory.cache_bytes,
            cache_bytes: self.memory.cache.get_usage() as u64,
            pinned_bytes: self.memory.cache.get_pinned_usage() as u64,
            overlay_max_bytes: self.memory.overlays.bytes() as u64,
        }
    }

    /// Compactions that run, and databases' families that are due for one.
    pub fn compactions(&self) -> u64 {
        self.open().iter().filter_map(Weak::upgrade).map(|database| database.compactions()).sum()
    }

    /// Knows of a database that is open.
    pub(crate) fn opened(&self, database: &Arc<Database>) {
        let mut open = self.open();
        open.retain(|database| database.strong_count() > 0);
        open.push(Arc::downgrade(database));
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<Database>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A working directory; `parts` name it.
    pub(crate) fn directory(&self, parts: &[String]) -> Result<Arc<TaskDirectory>, WorkingDirectoryError> {
        self.directories.task(parts)
    }

    /// Options of a database that is only read, one at a time.
    pub(crate) fn read_only_options(&self) -> rocksdb::Options {
        let mut options = crate::options::database(self.profile, &self.memory.buffers, 64);
        options.create_if_missing(false);
        options.create_missing_column_families(false);
        options
    }
}

/// Has compaction, of all databases of this process, on half of the cores: RocksDB itself has one thread for it, however many there are.
fn share_cores() {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    match Env::new() {
        Ok(mut env) => env.set_low_priority_background_threads(i32::try_from(cores / 2).unwrap_or(i32::MAX).max(1)),
        Err(error) => tracing::warn!(%error, "compaction has the threads that RocksDB gives it"),
    }
}
