//! One snapshot from its parts to its acknowledgement.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use levada_common::checkpoint::{DeclineReason, Handle, StateHandle, TaskSnapshot};
use levada_common::ids::CheckpointId;
use levada_common::storage::Storage;
use levada_proto::convert::{state_to_message, task_to_ref};
use levada_proto::{encoded_len, v1};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::encode::{Encoded, Stopped, encode_all};
use super::{Destination, Taken, Uploads, database};
use crate::rpc::{Answer, Backoff, status_text};

/// First and last pause between tries of a write.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Paths of files that were begun for one snapshot; shared, so that they are known after its future was dropped.
type Begun = Arc<Mutex<Vec<String>>>;

/// Sends one snapshot.
pub async fn send(uploads: &Arc<Uploads>, taken: Taken, cancelled: &CancellationToken) {
    let (task, checkpoint) = (taken.task, taken.checkpoint);
    let deadline = Instant::now() + uploads.timeout();
    let begun = Begun::default();
    let prepared = tokio::select! {
        prepared = prepare(uploads, taken, deadline, &begun) => prepared,
        () = cancelled.cancelled() => Err(Stopped::GivenUp),
    };
    match prepared {
        // From here on the answer decides whose the files are, so it is waited for even while the attempt is cancelled.
        Ok(request) => acknowledge(uploads, request, deadline, &begun).await,
        Err(stopped) => {
            delete(uploads, &begun).await;
            match stopped {
                Stopped::GivenUp => tracing::debug!(%task, %checkpoint, "a snapshot was given up"),
                Stopped::Declined(reason) => uploads.send_decline(task, checkpoint, &reason).await,
            }
        }
    }
}

/// Encodes and stores everything, and measures the acknowledgement.
async fn prepare(
    uploads: &Uploads,
    taken: Taken,
    deadline: Instant,
    begun: &Begun,
) -> Result<v1::AcknowledgeCheckpointRequest, Stopped> {
    let Taken { task, checkpoint, finished, parts, durable, sync_ns } = taken;
    let state_bytes_max = match &uploads.destination {
        Destination::Inline { state_bytes_max } => Some(*state_bytes_max),
        Destination::Files { .. } => None,
    };
    let (parts, databases) = match &uploads.destination {
        Destination::Inline { .. } => (parts, Vec::new()),
        Destination::Files { inline_bytes_max, .. } => database::split(parts, *inline_bytes_max).await?,
    };
    let encoded = encode_all(&uploads.plan, task, parts, durable, state_bytes_max).await?;
    let states = match &uploads.destination {
        Destination::Inline { .. } => encoded.into_iter().map(|encoded| encoded.state).collect(),
        Destination::Files { storage, inline_bytes_max, inline_sum_max } => {
            let folder = format!("chk-{checkpoint}/{}-{}", uploads.attempt.epoch, uploads.attempt.attempt);
            let store = Store { storage, folder, deadline, begun };
            let mut states = database::store(uploads, &store, (task, checkpoint), databases).await?;
            states.extend(store.place(encoded, *inline_bytes_max, *inline_sum_max).await?);
            states
        }
    };
    measured(uploads, TaskSnapshot { task, finished, states }, checkpoint, sync_ns)
}

/// The acknowledgement, if it fits a frame.
fn measured(
    uploads: &Uploads,
    snapshot: TaskSnapshot,
    checkpoint: CheckpointId,
    sync_ns: u64,
) -> Result<v1::AcknowledgeCheckpointRequest, Stopped> {
    let largest = snapshot.states.iter().max_by_key(|state| match &state.handle {
        Handle::Inline(bytes) => bytes.len(),
        Handle::File { .. } | Handle::Database { .. } => 0,
    });
    let largest = largest.map(|state| (state.uid.clone(), state.name.clone(), state.handle.length()));
    let task = snapshot.task;
    let request = v1::AcknowledgeCheckpointRequest {
        task: Some(task_to_ref(uploads.attempt, task)),
        checkpoint: checkpoint.0,
        finished: snapshot.finished,
        states: snapshot.states.into_iter().map(state_to_message).collect(),
        sync_ns,
    };
    let (size_bytes, limit_bytes) = (encoded_len(&request), uploads.job_manager.frame_bytes());
    match largest {
        Some((uid, state, state_bytes)) if size_bytes > limit_bytes => {
            Err(Stopped::Declined(DeclineReason::FrameTooLarge { task, uid, state, state_bytes, size_bytes, limit_bytes }))
        }
        _ => Ok(request),
    }
}

