//! The contract of a source: where rows come from.

use std::sync::Arc;
use std::task::Waker;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{BadRecordPolicy, SourceSpec};

use crate::error::EngineError;
use crate::metrics::NodeMetrics;

/// What a source is told when its task starts.
#[derive(Debug, Clone)]
pub struct SourceContext {
    /// The node as planned.
    pub spec: Arc<SourceSpec>,
    /// Its parallel instance.
    pub subtask: u32,
    /// How many there are.
    pub parallelism: u32,
    /// Most rows of a batch.
    pub batch_rows_max: usize,
    /// No row waits longer than this for its batch to fill, in milliseconds.
    pub buffer_timeout_ms: u64,
    /// Its counters; `bad_records` and the newest bad record are the source's to write, rows are counted by the task.
    pub metrics: Arc<NodeMetrics>,
    /// Wakes the task: to be called from any thread when `poll` would no longer answer `Pending`.
    pub waker: Waker,
}

impl SourceContext {
    /// Counts a bad record, or answers the error that fails the task, as the node's policy says.
    ///
    /// `position` is file and line or byte; `reason` says what was found.
    pub fn bad_record(&self, position: &str, reason: &str) -> Result<(), EngineError> {
        match self.spec.bad_records {
            BadRecordPolicy::Drop => {
                self.metrics.bad_record(position, reason);
                Ok(())
            }
            BadRecordPolicy::Fail => Err(EngineError::BadRecord {
                uid: self.spec.uid.clone(),
                clause: self.spec.connector.clone(),
                position: position.into(),
                reason: reason.into(),
            }),
        }
    }
}

/// One of several splits that a subtask reads side by side; numbers that the source chooses, and may use again after an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SplitId(pub u32);

/// What a source has.
///
/// A source that reads several splits side by side, each with a time of its own, says which: then its time is that of the split
/// that is least far, of those that have begun and are neither idle nor ended. One that reads a split after the other just gives
/// batches.
#[derive(Debug)]
pub enum SourcePoll {
    /// Rows, in the schema of the spec; never empty, at most `batch_rows_max`.
    Batch(RecordBatch),
    /// The split is read from now on: time waits for it.
    Begin(SplitId),
    /// Rows of a split that has begun, as `Batch`.
    Rows(SplitId, RecordBatch),
    /// The split has ended: time does not wait for it any more.
    Ended(SplitId),
    /// Nothing now; the source wakes the task when that changes.
    Pending,
    /// Nothing any more.
    End,
}

/// Where rows come from.
///
/// Contract: called on the task's thread only, within the shell's IO runtime (`tokio::runtime::Handle::current()` works), and
/// never blocks for longer than reading a buffer that is there; waiting is done on a thread or future of the source's own that
/// wakes the task. All that it holds ends when it is dropped. A position in `snapshot` covers exactly the rows given by `poll`
/// before.
pub trait Source: Send {
    /// Starts at `splits`: those that the JobManager listed at a first start, else the entries of the restored snapshots that
    /// fell to this subtask.
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError>;

    /// The next rows.
    fn poll(&mut self) -> Result<SourcePoll, EngineError>;

    /// Its positions, an entry per split, finished ones included where they must not be read again.
    fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<String>, EngineError>;

    /// The checkpoint is complete.
    fn notify_completed(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Makes the sources of one connector.
pub type SourceFactory = Arc<dyn Fn(&SourceSpec) -> Result<Box<dyn Source>, EngineError> + Send + Sync>;
