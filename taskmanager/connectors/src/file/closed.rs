//! A file that a barrier has closed, on its way to the disk.
//!
//! A system that could not write a file's bytes says so once, and then counts them as written: to sync again succeeds, and the
//! file has a hole. Invariant: a file is synced once, by the handle that wrote it, and one that could not be is never published.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use levada_common::ids::CheckpointId;
use levada_common::storage::durable::sync_dir;

use super::part::Part;
use crate::error::ConnectorError;

/// Makes a file's bytes last.
pub(super) type SyncFile = Arc<dyn Fn(&File) -> io::Result<()> + Send + Sync>;

/// A file that is closed and not published. Cheap to clone; clones share what has become of it.
#[derive(Clone)]
pub(super) struct Closed {
    pub part: Part,
    /// The newest checkpoint whose snapshot has it.
    pub last: CheckpointId,
    disk: Arc<Disk>,
}

struct Disk {
    /// Open until it is synced: a handle that is opened later may not hear of what went wrong before.
    file: Mutex<Option<File>>,
    /// How that ended; nothing where it has not.
    synced: OnceLock<Result<(), String>>,
}

impl Closed {
    /// A file that was just written.
    pub fn new(part: Part, file: File) -> Self {
        let last = part.checkpoint;
        Self { part, last, disk: Arc::new(Disk { file: Mutex::new(Some(file)), synced: OnceLock::new() }) }
    }

    /// A file out of the snapshot of this checkpoint: it was synced before that was acknowledged.
    pub fn restored(part: Part, checkpoint: Option<CheckpointId>) -> Self {
        let last = checkpoint.unwrap_or(part.checkpoint);
        Self { part, last, disk: Arc::new(Disk { file: Mutex::new(None), synced: OnceLock::from(Ok(())) }) }
    }

    /// Whether it is not known to last.
    pub fn is_new(&self) -> bool {
        !matches!(self.disk.synced.get(), Some(Ok(())))
    }

    /// Makes it last, its name too. Blocks; whoever comes second hears what the first one heard.
    pub fn sync(&self, sync: &SyncFile) -> Result<(), ConnectorError> {
        self.disk.synced.get_or_init(|| {
            let file = self.disk.file.lock().unwrap_or_else(PoisonError::into_inner).take();
            let file = file.expect("a file is open until it is synced");
            sync(&file).and_then(|()| sync_dir(&self.part.folder)).map_err(|error| error.to_string())
        });
        self.check()
    }

    /// Says that it was lost, where it was. Does not block.
    pub fn check(&self) -> Result<(), ConnectorError> {
        match self.disk.synced.get() {
            Some(Err(reason)) => Err(ConnectorError::NotSynced { path: self.part.hidden_path(), reason: reason.clone() }),
            Some(Ok(())) | None => Ok(()),
        }
    }
}