/// Puts states into files.
pub(super) struct Store<'a> {
    storage: &'a Storage,
    /// What the paths begin with.
    pub(super) folder: String,
    deadline: Instant,
    begun: &'a Begun,
}

impl Store<'_> {
    /// Decides for each state whether it stays inline, smallest first so that most do, and writes the others.
    async fn place(&self, encoded: Vec<Encoded>, each_max: u64, sum_max: u64) -> Result<Vec<StateHandle>, Stopped> {
        let mut by_size: Vec<usize> = (0..encoded.len()).collect();
        by_size.sort_by_key(|place| encoded[*place].bytes.len());
        let (mut inline, mut sum) = (vec![false; encoded.len()], 0);
        for place in by_size {
            let bytes = encoded[place].bytes.len() as u64;
            if bytes <= each_max && sum + bytes <= sum_max {
                sum += bytes;
                inline[place] = true;
            }
        }
        let placed = encoded.into_iter().zip(inline).map(|(Encoded { state, bytes }, inline)| async move {
            if inline { Ok(state) } else { self.write(state, bytes).await }
        });
        futures::future::try_join_all(placed).await
    }

    async fn write(&self, state: StateHandle, bytes: Bytes) -> Result<StateHandle, Stopped> {
        let path = format!("{}-{}", self.folder, Uuid::new_v4().simple());
        let length = bytes.len() as u64;
        self.put(&path, bytes).await?;
        Ok(StateHandle { handle: Handle::File { path, offset: 0, length }, ..state })
    }

    /// Writes a file of this snapshot, which is deleted if the snapshot does not come about.
    pub(super) async fn put(&self, path: &str, bytes: Bytes) -> Result<(), Stopped> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(path.into());
        let mut backoff = Backoff::new(RETRY_PAUSE.0, RETRY_PAUSE.1);
        loop {
            let wrote = tokio::time::timeout_at(self.deadline, self.storage.put(path, bytes.clone())).await;
            let cause = match wrote {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it took longer than the checkpoint's timeout".into(),
            };
            let pause = backoff.pause();
            if Instant::now() + pause >= self.deadline {
                return Err(Stopped::Declined(DeclineReason::StorageWrite { path: path.into(), cause }));
            }
            tracing::warn!(path, cause, "writing state failed; it is tried again");
            tokio::time::sleep(pause).await;
        }
    }
}

async fn acknowledge(uploads: &Uploads, request: v1::AcknowledgeCheckpointRequest, deadline: Instant, begun: &Begun) {
    match uploads.job_manager.acknowledge(&request, deadline).await {
        Ok(Answer::Taken) => {}
        Ok(Answer::Discarded) => {
            tracing::debug!(checkpoint = request.checkpoint, "a snapshot came too late");
            delete(uploads, begun).await;
        }
        // The JobManager may or may not count on the files: they stay.
        Ok(Answer::Unclear) => tracing::debug!(checkpoint = request.checkpoint, "a snapshot was taken before, or too late"),
        Err(status) => {
            tracing::warn!(checkpoint = request.checkpoint, "acknowledging a snapshot failed: {}", status_text(&status));
        }
    }
}

/// Deletes what was written, as far as it can be.
async fn delete(uploads: &Uploads, begun: &Begun) {
    let Destination::Files { storage, .. } = &uploads.destination else { return };
    let paths = std::mem::take(&mut *begun.lock().unwrap_or_else(PoisonError::into_inner));
    for path in paths {
        if let Err(error) = storage.delete(&path).await {
            tracing::warn!(path, %error, "a file of a snapshot that is not wanted stays behind");
        }
    }
}
