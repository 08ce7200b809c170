//! A job's checkpoints and savepoints in storage: `_metadata` written last, what is not wanted any more deleted.
//!
//! Shape: `<checkpoint.dir>/<job>/chk-<id>/`, with `_metadata` and the files of tasks, and `shared/` beside them; a savepoint has a
//! folder of its own, with `manifest.json` beside `_metadata`. Must never know: when a checkpoint is complete. Invariant: deletions
//! that are under way are bounded; metadata waits while too many are.

mod deletion;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, DeclineReason, TaskSnapshot};
use levada_common::ids::{Attempt, CheckpointId, Epoch, JobId};
use levada_common::savepoint::{MANIFEST_FILE, METADATA_FILE, checkpoint_folder, manifest};
use levada_common::storage::{Storage, retried};
use levada_proto::metadata;
use tokio::sync::oneshot;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::warn;

use crate::driver::Job;

use deletion::{DELETES_MAX, delete, delete_metadata, sweep};

/// Time in which a checkpoint directory must prove itself.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Checkpoints that are being deleted, above which new ones wait.
const BACKLOG_MAX: usize = 16;

/// Deletions under way or waiting, above which files are left where they are.
const DISCARDS_MAX: usize = 1024;

/// How long deletions of one checkpoint are tried.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(300);

/// Checks that a directory for checkpoints or savepoints can be used. The error names path and cause.
pub(crate) async fn probe(dir: &str) -> Result<(), String> {
    let storage = Storage::open(dir).map_err(|error| error.to_string())?;
    match tokio::time::timeout(PROBE_TIMEOUT, storage.probe()).await {
        Ok(probed) => probed.map_err(|error| error.to_string()),
        Err(_) => Err(format!("writing, listing, reading and deleting a file took more than {} s", PROBE_TIMEOUT.as_secs())),
    }
}

/// Where one job's checkpoints are.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    job: JobId,
    name: String,
    storage: Option<Storage>,
    warned: bool,
    /// Discards that have not ended.
    backlog: watch::Sender<usize>,
    deletes: Arc<Semaphore>,
    going: Vec<Going>,
}

/// A checkpoint whose metadata is being deleted.
#[derive(Debug)]
struct Going {
    /// The shared files that it names.
    names: BTreeSet<String>,
    /// Says when it is gone, or that it stays.
    gone: Shared<oneshot::Receiver<()>>,
}

impl Checkpoints {
    /// The checkpoints of a job whose directory was probed; without a directory they live in this process only.
    pub(crate) fn new(job: &Job) -> Self {
        let dir = job.plan.settings.checkpoint.dir.as_deref();
        let uri = dir.map(|dir| format!("{}/{}", dir.trim_end_matches('/'), job.id));
        let storage = uri.map(|uri| Storage::open(&uri).expect("the directory was probed"));
        Self::at(job.id, job.plan.name.clone(), storage)
    }

    fn at(job: JobId, name: String, storage: Option<Storage>) -> Self {
        let deletes = Arc::new(Semaphore::new(DELETES_MAX));
        Self { job, name, storage, warned: false, backlog: watch::Sender::new(0), deletes, going: Vec::new() }
    }

    /// URI of the job's directory.
    pub(crate) fn directory(&self) -> Option<&str> {
        self.storage.as_ref().map(Storage::uri)
    }

