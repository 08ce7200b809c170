//! A job's driver: owns the job's machine, performs its effects, brings their results back as events.
//!
//! One loop, one inbox. Whatever takes time (storage, deletions) runs beside the loop and comes back to it. Must never know:
//! when to restart, what a checkpoint needs to be complete (the core decides both).

mod acknowledge;
mod deploy;
mod perform;
mod run;
mod savepoint;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use levada_common::checkpoint::{DeclineReason, TaskSnapshot};
use levada_common::ids::{AttemptId, CheckpointId, JobId, TaskId};
use levada_common::plan::Plan;
use levada_jobmanager_core::alignment::SourceTime;
use levada_jobmanager_core::event::TaskState;
use levada_jobmanager_core::{RestoreBase, SavepointRequest};
use levada_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(crate) use run::{Context, spawn};

/// Events that wait for a driver.
const INBOX: usize = 1024;

/// A job as it was submitted.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub id: JobId,
    pub submitted_at_ms: u64,
    pub plan: Arc<Plan>,
    /// Each source's splits, by vertex, but of those that `base` knows.
    pub splits: std::collections::BTreeMap<u32, Vec<String>>,
    /// What it begins with.
    pub base: Option<RestoreBase>,
}

/// An acknowledgement, decoded.
#[derive(Debug)]
pub(crate) struct Acknowledgement {
    pub attempt: AttemptId,
    pub checkpoint: CheckpointId,
    pub snapshot: TaskSnapshot,
    /// Its size on the wire.
    pub message_bytes: u64,
}

/// What a driver hears.
enum Event {
    Task { attempt: AttemptId, task: TaskId, state: TaskState },
    Reports(Vec<(AttemptId, TaskId, v1::TaskReport)>),
    SourceTime { attempt: AttemptId, task: TaskId, time: SourceTime },
    Acknowledge { acknowledgement: Acknowledgement, reply: oneshot::Sender<bool> },
    Decline { attempt: AttemptId, checkpoint: CheckpointId, task: TaskId, reason: DeclineReason, reply: oneshot::Sender<()> },
    FetchState { attempt: AttemptId, inline_id: u64, reply: oneshot::Sender<Option<Bytes>> },
    Savepoint { request: SavepointRequest, reply: oneshot::Sender<Option<v1::SavepointStatus>> },
    Checkpoint(oneshot::Sender<Result<CheckpointId, String>>),
    Retained(oneshot::Sender<Vec<v1::RetainedCheckpoint>>),
    Cancel(oneshot::Sender<(bool, v1::JobStatus)>),
    Describe(oneshot::Sender<v1::JobStatus>),
}

/// A driver as others see it. `None` answers mean that the driver has gone.
#[derive(Debug, Clone)]
pub(crate) struct DriverHandle {
    tx: mpsc::Sender<Event>,
    ended: CancellationToken,
    last: Arc<OnceLock<Arc<v1::JobStatus>>>,
}

impl DriverHandle {
    /// Cancelled once the job is in a state that it does not leave.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.tx.send(event(reply)).await.ok()?;
        answer.await.ok()
    }

    /// What a task says of itself, and its counters at that moment.
    pub(crate) async fn task(&self, attempt: AttemptId, task: TaskId, state: TaskState, report: Option<v1::TaskReport>) {
        // A driver that has gone needs no news.
        if let Some(report) = report {
            let _ = self.tx.send(Event::Reports(vec![(attempt, task, report)])).await;
        }
        let _ = self.tx.send(Event::Task { attempt, task, state }).await;
    }

    /// Counters of tasks; dropped where the driver is busy, since the next ones replace them.
    pub(crate) fn report(&self, reports: Vec<(AttemptId, TaskId, v1::TaskReport)>) {
        let _ = self.tx.try_send(Event::Reports(reports));
    }

    /// How far a source has come; dropped where the driver is busy, since its next counters say it too.
    pub(crate) fn source_time(&self, attempt: AttemptId, task: TaskId, time: SourceTime) {
        let _ = self.tx.try_send(Event::SourceTime { attempt, task, time });
    }

    /// Answers whether the snapshot was taken.
    pub(crate) async fn acknowledge(&self, acknowledgement: Acknowledgement) -> bool {
        self.ask(|reply| Event::Acknowledge { acknowledgement, reply }).await.unwrap_or(false)
    }

    pub(crate) async fn decline(&self, attempt: AttemptId, checkpoint: CheckpointId, task: TaskId, reason: DeclineReason) {
        self.ask(|reply| Event::Decline { attempt, checkpoint, task, reason, reply }).await;
    }

    /// The bytes of an inline state, where `attempt` is the current one and was given this number.
    pub(crate) async fn fetch_state(&self, attempt: AttemptId, inline_id: u64) -> Option<Bytes> {
        self.ask(|reply| Event::FetchState { attempt, inline_id, reply }).await.flatten()
    }

    /// Asks for a savepoint. Answers the one that the request is answered with: its own, or the one that ends the job already;
    /// `None` within where too many wait.
    pub(crate) async fn savepoint(&self, request: SavepointRequest) -> Option<Option<v1::SavepointStatus>> {
        self.ask(|reply| Event::Savepoint { request, reply }).await
    }

    /// Asks for a checkpoint. Answers the least id that it can have; within, why there can be none now.
    pub(crate) async fn checkpoint(&self) -> Option<Result<CheckpointId, String>> {
        self.ask(Event::Checkpoint).await
    }

    /// The completed checkpoints that are kept, newest first.
    pub(crate) async fn retained(&self) -> Option<Vec<v1::RetainedCheckpoint>> {
        self.ask(Event::Retained).await
    }

    /// Answers whether the job could still be cancelled, and its status.
    pub(crate) async fn cancel(&self) -> Option<(bool, v1::JobStatus)> {
        self.ask(Event::Cancel).await
    }

    /// The job's status; that of its end where the driver has gone. `None` where it went without one.
    pub(crate) async fn describe(&self) -> Option<Arc<v1::JobStatus>> {
        match self.ask(Event::Describe).await {
            Some(status) => Some(Arc::new(status)),
            None => self.last.get().cloned(),
        }
    }
}
