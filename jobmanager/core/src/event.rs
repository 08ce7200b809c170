//! What can happen to a job, and what is to be done about it: the whole interface of the core.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, DeclineReason, StateHandle, TaskSnapshot};
use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, TaskId, TaskManagerId};

use crate::savepoints::SavepointRequest;

/// A TaskManager as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskManagerInfo {
    /// The process.
    pub id: TaskManagerId,
    /// host:port of its data port.
    pub data_address: String,
    /// Slots that this job may use now: those free, and those it holds already.
    pub slots: u32,
    /// Memory for channels between TaskManagers, in bytes.
    pub network_memory_bytes: u64,
}

/// What a task says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// Restored and working.
    Running,
    /// Saw the end of its input and has drained; takes part in checkpoints.
    Finishing,
    /// The final checkpoint was notified.
    Finished,
    /// Failed by itself.
    Failed(Failure),
    /// Ended because it was told to.
    Canceled,
}

/// What happens to one job. Events of an attempt that is not the current one are dropped at the top of `handle`, but for
/// `MetadataWritten`, which is the answer to an effect and no task's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The job begins: the first event. First start is recovery from nothing.
    Start {
        /// Each source's splits, by vertex, as listed by its connector; used only for sources that no snapshot knows.
        splits: BTreeMap<u32, Vec<String>>,
    },
    /// The TaskManagers (and their slots for this job) that there are now, all of them; sent at each change.
    Resources(Vec<TaskManagerInfo>),
    /// A TaskManager is gone: its stream broke or its heartbeats stopped. Followed by `Resources`.
    TaskManagerLost {
        /// Which.
        id: TaskManagerId,
        /// How it was noticed.
        reason: String,
    },
    /// A task says something of itself.
    Task {
        /// Its attempt.
        attempt: AttemptId,
        /// The task.
        task: TaskId,
        /// What.
        state: TaskState,
    },
    /// A task's snapshot is done.
    SnapshotTaken {
        /// Its attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The snapshot.
        snapshot: TaskSnapshot,
    },
    /// A task's snapshot cannot be had, or the JobManager refuses it (frame, budget).
    SnapshotDeclined {
        /// Its attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The task.
        task: TaskId,
        /// Why.
        reason: DeclineReason,
    },
    /// `Effect::WriteMetadata` was done.
    MetadataWritten {
        /// Its attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The URI of the file, empty where the metadata lives in the JobManager only; or why it could not be written.
        result: Result<String, DeclineReason>,
    },
    /// The user wants a savepoint, and perhaps the job to end with it. One that cannot be taken now has failed at once.
    Savepoint(SavepointRequest),
    /// The user wants a checkpoint now (see `Machine::next_checkpoint`).
    Checkpoint,
    /// The user wants the job to end.
    Cancel,
    /// Time has come (see `Machine::deadline`).
    Tick,
}

/// A task to deploy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDeployment {
    /// The task.
    pub task: TaskId,
    /// Where.
    pub task_manager: TaskManagerId,
    /// It had seen the end of its data in the restored checkpoint.
    pub finished: bool,
    /// States to restore.
    pub states: Vec<StateAssignment>,
    /// Splits of a source at a first start.
    pub splits: Vec<String>,
}

/// A state (or a part of an operator list) that a task restores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateAssignment {
    /// The state, as it stands in the checkpoint.
    pub state: StateHandle,
    /// Number of key groups of the snapshot that it is from: the plan's, or a divisor of it. `state.key_groups` are of these.
    pub max_parallelism: u32,
    /// For an operator list: the entries [from, to) of it that are this task's; `0..rows` for any other state.
    pub entries: std::ops::Range<u64>,
}

/// What the shell is to do. Effects are performed in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start these tasks; all tasks of the attempt are in it.
    Deploy {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint that they are restored from.
        restored: Option<CheckpointId>,
        /// URI of the directory below which its files are; `None` = the job's own checkpoint directory.
        directory: Option<String>,
        /// Memory of each channel between TaskManagers, in bytes: 128 KiB to 4 MiB.
        channel_window_bytes: u64,
        /// The tasks.
        tasks: Vec<TaskDeployment>,
    },
    /// End every task of the attempt on these TaskManagers.
    CancelAttempt {
        /// The attempt.
        attempt: AttemptId,
        /// Where it has tasks.
        task_managers: Vec<TaskManagerId>,
    },
    /// Tell these tasks (those without live input) to put a barrier into their stream, or to snapshot if they are finishing.
    TriggerCheckpoint {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it is taken for.
        kind: CheckpointKind,
        /// Where each task is.
        tasks: Vec<(TaskManagerId, TaskId)>,
        /// Everything stays inline (a final checkpoint of a job without checkpointing, or the memory backend).
        inline: bool,
    },
    /// Tell these sources that their data ends here: the job is drained.
    EndSources {
        /// The attempt.
        attempt: AttemptId,
        /// Where each source is.
        tasks: Vec<(TaskManagerId, TaskId)>,
    },
    /// Write the checkpoint's `_metadata` (or, without a directory, keep it in memory), then answer `MetadataWritten`, always:
    /// until then the next attempt waits (at most `within_ms`), since a checkpoint may be durable that no one knows of.
    WriteMetadata {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        metadata: CheckpointMetadata,
        /// Where it goes: a savepoint into its own folder, with its manifest.
        kind: CheckpointKind,
        /// What is left of the checkpoint's time, in milliseconds: the answer is due within it, whatever it is.
        within_ms: u64,
    },
    /// Tell every task of the attempt that the checkpoint is complete, or given up.
    NotifyCheckpoint {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Completed, or given up.
        completed: bool,
        /// Tasks that are finishing are finished with it.
        last: bool,
        /// Where the attempt has tasks.
        task_managers: Vec<TaskManagerId>,
    },
    /// Delete what a checkpoint that was given up or replaced holds (but for shared files), and forget its inline bytes. Of a
    /// savepoint that was given up the whole folder goes.
    DiscardCheckpoint {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it was taken for.
        kind: CheckpointKind,
        /// States acknowledged so far (their files are to be deleted).
        tasks: Vec<TaskSnapshot>,
    },
    /// Nothing of an acknowledgement is wanted: delete its files (answered "discard" to the sender as well). A
    /// `SnapshotTaken` that causes none was taken, or repeats one that was: its sender is answered "accepted".
    DiscardSnapshot {
        /// The checkpoint that it was for.
        checkpoint: CheckpointId,
        /// What that was taken for, as far as it is known.
        kind: CheckpointKind,
        /// The snapshot.
        snapshot: TaskSnapshot,
    },
    /// The job has a checkpoint of its own: what it began with is not needed any more, so forget its inline bytes. Its files are not
    /// the job's.
    ForgetBase {
        /// The snapshot.
        checkpoint: CheckpointId,
    },
    /// No snapshot needs these files in the folder that snapshots share: delete them.
    DeleteShared {
        /// Paths below the job's checkpoint directory.
        files: Vec<String>,
    },
    /// Delete what stands in the folder that snapshots share, was written by an attempt before this one and is not to be kept: a task
    /// that was killed could not say what it had written.
    SweepShared {
        /// The attempt; `None` = the job has ended, and what any attempt wrote goes.
        before: Option<AttemptId>,
        /// Paths below the job's checkpoint directory that snapshots name.
        keep: BTreeSet<String>,
    },
    /// The job's slots are free again: it has ended, or it waits for more slots than there are and must not keep these from others.
    ReleaseSlots,
}
