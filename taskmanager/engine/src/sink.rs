//! The contract of a sink: where rows go, in two phases where it can.

use std::sync::Arc;
use std::task::Waker;

use arrow::record_batch::RecordBatch;
use levada_common::ids::{AttemptId, CheckpointId};
use levada_common::plan::SinkSpec;

use crate::error::EngineError;
use crate::metrics::NodeMetrics;

/// What a sink is told when its task starts.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The node as planned.
    pub spec: Arc<SinkSpec>,
    /// Its parallel instance.
    pub subtask: u32,
    /// How many there are.
    pub parallelism: u32,
    /// Job, attempt and epoch: what it writes before a commit carries them in its name.
    pub attempt: AttemptId,
    /// The checkpoint that the task is restored from.
    pub restored_from: Option<CheckpointId>,
    /// Its counters; rows are counted by the task.
    pub metrics: Arc<NodeMetrics>,
    /// Wakes the task: to be called when `is_ready` turns true.
    pub waker: Waker,
}

/// Work that makes prepared output durable, done in the background before the snapshot is acknowledged.
pub type Durable = Box<dyn FnOnce() -> Result<(), EngineError> + Send>;

/// As `Durable`, and answers entries that are not known before: the tags of parts that are still being uploaded.
pub type Late = Box<dyn FnOnce() -> Result<Vec<String>, EngineError> + Send>;

/// What a sink gives at a barrier.
#[derive(Default)]
pub struct Prepared {
    /// Its operator state: what to commit, as one text an entry.
    pub entries: Vec<String>,
    /// Makes what was prepared durable; an error declines the checkpoint.
    pub durable: Option<Durable>,
    /// Further entries, where they come later than the barrier.
    pub late: Option<Late>,
}

/// Where rows go.
///
/// Contract: called on the task's thread only. `write` only after `is_ready`. `prepare` closes what was written since the last
/// barrier under the checkpoint's id; `commit` publishes everything prepared up to that checkpoint and can be called again for
/// what is published already; at `open` the restored entries are committed (they belong to a completed checkpoint) and what
/// lost attempts left is removed.
pub trait Sink: Send {
    /// Takes its context and the entries of the snapshot that the task is restored from (of all subtasks that fell to it).
    fn open(&mut self, context: SinkContext, restored: Vec<String>) -> Result<(), EngineError>;

    /// Whether `write` may be called; where not, the sink wakes the task when that changes.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Takes rows in the schema of the spec's input (`_op` first on a changelog).
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError>;

    /// No more rows come for now: buffered ones that a reader waits for (a terminal) go out.
    fn flush(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// A barrier: closes the transaction and says what to keep.
    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, EngineError>;

    /// The checkpoint is complete: publishes what was prepared for it and before.
    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError>;

    /// The checkpoint was given up: what was prepared for it stays to be committed with the next one.
    fn abort(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }

    /// The task finishes: returns once everything that was committed is published.
    fn close(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// As `close`, where the job stops with a savepoint: what was published may be asked for by a job that goes on from there.
    fn stop(&mut self) -> Result<(), EngineError> {
        self.close()
    }

    /// The task ends without finishing (cancelled or failed): removes what was never prepared.
    fn discard(&mut self) {}
}

/// Makes the sinks of one connector.
pub type SinkFactory = Arc<dyn Fn(&SinkSpec) -> Result<Box<dyn Sink>, EngineError> + Send + Sync>;
