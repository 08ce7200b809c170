//! Checkpoints as the JobManager keeps them: per operator, per subtask, a handle for each state.
//!
//! Must never know how state is encoded (that is `levada-state`) or stored (that is `storage`).

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, Uid};
use crate::keys::KeyGroupRange;
use crate::state_schema::StateSchema;

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
    /// In a family of a database, all of whose files are needed to read it. The states of one operator share the database.
    Database {
        /// The files, in the order of their names.
        files: Arc<[DatabaseFile]>,
        /// The column family.
        family: String,
    },
}

/// The folder, below the job's checkpoint directory, of files that several checkpoints share.
pub const SHARED_FOLDER: &str = "shared";

/// What the path of a shared file begins with that this attempt writes: so what it has left can be told from what others write.
pub fn shared_path_start(epoch: Epoch, attempt: Attempt) -> String {
    format!("{SHARED_FOLDER}/{epoch}-{attempt}-")
}

/// The leader and the attempt that wrote the shared file of this path.
pub fn shared_path_writer(path: &str) -> Option<(Epoch, Attempt)> {
    let mut parts = path.strip_prefix(SHARED_FOLDER)?.strip_prefix('/')?.splitn(3, '-');
    let (epoch, attempt) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| (Epoch(epoch), Attempt(attempt)))
}

/// A file of a database in a snapshot. One that was there in an earlier checkpoint is not written again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatabaseFile {
    /// Its name in the database's directory.
    pub name: String,
    /// Where it is; relative to the job's checkpoint directory, with `/`.
    pub path: String,
    /// Number of bytes.
    pub length: u64,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
}

impl DatabaseFile {
    /// Whether several checkpoints may need it.
    pub fn is_shared(&self) -> bool {
        self.path.strip_prefix(SHARED_FOLDER).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl Handle {
    /// The files that belong to this snapshot alone: those below `SHARED_FOLDER` may belong to several.
    pub fn own_paths(&self) -> impl Iterator<Item = &str> {
        let (file, database): (Option<&str>, &[DatabaseFile]) = match self {
            Self::Inline(_) => (None, &[]),
            Self::File { path, .. } => (Some(path), &[]),
            Self::Database { files, .. } => (None, files),
        };
        let own = database.iter().filter(|file| !file.is_shared());
        file.into_iter().chain(own.map(|file| file.path.as_str()))
    }

    /// The files below `SHARED_FOLDER`, which may belong to several snapshots.
    pub fn shared_paths(&self) -> impl Iterator<Item = &str> {
        let files: &[DatabaseFile] = match self {
            Self::Inline(_) | Self::File { .. } => &[],
            Self::Database { files, .. } => files,
        };
        files.iter().filter(|file| file.is_shared()).map(|file| file.path.as_str())
    }

    /// Number of bytes: of a database, those of all its files.
    pub fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
            Self::Database { files, .. } => files.iter().map(|file| file.length).sum(),
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
    /// A list of one operator subtask; every subtask gets all of them, by reference.
    OperatorUnion,
    /// The same in every operator subtask; every new subtask gets one copy.
    OperatorBroadcast,
}

impl StateKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Keyed, Self::OperatorList, Self::OperatorUnion, Self::OperatorBroadcast];

    /// The word for it on the wire, in files and in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::OperatorList => "operator-list",
            Self::OperatorUnion => "operator-union",
            Self::OperatorBroadcast => "operator-broadcast",
        }
    }

    /// The kind of this word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it belongs to keys.
    pub fn is_keyed(self) -> bool {
        self == Self::Keyed
    }
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
    /// What it holds.
    pub schema: Arc<StateSchema>,
    /// The subtask that wrote it.
    pub subtask: SubtaskIndex,
    /// The key groups that it holds; for operator state the whole range.
    pub key_groups: KeyGroupRange,
    /// Entries in it.
    pub rows: u64,
    /// CRC-32C of the bytes; 0 for a database, whose files have their own.
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
                Handle::File { .. } | Handle::Database { .. } => 0,
            })
            .sum()
    }

    /// Bytes of state in all; a database counts once for all its states.
    pub fn bytes(&self) -> u64 {
        let mut databases: Vec<&Arc<[DatabaseFile]>> = Vec::new();
        let counted = self.states.iter().filter(|state| match &state.handle {
            Handle::Database { files, .. } if databases.contains(&files) => false,
            Handle::Database { files, .. } => {
                databases.push(files);
                true
            }
            _ => true,
        });
        counted.map(|state| state.handle.length()).sum()
    }
}

/// What the tasks take a snapshot for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// A checkpoint: the system's, for recovery, in the job's checkpoint directory.
    #[default]
    Checkpoint,
    /// A savepoint: the user's, in the open format, in a folder of its own.
    Savepoint {
        /// URI of the folder.
        directory: Arc<str>,
        /// Nothing is read after it: sources stop at the barrier, and the job ends once it is complete.
        stops: bool,
    },
}

impl CheckpointKind {
    /// The folder, of a savepoint.
    pub fn savepoint(&self) -> Option<&Arc<str>> {
        match self {
            Self::Checkpoint => None,
            Self::Savepoint { directory, .. } => Some(directory),
        }
    }

    /// Whether nothing is read after it.
    pub fn stops(&self) -> bool {
        matches!(self, Self::Savepoint { stops: true, .. })
    }
}

/// The operators of one vertex of the job that was snapshotted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VertexOperators {
    /// Its parallel instances.
    pub parallelism: u32,
    /// The nodes that it ran, each once, from source to sink.
    pub uids: Vec<Uid>,
}

/// A completed checkpoint or savepoint.
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
    /// Whether it is a savepoint: paths are then relative to its own folder, else to the job's checkpoint directory.
    pub savepoint: bool,
    /// The job's vertices, by id; none in what release 0.1 wrote.
    pub vertices: Vec<VertexOperators>,
    /// Every task's snapshot.
    pub tasks: Vec<TaskSnapshot>,
}

impl CheckpointMetadata {
    /// Bytes of state in all.
    pub fn bytes(&self) -> u64 {
        self.tasks.iter().map(TaskSnapshot::bytes).sum()
    }

    /// Every state handle.
    pub fn states(&self) -> impl Iterator<Item = &StateHandle> {
        self.tasks.iter().flat_map(|task| &task.states)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_tells_its_writer() {
        let (epoch, attempt) = (Epoch(1), Attempt(12));
        let path = format!("{}0190-7000", shared_path_start(epoch, attempt));
        assert_eq!(shared_path_writer(&path), Some((epoch, attempt)));
        for other in ["shared/1-x-a", "shared/1", "chk-1/1-12-a", "shared/", "1-12-a"] {
            assert_eq!(shared_path_writer(other), None, "{other}");
        }
    }
}