    /// Writes a checkpoint's metadata; the future answers the file's URI. `None` where there is no directory.
    pub(crate) fn write(
        &mut self,
        metadata: CheckpointMetadata,
        kind: &CheckpointKind,
        within_ms: u64,
    ) -> Option<impl Future<Output = Result<String, DeclineReason>> + Send + use<>> {
        let target = match kind {
            CheckpointKind::Savepoint { directory, .. } => Target::Savepoint(directory.to_string(), self.name.clone()),
            CheckpointKind::Checkpoint => match self.storage.clone() {
                Some(storage) => Target::Checkpoint(storage),
                None => {
                    if !std::mem::replace(&mut self.warned, true) {
                        warn!(job = %self.job, "checkpoints live in the JobManager's memory only and are lost with it; set checkpoint.dir");
                    }
                    return None;
                }
            },
        };
        let deadline = Instant::now() + Duration::from_millis(within_ms);
        let mut backlog = self.backlog.subscribe();
        Some(async move {
            let uri = target.uri(&metadata);
            let finalize = |cause: String| DeclineReason::Finalize { path: uri.clone(), cause };
            let ready = backlog.wait_for(|discards| *discards < BACKLOG_MAX);
            if tokio::time::timeout_at(deadline, ready).await.is_err() {
                return Err(finalize("the deletion of older checkpoints is behind".into()));
            }
            target.write(metadata, deadline).await.map_err(finalize)?;
            Ok(uri)
        })
    }

    /// Deletes what a checkpoint holds: the files of `tasks` (but shared ones), and with `whole` the metadata and the folder. Ended
    /// deletions are to be told by `discarded`. `None` where there is nothing to delete.
    pub(crate) fn discard(
        &mut self,
        checkpoint: CheckpointId,
        kind: &CheckpointKind,
        tasks: &[TaskSnapshot],
        whole: bool,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let states = tasks.iter().flat_map(|task| &task.states);
        let files: BTreeSet<String> = states.flat_map(|state| state.handle.own_paths()).map(str::to_owned).collect();
        if files.is_empty() && !whole {
            return None;
        }
        let (storage, folder) = match kind.savepoint() {
            // The folder is the savepoint's own: it goes from the directory that the user named.
            Some(directory) => {
                let (above, folder) = directory.rsplit_once('/')?;
                let files: BTreeSet<String> = files.iter().map(|file| format!("{folder}/{file}")).collect();
                let names = whole.then(BTreeSet::new);
                return self.delete(Storage::open(above).ok()?, checkpoint, folder.to_owned(), files, names);
            }
            None => (self.storage.clone()?, checkpoint_folder(checkpoint)),
        };
        let shared = tasks.iter().flat_map(|task| &task.states).flat_map(|state| state.handle.shared_paths());
        let names = whole.then(|| shared.map(str::to_owned).collect());
        self.delete(storage, checkpoint, folder, files, names)
    }

    /// Deletes these files, and where the whole checkpoint goes, whose metadata names these shared files, first that.
    fn delete(
        &mut self,
        storage: Storage,
        checkpoint: CheckpointId,
        folder: String,
        files: BTreeSet<String>,
        names: Option<BTreeSet<String>>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let job = self.job;
        if *self.backlog.borrow() >= DISCARDS_MAX {
            warn!(%job, %checkpoint, "too many deletions are under way; files of {folder} are left");
            return None;
        }
        self.backlog.send_modify(|discards| *discards += 1);
        let deletes = Arc::clone(&self.deletes);
        let gone = names.map(|names| self.metadata_goes(names));
        Some(async move {
            let deadline = Instant::now() + DISCARD_TIMEOUT;
            let folder_of_it = gone.is_some().then_some(folder.as_str());
            let deleted = async {
                if let Some(gone) = gone {
                    delete_metadata(&storage, &deletes, &folder, deadline).await?;
                    let _ = gone.send(());
                }
                delete(&storage, &deletes, folder_of_it, files, deadline).await
            };
            if let Err(cause) = deleted.await {
                warn!(%job, %checkpoint, "files of {folder} are left: {cause}");
            }
        })
    }

    /// Notes that metadata which names these shared files is being deleted; to be told when it is gone.
    fn metadata_goes(&mut self, names: BTreeSet<String>) -> oneshot::Sender<()> {
        self.going.retain(|going| going.gone.clone().now_or_never() != Some(Ok(())));
        let (gone, going) = oneshot::channel();
        if !names.is_empty() {
            self.going.push(Going { names, gone: going.shared() });
        }
        gone
    }

