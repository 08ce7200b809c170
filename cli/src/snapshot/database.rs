//! The rows of a state in a database: its files are fetched to a working folder of this process, checked, and read there.
//!
//! Invariant: the database is opened only when all its files are those that were noted; the folder goes with this.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::{DatabaseFile, Handle, StateHandle};
use levada_common::config::RocksdbProfile;
use levada_common::keys::KeyGroupRange;
use levada_common::storage::{Storage, StorageError};
use levada_state_rocksdb::{Rocksdb, RocksdbSettings, read_database};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};

use super::rows::with_causes;
use super::{Snapshot, SnapshotError};

/// Bytes of a file that are fetched at a time.
const PART_BYTES: u64 = 4 << 20;

/// Memory for blocks of the database.
const MEMORY_BYTES: u64 = 64 << 20;

/// Batches that are read ahead.
const AHEAD: usize = 2;

/// A database that is being read.
pub struct DatabaseRows {
    handle: StateHandle,
    batches: Receiver<Result<RecordBatch, String>>,
    // Deleted when this is dropped; its reader ends at the next batch, which nobody takes.
    _folder: TempDir,
}

impl DatabaseRows {
    /// Fetches the database of `handle` and begins to read its state, only of `key_groups` where they are given.
    pub async fn open(
        snapshot: &Snapshot,
        handle: &StateHandle,
        key_groups: Option<KeyGroupRange>,
    ) -> Result<Self, SnapshotError> {
        let Handle::Database { files, .. } = &handle.handle else {
            unreachable!("only databases are read here");
        };
        let folder = tempfile::Builder::new().prefix("levada-state-").tempdir();
        let folder = folder.map_err(|source| SnapshotError::WorkingFolder { path: std::env::temp_dir(), source })?;
        let database = folder.path().join("database");
        std::fs::create_dir(&database).map_err(|source| SnapshotError::WorkingFolder { path: database.clone(), source })?;
        for file in files.iter() {
            fetch(snapshot.storage(), file, &database.join(&file.name), handle).await?;
        }
        let settings = RocksdbSettings {
            data_dirs: vec![folder.path().join("work")],
            owner: "state".into(),
            memory_bytes: MEMORY_BYTES,
            overlay_bytes: 0,
            profile: RocksdbProfile::default(),
            open_files: None,
        };
        let (tx, batches) = channel(AHEAD);
        let (own, groups) = (handle.clone(), key_groups.unwrap_or(handle.key_groups));
        let max_parallelism = snapshot.metadata.max_parallelism;
        tokio::task::spawn_blocking(move || {
            let read = || {
                let shared = Rocksdb::start(&settings).map_err(|error| with_causes(&error))?;
                let visit = &mut |batch| match tx.blocking_send(Ok(batch)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                };
                let state = (own.name.as_str(), own.schema.as_ref());
                let read = read_database(&shared, &own.uid, &database, state, (groups, max_parallelism), visit);
                read.map_err(|error| with_causes(&error))
            };
            if let Err(error) = read() {
                // Nobody waits for it where nobody takes it.
                let _ = tx.blocking_send(Err(error));
            }
        });
        Ok(Self { handle: handle.clone(), batches, _folder: folder })
    }

    /// The next batch; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, SnapshotError> {
        let next = self.batches.recv().await;
        next.transpose().map_err(|what| SnapshotError::damaged(&self.handle, what))
    }
}

/// Writes a file of a database to `path`, and compares it with what was noted.
async fn fetch(storage: &Storage, file: &DatabaseFile, path: &Path, handle: &StateHandle) -> Result<(), SnapshotError> {
    let failed = |source| SnapshotError::WorkingFolder { path: PathBuf::from(path), source };
    let mut out = File::create(path).map_err(failed)?;
    each_part(storage, file, |bytes| out.write_all(bytes).map_err(failed)).await?.map_err(|error| match error {
        FileDamage::Unreadable(source) => SnapshotError::unreadable(handle, source),
        damage => SnapshotError::damaged(handle, damage.text(file)),
    })
}

/// What is wrong with a file of a database.
#[derive(Debug)]
pub enum FileDamage {
    /// It does not exist.
    Missing,
    /// It is shorter.
    Short {
        /// Its bytes.
        found: u64,
    },
    /// Its bytes are others.
    Other {
        /// CRC-32C of what is there.
        found: u32,
    },
    /// The storage fails.
    Unreadable(StorageError),
}

impl FileDamage {
    /// With the file's name.
    pub fn text(&self, file: &DatabaseFile) -> String {
        let (path, noted) = (&file.path, file.crc32c);
        match self {
            Self::Missing => format!("\"{path}\" is damaged: it does not exist"),
            Self::Short { found } => format!("\"{path}\" is damaged: it has {found} bytes, {} were noted", file.length),
            Self::Other { found } => {
                format!("\"{path}\" is damaged: CRC-32C is {found:08x}, {noted:08x} was noted when it was written")
            }
            Self::Unreadable(source) => format!("\"{path}\" cannot be read: {source}"),
        }
    }
}

/// Compares a file of a database with what was noted.
pub async fn check_file(storage: &Storage, file: &DatabaseFile) -> Result<(), FileDamage> {
    match each_part(storage, file, |_| Ok::<(), SnapshotError>(())).await {
        Ok(checked) => checked,
        Err(_) => unreachable!("nothing is done with the parts that could fail"),
    }
}

/// Hands a file on in parts; afterwards it is known whether it was whole. The outer error is that of `each`.
async fn each_part<E>(
    storage: &Storage,
    file: &DatabaseFile,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Result<(), FileDamage>, E> {
    let (mut crc32c, mut at) = (0, 0);
    while at < file.length {
        let next = (at + PART_BYTES).min(file.length);
        let bytes = match storage.get_range(&file.path, at..next).await {
            Ok(bytes) => bytes,
            Err(StorageError::NotFound { .. }) => return Ok(Err(FileDamage::Missing)),
            Err(StorageError::Truncated { found, .. }) => return Ok(Err(FileDamage::Short { found: at + found })),
            Err(error) => return Ok(Err(FileDamage::Unreadable(error))),
        };
        crc32c = crc32c::crc32c_append(crc32c, &bytes);
        each(&bytes)?;
        at = next;
    }
    Ok(if crc32c == file.crc32c { Ok(()) } else { Err(FileDamage::Other { found: crc32c }) })
}
