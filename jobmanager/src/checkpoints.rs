//! A job's checkpoints in storage: `_metadata` written last, what is not wanted any more deleted.
//!
//! Shape: `<checkpoint.dir>/<job>/chk-<id>/`, with `_metadata` and the files of tasks. Must never know: when a checkpoint is
//! complete. Invariant: deletions that are under way are bounded; metadata waits while too many are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use levada_common::checkpoint::{CheckpointMetadata, DeclineReason, TaskSnapshot};
use levada_common::ids::{CheckpointId, JobId};
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

/// Checks that a checkpoint directory can be used. The error names path and cause.
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
        Self::at(job.id, storage)
    }

    fn at(job: JobId, storage: Option<Storage>) -> Self {
        let deletes = Arc::new(Semaphore::new(DELETES_MAX));
        Self { job, storage, warned: false, backlog: watch::Sender::new(0), deletes }
    }

    /// URI of the job's directory.
    pub(crate) fn directory(&self) -> Option<&str> {
        self.storage.as_ref().map(Storage::uri)
    }

    /// Writes a checkpoint's metadata; the future answers the file's URI. `None` where there is no directory.
    pub(crate) fn write(
        &mut self,
        metadata: CheckpointMetadata,
        within_ms: u64,
    ) -> Option<impl Future<Output = Result<String, DeclineReason>> + Send + use<>> {
        let Some(storage) = self.storage.clone() else {
            if !std::mem::replace(&mut self.warned, true) {
                warn!(job = %self.job, "checkpoints live in the JobManager's memory only and are lost with it; set checkpoint.dir");
            }
            return None;
        };
        let deadline = Instant::now() + Duration::from_millis(within_ms);
        let mut backlog = self.backlog.subscribe();
        let path = format!("chk-{}/_metadata", metadata.id);
        let uri = format!("{}/{path}", storage.uri());
        Some(async move {
            let finalize = |cause: String| DeclineReason::Finalize { path: uri.clone(), cause };
            let ready = backlog.wait_for(|discards| *discards < BACKLOG_MAX);
            if tokio::time::timeout_at(deadline, ready).await.is_err() {
                return Err(finalize("the deletion of older checkpoints is behind".into()));
            }
            let bytes =
                tokio::task::spawn_blocking(move || metadata::encode(metadata)).await.map_err(|e| finalize(e.to_string()))?;
            let written = retried(deadline, || storage.put(&path, bytes.clone())).await;
            written.map_err(|error| finalize(error.to_string()))?;
            Ok(uri)
        })
    }

    /// Deletes what a checkpoint holds: the files of `tasks`, and with `whole` the metadata and the folder. Ended deletions are
    /// to be told by `discarded`. `None` where there is nothing to delete.
    pub(crate) fn discard(
        &mut self,
        checkpoint: CheckpointId,
        tasks: &[TaskSnapshot],
        whole: bool,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let storage = self.storage.clone()?;
        let states = tasks.iter().flat_map(|task| &task.states);
        let files: BTreeSet<String> = states.flat_map(|state| state.handle.own_paths()).map(str::to_owned).collect();
        if files.is_empty() && !whole {
            return None;
        }
        let (job, folder) = (self.job, format!("chk-{checkpoint}"));
        if *self.backlog.borrow() >= DISCARDS_MAX {
            warn!(%job, %checkpoint, "too many deletions are under way; files of {folder} are left");
            return None;
        }
        self.backlog.send_modify(|discards| *discards += 1);
        let deletes = Arc::clone(&self.deletes);
        Some(async move {
            let deadline = Instant::now() + DISCARD_TIMEOUT;
            if let Err(cause) = delete(&storage, &deletes, &folder, files, whole, deadline).await {
                warn!(%job, %checkpoint, "files of {folder} are left: {cause}");
            }
        })
    }

    /// A deletion has ended.
    pub(crate) fn discarded(&self) {
        self.backlog.send_modify(|discards| *discards -= 1);
    }
}

/// Deletes the metadata first: without it no one takes the rest for a checkpoint.
async fn delete(
    storage: &Storage,
    deletes: &Semaphore,
    folder: &str,
    files: BTreeSet<String>,
    whole: bool,
    deadline: Instant,
) -> Result<(), String> {
    let text = |error: StorageError| error.to_string();
    let one = |path: String| async move {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.delete(&path)).await.map_err(text)
    };
    if whole {
        one(format!("{folder}/_metadata")).await?;
    }
    // What is in the folder goes with it.
    let inside = format!("{folder}/");
    let files = files.into_iter().filter(|path| !whole || !path.starts_with(&inside));
    let results: Vec<Result<(), String>> = stream::iter(files).map(one).buffer_unordered(DELETES_MAX).collect().await;
    if whole {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.delete_all(folder)).await.map_err(text)?;
    }
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
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
            tasks: vec![snapshot(&format!("chk-{id}/a"))],
        }
    }

    async fn paths(storage: &Storage) -> Vec<String> {
        storage.list("").await.unwrap().into_iter().map(|stored| stored.path).collect()
    }

    #[tokio::test]
    async fn metadata_is_read_back_and_a_discard_leaves_nothing() {
        let storage = Storage::in_memory();
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), Some(storage.clone()));
        for id in [1, 2] {
            storage.put(&format!("chk-{id}/a"), Bytes::from_static(b"x")).await.unwrap();
            let uri = checkpoints.write(checkpoint(id), 10_000).unwrap().await.unwrap();
            assert!(uri.ends_with(&format!("/chk-{id}/_metadata")), "{uri}");
        }
        let bytes = storage.get("chk-2/_metadata").await.unwrap();
        assert_eq!(metadata::decode(bytes).unwrap(), checkpoint(2));
        checkpoints.discard(CheckpointId(1), &[snapshot("chk-1/a")], true).unwrap().await;
        checkpoints.discarded();
        assert_eq!(paths(&storage).await, ["chk-2/_metadata", "chk-2/a"]);
        checkpoints.discard(CheckpointId(2), &[snapshot("chk-2/a")], false).unwrap().await;
        assert_eq!(paths(&storage).await, ["chk-2/_metadata"]);
    }

    #[tokio::test]
    async fn metadata_waits_while_deletions_are_behind() {
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), Some(Storage::in_memory()));
        let discards: Vec<_> =
            (0..BACKLOG_MAX as u64).map(|id| checkpoints.discard(CheckpointId(id), &[], true).unwrap()).collect();
        let error = checkpoints.write(checkpoint(99), 20).unwrap().await.unwrap_err();
        assert!(error.to_string().contains("behind"), "{error}");
        let writing = checkpoints.write(checkpoint(100), 60_000).unwrap();
        discards.into_iter().next().unwrap().await;
        checkpoints.discarded();
        writing.await.unwrap();
    }

    #[test]
    fn without_a_directory_nothing_is_written() {
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), None);
        assert!(checkpoints.write(checkpoint(1), 1_000).is_none());
        assert!(checkpoints.discard(CheckpointId(1), &[snapshot("chk-1/a")], true).is_none());
    }
}
