//! What a TaskManager says about its databases.

use std::path::PathBuf;

use levada_common::config::RocksdbProfile;

/// What a TaskManager says about its databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RocksdbSettings {
    /// Folders for working files, one a disk; tasks take them in turn.
    pub data_dirs: Vec<PathBuf>,
    /// What working folders are called after: no other living process may use the same.
    pub owner: String,
    /// Memory of all databases of the process: blocks, indexes and buffers of RocksDB, and the overlays before them.
    pub memory_bytes: u64,
    /// The overlays' part of it.
    pub overlay_bytes: u64,
    /// What the options are tuned for.
    pub profile: RocksdbProfile,
    /// File descriptors that all databases may hold open; `None` = half of the process's limit.
    pub open_files: Option<u64>,
}
