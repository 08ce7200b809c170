//! Checkpoints as the JobManager keeps them: per operator, per subtask, a handle for each state.
//!
//! Must never know how state is encoded (that is `levada-state`) or stored (that is `storage`).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, Uid};
use crate::keys::KeyGroupRange;

/// Where a state's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handle {
    /// In the acknowledgement, later in the JobManager's memory and `_metadata`.
    Inline(Bytes),
    /// In a file. `path` is relative to the job's checkpoint directory, so that it can be moved.
    File {
        /// Relative path with `/`.
        path: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

impl Handle {
    /// Number of bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }
}

/// What a state is, which decides how it is given out at a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Per key, by key group.
    Keyed,
    /// A list of one operator subtask; concatenated in subtask order and split again.
    OperatorList,
}

/// One state of one operator subtask in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateHandle {
    /// The operator.
    pub uid: Uid,
    /// The state's name within the operator.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// The subtask that wrote it.
    pub subtask: SubtaskIndex,
    /// The key groups that it holds; for operator state the whole range.
    pub key_groups: KeyGroupRange,
    /// Entries in it.
    pub rows: u64,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
    /// Where the bytes are.
    pub handle: Handle,
}

/// A task's snapshot, as acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSnapshot {
    /// The task.
    pub task: TaskId,
    /// Whether the task had seen the end of all its input: a task restored from this emits nothing again.
    pub finished: bool,
    /// Its states.
    pub states: Vec<StateHandle>,
}

impl TaskSnapshot {
    /// Bytes that travel inside the acknowledgement.
    pub fn inline_bytes(&self) -> u64 {
        self.states
            .iter()
            .map(|state| match &state.handle {
                Handle::Inline(bytes) => bytes.len() as u64,
                Handle::File { .. } => 0,
            })
            .sum()
    }

    /// Bytes of state in all.
    pub fn bytes(&self) -> u64 {
        self.states.iter().map(|state| state.handle.length()).sum()
    }
}

/// A completed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMetadata {
    /// The job.
    pub job: JobId,
    /// The leader that completed it.
    pub epoch: Epoch,
    /// Its id; (epoch, id) orders checkpoints.
    pub id: CheckpointId,
    /// Wall-clock time of the trigger, milliseconds since 1970, for people only.
    pub triggered_at_ms: u64,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Every task's snapshot.
    pub tasks: Vec<TaskSnapshot>,
}

/// Why a checkpoint did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum DeclineReason {
    /// One state is over the limit of the memory backend.
    #[error(
        "Size of the state is larger than the maximum permitted memory-backed state. Size={size_bytes}, maxSize={limit_bytes}: operator \"{uid}\", state \"{state}\", subtask {subtask}; use `state: {{ backend: fs }}` with a checkpoint.dir, or raise state.max-state-size"
    )]
    StateTooLarge {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// The subtask.
        subtask: SubtaskIndex,
        /// Bytes counted when encoding stopped.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The acknowledgement would not fit a frame.
    #[error(
        "the acknowledgement of task {task} has {size_bytes} bytes, over the frame size of {limit_bytes} bytes; largest state: operator \"{uid}\", state \"{state}\", {state_bytes} bytes; use `state: {{ backend: fs }}` with a checkpoint.dir, more parallelism, or raise rpc.frame-size"
    )]
    FrameTooLarge {
        /// The task.
        task: TaskId,
        /// Operator of the largest state in it.
        uid: Uid,
        /// The largest state in it.
        state: String,
        /// Its bytes.
        state_bytes: u64,
        /// Bytes of the acknowledgement.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The JobManager's memory for inline state is used up.
    #[error(
        "inline state of {size_bytes} bytes does not fit the JobManager's budget: {used_bytes} of {limit_bytes} bytes are used (jobmanager.inline-budget); largest: {largest}; use `state: {{ backend: fs }}` with a checkpoint.dir, or retain fewer checkpoints"
    )]
    InlineBudget {
        /// Bytes that came.
        size_bytes: u64,
        /// Bytes already held.
        used_bytes: u64,
        /// The budget.
        limit_bytes: u64,
        /// The largest states, at most five.
        largest: String,
    },
    /// State could not be written.
    #[error("writing \"{path}\" failed: {cause}")]
    StorageWrite {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// The metadata could not be written.
    #[error("writing the metadata \"{path}\" failed: {cause}")]
    Finalize {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// Time ran out.
    #[error("expired after {timeout_ms} ms; waiting for {waiting}")]
    Expired {
        /// The time allowed.
        timeout_ms: u64,
        /// Tasks that have not acknowledged.
        waiting: String,
    },
    /// A task refused or could not.
    #[error("{0}")]
    Declined(String),
    /// The attempt ended.
    #[error("the attempt ended: {0}")]
    AttemptEnded(String),
}

impl DeclineReason {
    /// Whether the next checkpoint would be refused for the same reason: the job is DEGRADED, not restarted.
    pub fn is_deterministic(&self) -> bool {
        matches!(self, Self::StateTooLarge { .. } | Self::FrameTooLarge { .. } | Self::InlineBudget { .. })
    }
}
