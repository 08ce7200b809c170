//! Snapshots on their way out of a task: encoded, made durable, stored, acknowledged.
//!
//! One future per snapshot, on the snapshot runtime; encoding and a sink's durable work run on its blocking threads. Nothing is
//! silent: a snapshot ends acknowledged, declined with a reason, or given up because its checkpoint or attempt was.
//! Invariant: a file is deleted only if the JobManager cannot count on it: before it was told of it, or after it said so.

mod database;
mod destination;
mod encode;
mod snapshot;
mod store;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_common::checkpoint::{CheckpointKind, DatabaseFile, DeclineReason};
use levada_common::ids::{AttemptId, CheckpointId, TaskId, Uid};
use levada_common::plan::Plan;
use levada_common::storage::Storage;
use levada_engine::sink::Durable;
use levada_proto::convert::{decline_to_json, task_to_ref};
use levada_proto::v1;
use levada_state::snapshot::StatePart;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::rpc::{JobManager, status_text};

pub use database::DatabaseTraffic;
pub use destination::Destination;
pub use encode::key_groups;

use database::KnownFiles;
use snapshot::Begun;
use store::Store;

/// Files of databases that are copied at once, of all tasks of an attempt: an object store has up to 64 MiB of each in memory.
const COPIES_AT_ONCE: usize = 3;

/// A snapshot whose synchronous part is done.
pub struct Taken {
    /// The task.
    pub task: TaskId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What it is taken for: a savepoint goes into its own folder, in files, in the open format.
    pub kind: CheckpointKind,
    /// The task had seen the end of all its data.
    pub finished: bool,
    /// Its states.
    pub parts: Vec<StatePart>,
    /// To be run before the acknowledgement.
    pub durable: Vec<Durable>,
    /// Nanoseconds of the synchronous part.
    pub sync_ns: u64,
}

#[derive(Default)]
struct Running {
    snapshots: HashMap<(TaskId, CheckpointId), CancellationToken>,
    /// The newest checkpoint that was given up; older ones are over too.
    given_up: Option<CheckpointId>,
}

/// The snapshots of one attempt.
pub struct Uploads {
    attempt: AttemptId,
    plan: Arc<Plan>,
    job_manager: JobManager,
    destination: Destination,
    scratch: PathBuf,
    pool: Handle,
    tracker: TaskTracker,
    cancelled: CancellationToken,
    running: Mutex<Running>,
    known: Mutex<KnownFiles>,
    traffic: Arc<DatabaseTraffic>,
    /// Room for files of databases that are copied.
    copies: Semaphore,
}

impl Uploads {
    /// Snapshots of `attempt`, sent to `destination` and acknowledged to `job_manager`, on the runtime of `pool`. What is too large for
    /// memory and cannot be written in its place is in the folder `scratch` until it is uploaded.
    pub fn new(
        attempt: AttemptId,
        plan: Arc<Plan>,
        job_manager: JobManager,
        destination: Destination,
        traffic: Arc<DatabaseTraffic>,
        scratch: PathBuf,
        pool: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            attempt,
            plan,
            job_manager,
            destination,
            scratch,
            pool,
            tracker: TaskTracker::new(),
            cancelled: CancellationToken::new(),
            running: Mutex::default(),
            known: Mutex::default(),
            traffic,
            copies: Semaphore::new(COPIES_AT_ONCE),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, storage: Storage, folder: String, is_readable: bool, deadline: Instant, begun: &Begun) -> Store {
        Store { storage, folder, is_readable, scratch: self.scratch.clone(), deadline, begun: Arc::clone(begun) }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.plan.settings.checkpoint.timeout_ms)
    }

    /// Sends a snapshot; returns at once.
    pub fn submit(self: &Arc<Self>, taken: Taken) {
        let key = (taken.task, taken.checkpoint);
        let cancelled = self.cancelled.child_token();
        {
            let mut running = self.lock();
            if running.given_up.is_some_and(|given_up| taken.checkpoint <= given_up) {
                return tracing::debug!(checkpoint = %taken.checkpoint, "a snapshot came after its checkpoint was given up");
            }
            running.snapshots.insert(key, cancelled.clone());
        }
        let uploads = Arc::clone(self);
        self.tracker.spawn_on(
            async move {
                snapshot::send(&uploads, taken, &cancelled).await;
                uploads.lock().snapshots.remove(&key);
            },
            &self.pool,
        );
    }

    /// Tells the JobManager that a task's snapshot cannot be had; returns at once.
    pub fn decline(self: &Arc<Self>, task: TaskId, checkpoint: CheckpointId, reason: DeclineReason) {
        let uploads = Arc::clone(self);
        self.tracker.spawn_on(async move { uploads.send_decline(task, checkpoint, &reason).await }, &self.pool);
    }

    async fn send_decline(&self, task: TaskId, checkpoint: CheckpointId, reason: &DeclineReason) {
        tracing::warn!(attempt = %self.attempt, %task, %checkpoint, %reason, "a snapshot was declined");
        let request = v1::DeclineCheckpointRequest {
            task: Some(task_to_ref(self.attempt, task)),
            checkpoint: checkpoint.0,
            reason_json: decline_to_json(reason),
        };
        if let Err(status) = self.job_manager.decline(&request, Instant::now() + self.timeout()).await {
            tracing::warn!(attempt = %self.attempt, %task, %checkpoint, "declining failed: {}", status_text(&status));
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownFiles> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task's database was made of one whose files are a checkpoint's of this job: they need not be written again.
    pub fn restored(&self, task: TaskId, uid: Uid, files: Arc<[DatabaseFile]>) {
        self.known().restored(task, uid, &files);
    }

    /// The checkpoint is complete: later ones may refer to its files.
    pub fn complete(&self, checkpoint: CheckpointId) {
        self.known().complete(checkpoint);
    }

    /// The checkpoint was given up: snapshots for it (and before it) end, and their files go.
    pub fn give_up(&self, checkpoint: CheckpointId) {
        self.known().give_up(checkpoint);
        let mut running = self.lock();
        running.given_up = running.given_up.max(Some(checkpoint));
        for ((_, of), cancelled) in &running.snapshots {
            if *of <= checkpoint {
                cancelled.cancel();
            }
        }
    }

    /// Waits until every snapshot that was submitted has ended.
    #[cfg(test)]
    pub async fn settled(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// The attempt is being cancelled: all its snapshots end.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }
}

#[cfg(test)]
mod tests;
