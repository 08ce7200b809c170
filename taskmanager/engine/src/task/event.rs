//! What a task says: how far a step came, and what has to leave it.

use levada_common::checkpoint::CheckpointKind;
use levada_common::ids::CheckpointId;
use levada_common::time::Instant;
use levada_state::snapshot::StatePart;

use crate::sink::Durable;

/// What a step found.
///
/// `until`: the moment at which the task wants to be stepped even where nothing woke it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It worked; there may be more to do at once.
    Worked,
    /// No input: step again when the source or a channel wakes the task, or a trigger came.
    Waiting {
        /// When to step at the latest.
        until: Option<Instant>,
    },
    /// No room in an output channel, or the sink is not ready: step again when one of them wakes the task.
    Blocked {
        /// When to step at the latest.
        until: Option<Instant>,
    },
    /// A store has too much to write: step again when it wakes the task.
    Writing {
        /// When to step at the latest.
        until: Option<Instant>,
    },
    /// The last checkpoint was committed: nothing is left to do.
    Finished,
}

/// What has to leave a task.
pub enum TaskEvent {
    /// The synchronous part of a snapshot is done: encode, make durable, acknowledge.
    Snapshot {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it is taken for.
        kind: CheckpointKind,
        /// The task had seen the end of all its data.
        finished: bool,
        /// Its states; each (uid, name) once.
        parts: Vec<StatePart>,
        /// To be run before the acknowledgement; an error declines the checkpoint.
        durable: Vec<Durable>,
    },
    /// All input has ended and everything went out: the task waits for the final checkpoint, and is triggered by RPC from now on.
    Finishing,
    /// The final checkpoint was committed.
    Finished,
    /// This checkpoint will get no snapshot of this task.
    SnapshotDeclined {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
}