    /// Deletes files that snapshots shared, once all metadata that names one of them is gone: whoever finds a file missing finds the
    /// metadata missing, too. Ended deletions are to be told by `discarded`.
    pub(crate) fn delete_shared(&mut self, files: Vec<String>) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (job, storage) = (self.job, self.storage.clone()?);
        if *self.backlog.borrow() >= DISCARDS_MAX {
            warn!(%job, files = files.len(), "too many deletions are under way; shared files are left");
            return None;
        }
        self.backlog.send_modify(|discards| *discards += 1);
        let naming = self.going.iter().filter(|going| files.iter().any(|file| going.names.contains(file)));
        let going: Vec<_> = naming.map(|going| going.gone.clone()).collect();
        let deletes = Arc::clone(&self.deletes);
        Some(async move {
            if futures::future::try_join_all(going).await.is_err() {
                return warn!(%job, files = files.len(), "shared files are left: metadata that names them could not be deleted");
            }
            let deadline = Instant::now() + DISCARD_TIMEOUT;
            if let Err(cause) = delete(&storage, &deletes, None, files.into_iter().collect(), deadline).await {
                warn!(%job, "shared files are left: {cause}");
            }
        })
    }

    /// Deletes shared files of attempts before this one (`None`: of all) that are not to be kept. Ended deletions are to be told by
    /// `discarded`.
    pub(crate) fn sweep_shared(
        &mut self,
        before: Option<(Epoch, Attempt)>,
        keep: BTreeSet<String>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (job, storage) = (self.job, self.storage.clone()?);
        if *self.backlog.borrow() >= DISCARDS_MAX {
            warn!(%job, "too many deletions are under way; shared files of attempts that failed are left");
            return None;
        }
        self.backlog.send_modify(|discards| *discards += 1);
        let deletes = Arc::clone(&self.deletes);
        Some(async move {
            let deadline = Instant::now() + DISCARD_TIMEOUT;
            if let Err(cause) = sweep(&storage, &deletes, before, &keep, deadline).await {
                warn!(%job, "shared files of attempts that failed are left: {cause}");
            }
        })
    }

    /// A deletion has ended.
    pub(crate) fn discarded(&self) {
        self.backlog.send_modify(|discards| *discards -= 1);
    }
}

/// Where metadata goes.
enum Target {
    /// Below the job's checkpoint directory.
    Checkpoint(Storage),
    /// Into the folder of this URI, with a manifest that names the job.
    Savepoint(String, String),
}

impl Target {
    fn uri(&self, metadata: &CheckpointMetadata) -> String {
        match self {
            Self::Checkpoint(storage) => format!("{}/{}/{METADATA_FILE}", storage.uri(), checkpoint_folder(metadata.id)),
            Self::Savepoint(directory, _) => format!("{directory}/{METADATA_FILE}"),
        }
    }

    /// Writes the metadata, last of all.
    async fn write(self, metadata: CheckpointMetadata, deadline: Instant) -> Result<(), String> {
        let (storage, path) = match self {
            Self::Checkpoint(storage) => (storage, format!("{}/{METADATA_FILE}", checkpoint_folder(metadata.id))),
            Self::Savepoint(directory, job) => {
                let storage = Storage::open(&directory).map_err(|error| error.to_string())?;
                let manifest = Bytes::from(manifest(&metadata, &job, env!("CARGO_PKG_VERSION")));
                let written = retried(deadline, || storage.put(MANIFEST_FILE, manifest.clone())).await;
                written.map_err(|error| error.to_string())?;
                (storage, METADATA_FILE.to_owned())
            }
        };
        let encoded = tokio::task::spawn_blocking(move || metadata::encode(metadata)).await;
        let bytes = encoded.map_err(|error| error.to_string())?;
        retried(deadline, || storage.put(&path, bytes.clone())).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
