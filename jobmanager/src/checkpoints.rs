//! A job's checkpoints and savepoints in storage: `_metadata` written last, what is not wanted any more deleted.
//!
//! Shape: `<checkpoint.dir>/<job>/chk-<id>/`, with `_metadata` and the files of tasks, and `shared/` beside them; a savepoint has a
//! folder of its own, with `manifest.json` beside `_metadata`. Must never know: when a checkpoint is complete. Invariant: deletions that are under way are bounded; metadata waits while too many are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, DeclineReason, TaskSnapshot};
use levada_common::ids::{CheckpointId, JobId};
use levada_common::savepoint::{MANIFEST_FILE, METADATA_FILE, checkpoint_folder, manifest};
use levada_common::storage::{Storage, StorageError, retried};
use levada_proto::metadata;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::warn;

use crate::driver::Job;

/// Time in which a checkpoint directory must prove itself.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Files of one job that are deleted at a time.
const DELETES_MAX: usize = 16;

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
        Self { job, name, storage, warned: false, backlog: watch::Sender::new(0), deletes }
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
                return self.delete(Storage::open(above).ok()?, checkpoint, folder.to_owned(), files, whole);
            }
            None => (self.storage.clone()?, checkpoint_folder(checkpoint)),
        };
        self.delete(storage, checkpoint, folder, files, whole)
    }

    fn delete(
        &mut self,
        storage: Storage,
        checkpoint: CheckpointId,
        folder: String,
        files: BTreeSet<String>,
        whole: bool,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let job = self.job;
        if *self.backlog.borrow() >= DISCARDS_MAX {
            warn!(%job, %checkpoint, "too many deletions are under way; files of {folder} are left");
            return None;
        }
        self.backlog.send_modify(|discards| *discards += 1);
        let deletes = Arc::clone(&self.deletes);
        Some(async move {
            let deadline = Instant::now() + DISCARD_TIMEOUT;
            let folder_of_it = whole.then_some(folder.as_str());
            if let Err(cause) = delete(&storage, &deletes, folder_of_it, files, deadline).await {
                warn!(%job, %checkpoint, "files of {folder} are left: {cause}");
            }
        })
    }

    /// Deletes files that snapshots shared. Ended deletions are to be told by `discarded`.
    pub(crate) fn delete_shared(&mut self, files: Vec<String>) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (job, storage) = (self.job, self.storage.clone()?);
        if *self.backlog.borrow() >= DISCARDS_MAX {
            warn!(%job, files = files.len(), "too many deletions are under way; shared files are left");
            return None;
        }
        self.backlog.send_modify(|discards| *discards += 1);
        let deletes = Arc::clone(&self.deletes);
        Some(async move {
            let deadline = Instant::now() + DISCARD_TIMEOUT;
            if let Err(cause) = delete(&storage, &deletes, None, files.into_iter().collect(), deadline).await {
                warn!(%job, "shared files are left: {cause}");
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

/// Deletes the metadata first: without it no one takes the rest for a checkpoint. With a `folder` all that is in it goes.
async fn delete(
    storage: &Storage,
    deletes: &Semaphore,
    folder: Option<&str>,
    files: BTreeSet<String>,
    deadline: Instant,
) -> Result<(), String> {
    let text = |error: StorageError| error.to_string();
    let one = |path: String| async move {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.delete(&path)).await.map_err(text)
    };
    if let Some(folder) = folder {
        one(format!("{folder}/{METADATA_FILE}")).await?;
    }
    // What is in the folder goes with it.
    let inside = folder.map(|folder| format!("{folder}/"));
    let files = files.into_iter().filter(|path| inside.as_ref().is_none_or(|inside| !path.starts_with(inside.as_str())));
    let results: Vec<Result<(), String>> = stream::iter(files).map(one).buffer_unordered(DELETES_MAX).collect().await;
    if let Some(folder) = folder {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.delete_all(folder)).await.map_err(text)?;
    }
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use levada_common::checkpoint::{Handle, StateHandle, StateKind};
    use levada_common::ids::{Epoch, SubtaskIndex, TaskId, Uid, VertexId};
    use levada_common::keys::KeyGroupRange;

    use super::*;

    fn snapshot(path: &str) -> TaskSnapshot {
        let state = StateHandle {
            uid: Uid::new("counts"),
            name: "count".into(),
            kind: StateKind::Keyed,
            schema: Arc::default(),
            subtask: SubtaskIndex(0),
            key_groups: KeyGroupRange { start: 0, end: 127 },
            rows: 1,
            crc32c: 0,
            handle: Handle::File { path: path.into(), offset: 0, length: 1 },
        };
        TaskSnapshot { task: TaskId::new(VertexId(0), 0), finished: false, states: vec![state] }
    }

    fn checkpoint(id: u64) -> CheckpointMetadata {
        CheckpointMetadata {
            job: JobId::from_u128(1),
            epoch: Epoch(1),
            id: CheckpointId(id),
            triggered_at_ms: 5,
            max_parallelism: 128,
            savepoint: false,
            vertices: Vec::new(),
            tasks: vec![snapshot(&format!("chk-{id}/a"))],
        }
    }

    async fn paths(storage: &Storage) -> Vec<String> {
        storage.list("").await.unwrap().into_iter().map(|stored| stored.path).collect()
    }

    #[tokio::test]
    async fn metadata_is_read_back_and_a_discard_leaves_nothing() {
        let storage = Storage::in_memory();
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
        for id in [1, 2] {
            storage.put(&format!("chk-{id}/a"), Bytes::from_static(b"x")).await.unwrap();
            let uri = checkpoints.write(checkpoint(id), &CheckpointKind::Checkpoint, 10_000).unwrap().await.unwrap();
            assert!(uri.ends_with(&format!("/chk-{id}/_metadata")), "{uri}");
        }
        let bytes = storage.get("chk-2/_metadata").await.unwrap();
        assert_eq!(metadata::decode(bytes).unwrap(), checkpoint(2));
        checkpoints.discard(CheckpointId(1), &CheckpointKind::Checkpoint, &[snapshot("chk-1/a")], true).unwrap().await;
        checkpoints.discarded();
        assert_eq!(paths(&storage).await, ["chk-2/_metadata", "chk-2/a"]);
        checkpoints.discard(CheckpointId(2), &CheckpointKind::Checkpoint, &[snapshot("chk-2/a")], false).unwrap().await;
        assert_eq!(paths(&storage).await, ["chk-2/_metadata"]);
    }

    #[tokio::test]
    async fn metadata_waits_while_deletions_are_behind() {
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(Storage::in_memory()));
        let discards: Vec<_> = (0..BACKLOG_MAX as u64)
            .map(|id| checkpoints.discard(CheckpointId(id), &CheckpointKind::Checkpoint, &[], true).unwrap())
            .collect();
        let error = checkpoints.write(checkpoint(99), &CheckpointKind::Checkpoint, 20).unwrap().await.unwrap_err();
        assert!(error.to_string().contains("behind"), "{error}");
        let writing = checkpoints.write(checkpoint(100), &CheckpointKind::Checkpoint, 60_000).unwrap();
        discards.into_iter().next().unwrap().await;
        checkpoints.discarded();
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn a_savepoint_is_a_folder_that_can_be_moved_and_goes_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let uri = format!("file://{}/sp/savepoint-1", dir.path().display());
        let kind = CheckpointKind::Savepoint { directory: uri.as_str().into(), stops: false };
        let metadata = CheckpointMetadata { savepoint: true, tasks: vec![snapshot("state/a.arrow")], ..checkpoint(3) };
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), None);
        let file = checkpoints.write(metadata.clone(), &kind, 10_000).unwrap().await.unwrap();
        assert_eq!(file, format!("{uri}/_metadata"));
        let found = levada_proto::snapshot::open(&uri).await.unwrap();
        assert_eq!((found.metadata, found.directory), (metadata, uri.clone()));
        let manifest = std::fs::read_to_string(dir.path().join("sp/savepoint-1/manifest.json")).unwrap();
        assert!(manifest.contains("\"name\": \"job\"") && manifest.contains("state/a.arrow"), "{manifest}");
        std::fs::rename(dir.path().join("sp"), dir.path().join("moved")).unwrap();
        let moved = format!("file://{}/moved/savepoint-1/_metadata", dir.path().display());
        let found = levada_proto::snapshot::open(&moved).await.unwrap();
        assert_eq!(found.directory, moved.trim_end_matches("/_metadata"));
        std::fs::rename(dir.path().join("moved"), dir.path().join("sp")).unwrap();
        checkpoints.discard(CheckpointId(3), &kind, &[], true).unwrap().await;
        assert_eq!(std::fs::read_dir(dir.path().join("sp")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_job_s_directory_stands_for_its_newest_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let uri = format!("file://{}/job", dir.path().display());
        let missing = levada_proto::snapshot::open(&uri).await.unwrap_err().to_string();
        assert!(missing.contains(&uri), "{missing}");
        let storage = Storage::open(&uri).unwrap();
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
        for id in [9, 10, 2] {
            checkpoints.write(checkpoint(id), &CheckpointKind::Checkpoint, 10_000).unwrap().await.unwrap();
        }
        let found = levada_proto::snapshot::open(&uri).await.unwrap();
        assert_eq!((found.metadata.id, found.directory.as_str()), (CheckpointId(10), uri.as_str()));
        let newest = storage.get("chk-10/_metadata").await.unwrap();
        let mut damaged = newest.to_vec();
        damaged[20] ^= 4;
        storage.put("chk-10/_metadata", damaged.into()).await.unwrap();
        let refused = levada_proto::snapshot::open(&uri).await.unwrap_err().to_string();
        assert!(refused.contains("chk-10/_metadata") && refused.contains("damaged"), "{refused}");
        assert!(refused.contains(&format!("{uri}/chk-9, {uri}/chk-2")), "{refused}");
        let older = levada_proto::snapshot::open(&format!("{uri}/chk-9/")).await.unwrap();
        assert_eq!((older.metadata, older.directory), (checkpoint(9), uri));
    }

    #[test]
    fn without_a_directory_nothing_is_written() {
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), None);
        assert!(checkpoints.write(checkpoint(1), &CheckpointKind::Checkpoint, 1_000).is_none());
        assert!(checkpoints.discard(CheckpointId(1), &CheckpointKind::Checkpoint, &[snapshot("chk-1/a")], true).is_none());
    }
}
