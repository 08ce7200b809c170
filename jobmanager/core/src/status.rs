//! What the core says of a job to whoever asks: plain values, taken at one moment.

use std::fmt;

use levada_common::ids::{Attempt, CheckpointId, TaskId, TaskManagerId};

use crate::savepoints::SavepointStatus;

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waits for slots.
    Scheduled,
    /// Its tasks were deployed and have not all reported.
    Deploying,
    /// Every task works, or has seen the end of its data.
    Running,
    /// Failed, and waits for its next attempt.
    Restarting,
    /// Failed for good; its tasks are being ended.
    Failing,
    /// Cancelled by the user; its tasks are being ended.
    Cancelling,
    /// All data was processed and published.
    Finished,
    /// Failed for good.
    Failed,
    /// Cancelled by the user.
    Canceled,
}

impl JobState {
    /// Whether the job stays in this state for ever.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Canceled)
    }

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::Deploying => "DEPLOYING",
            Self::Running => "RUNNING",
            Self::Restarting => "RESTARTING",
            Self::Failing => "FAILING",
            Self::Cancelling => "CANCELLING",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a task is in its life, as the JobManager knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskPhase {
    /// Has no place yet.
    Created,
    /// Deployed; has not reported.
    Deploying,
    /// Restored and working.
    Running,
    /// Saw the end of its data; takes part in checkpoints.
    Finishing,
    /// Done and published.
    Finished,
    /// Failed by itself.
    Failed,
    /// Ended because it was told to.
    Canceled,
    /// Its TaskManager is lost.
    Lost,
}

impl TaskPhase {
    /// Whether the task has begun to work and has not ended.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Finishing)
    }

    /// Whether nothing of the task is left on its TaskManager, as far as one can know.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Created | Self::Finished | Self::Failed | Self::Canceled | Self::Lost)
    }

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Deploying => "DEPLOYING",
            Self::Running => "RUNNING",
            Self::Finishing => "FINISHING",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
            Self::Lost => "LOST",
        }
    }
}

impl fmt::Display for TaskPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A job at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSnapshot {
    /// Where it is in its life.
    pub state: JobState,
    /// The newest attempt; 0 before the first was deployed.
    pub attempt: Attempt,
    /// Attempts deployed after the first.
    pub restarts: u32,
    /// The first failure of the newest failed attempt, naming task and place.
    pub failure: Option<String>,
    /// Why the job is DEGRADED, where it is.
    pub degraded: Option<String>,
    /// What a job that waits is waiting for.
    pub waiting_for: Option<String>,
    /// Wall-clock time of the end, milliseconds since 1970.
    pub ended_at_ms: Option<u64>,
    /// Its checkpoints.
    pub checkpoints: CheckpointsStatus,
    /// Its savepoints, newest first, at most 20.
    pub savepoints: Vec<SavepointStatus>,
    /// The snapshot that it was submitted with.
    pub started_from: Option<StartedFrom>,
    /// What the newest attempt was restored from.
    pub restored: Option<CheckpointId>,
    /// Every task of the plan, by vertex and subtask.
    pub tasks: Vec<TaskStatus>,
}

/// The snapshot that a job was submitted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedFrom {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// Whether it is a savepoint.
    pub savepoint: bool,
    /// URI of the directory below which its files are.
    pub directory: String,
}

/// A task at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// The task.
    pub task: TaskId,
    /// The name of its vertex.
    pub name: String,
    /// Where it is in its life.
    pub phase: TaskPhase,
    /// Where it runs or last ran.
    pub task_manager: Option<TaskManagerId>,
}

/// The checkpoints and savepoints of a job at one moment. Always: `triggered` = `completed` + `failed` + `in_progress`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointsStatus {
    /// Checkpoints begun.
    pub triggered: u64,
    /// Checkpoints whose metadata was written.
    pub completed: u64,
    /// Checkpoints given up.
    pub failed: u64,
    /// Checkpoints under way: 0 or 1.
    pub in_progress: u64,
    /// Failures in a row that count against the tolerable ones; declines for size and savepoints do not.
    pub consecutive_failures: u32,
    /// The newest checkpoint (no savepoint) that completed.
    pub last_completed: Option<CheckpointRecord>,
    /// The newest checkpoint (no savepoint) that failed.
    pub last_failed: Option<CheckpointRecord>,
    /// Those that ended, newest first, at most 20.
    pub history: Vec<CheckpointRecord>,
    /// Milliseconds since the newest completed one was triggered.
    pub age_ms: Option<u64>,
}

/// A checkpoint that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Its id.
    pub id: CheckpointId,
    /// Whether it is a savepoint.
    pub savepoint: bool,
    /// Wall-clock time of the trigger, milliseconds since 1970.
    pub triggered_at_ms: u64,
    /// From trigger to end, in milliseconds.
    pub duration_ms: u64,
    /// Bytes of state acknowledged.
    pub bytes: u64,
    /// Those of them that came inside acknowledgements.
    pub inline_bytes: u64,
    /// Why it failed; `None` where it completed.
    pub failure: Option<String>,
    /// The file of a completed one; empty where it lives in the JobManager only, or failed.
    pub metadata: String,
}
