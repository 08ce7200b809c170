//! One snapshot from its parts to its acknowledgement.
//!
//! A checkpoint goes to the job's destination. A savepoint goes into its folder: each state a file, none inline, none shared, so
//! that the folder is all there is of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levada_common::checkpoint::{DeclineReason, Handle, TaskSnapshot};
use levada_common::ids::CheckpointId;
use levada_common::savepoint::checkpoint_folder;
use levada_common::storage::{Storage, retried};
use levada_proto::convert::{state_to_message, task_to_ref};
use levada_proto::{encoded_len, v1};
use levada_state::snapshot::StatePart;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::encode::{Stopped, encode_all, not_stored};
use super::{Destination, Taken, Uploads, database};
use crate::rpc::{Answer, status_text};

/// How long the files of a snapshot that is not wanted are tried to be deleted; what is left then goes with the checkpoint.
const DELETE_TIMEOUT: Duration = Duration::from_secs(60);

/// Files that were begun for one snapshot, and where; shared, so that they are known after its future was dropped.
pub(super) type Begun = Arc<Mutex<Vec<(Storage, String)>>>;

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
            delete(&begun).await;
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
    let Taken { task, checkpoint, kind, finished, parts, durable, sync_ns } = taken;
    let plan = &uploads.plan;
    let states = match (kind.savepoint(), &uploads.destination) {
        (Some(directory), _) => {
            let store = uploads.store(open_savepoint(directory)?, "state".into(), true, deadline, begun);
            let (databases, parts): (Vec<_>, Vec<_>) = parts.into_iter().partition(StatePart::is_in_database);
            let encoded = encode_all(plan, task, parts, durable, None, Some(&store)).await?;
            let mut states = store.write_all(encoded).await?;
            // One after the other, so that the disk that they pass through needs room for the largest of them only.
            for state in databases {
                let encoded = encode_all(plan, task, vec![state], Vec::new(), None, Some(&store)).await?;
                states.extend(store.write_all(encoded).await?);
            }
            states
        }
        // Rows, whatever database they are in.
        (None, Destination::Inline { state_bytes_max }) => {
            let encoded = encode_all(plan, task, parts, durable, Some(*state_bytes_max), None).await?;
            encoded.into_iter().map(|encoded| encoded.state).collect()
        }
        (None, Destination::Files { storage, inline_bytes_max, inline_sum_max }) => {
            let folder = format!("{}/{}-{}", checkpoint_folder(checkpoint), uploads.attempt.epoch, uploads.attempt.attempt);
            let store = uploads.store(storage.clone(), folder, false, deadline, begun);
            let (parts, databases) = database::split(parts, *inline_bytes_max).await?;
            let encoded = encode_all(plan, task, parts, durable, None, Some(&store)).await?;
            let mut states = database::store(uploads, &store, (task, checkpoint), databases).await?;
            states.extend(store.place(encoded, *inline_bytes_max, *inline_sum_max).await?);
            states
        }
    };
    measured(uploads, TaskSnapshot { task, finished, states }, checkpoint, sync_ns)
}

fn open_savepoint(directory: &str) -> Result<Storage, Stopped> {
    Storage::open(directory).map_err(|error| not_stored(directory, &error))
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

async fn acknowledge(uploads: &Uploads, request: v1::AcknowledgeCheckpointRequest, deadline: Instant, begun: &Begun) {
    match uploads.job_manager.acknowledge(&request, deadline).await {
        Ok(Answer::Taken) => {}
        Ok(Answer::Discarded) => {
            tracing::debug!(checkpoint = request.checkpoint, "a snapshot came too late");
            delete(begun).await;
        }
        // The JobManager may or may not count on the files: they stay.
        Ok(Answer::Unclear) => tracing::debug!(checkpoint = request.checkpoint, "a snapshot was taken before, or too late"),
        Err(status) => {
            tracing::warn!(checkpoint = request.checkpoint, "acknowledging a snapshot failed: {}", status_text(&status));
        }
    }
}

/// Deletes what was written, and what was only begun by futures that are dropped, as far as it can be. Nobody else looks for it: the
/// JobManager deletes a checkpoint's folder when it gives that up, which may be earlier.
async fn delete(begun: &Begun) {
    let files = std::mem::take(&mut *begun.lock().unwrap_or_else(PoisonError::into_inner));
    let mut storages = BTreeMap::<String, (Storage, BTreeSet<String>)>::new();
    for (storage, path) in files {
        let (_, paths) = storages.entry(storage.uri().to_owned()).or_insert_with(|| (storage, BTreeSet::new()));
        paths.insert(path);
    }
    for (storage, paths) in storages.into_values() {
        for path in &paths {
            if let Err(error) = retried(Instant::now() + DELETE_TIMEOUT, || storage.delete(path)).await {
                tracing::warn!(path, %error, "a file of a snapshot that is not wanted stays behind");
            }
        }
        if let Err(error) = retried(Instant::now() + DELETE_TIMEOUT, || storage.remove_begun(&paths)).await {
            tracing::warn!(storage = storage.uri(), %error, "files of a snapshot that is not wanted were begun and may stay behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn nothing_stays_of_a_snapshot_that_is_not_wanted() {
        let storage = Storage::in_memory();
        let begun = Begun::default();
        // `b` was dropped while it was written; others' files stay.
        for name in ["chk-1/a", "chk-1/.b.tmp.1", "chk-1/c", "chk-1/.d.tmp.1"] {
            storage.put(name, Bytes::new()).await.unwrap();
        }
        begun.lock().unwrap().extend(["chk-1/a", "chk-1/b"].map(|path| (storage.clone(), path.to_owned())));
        delete(&begun).await;
        let left: Vec<String> = storage.list("").await.unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(left, ["chk-1/.d.tmp.1", "chk-1/c"]);
    }
}
