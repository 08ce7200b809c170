//! The contract of an operator: one step of a chain, called on the task's thread only.
//!
//! An operator never blocks and never pushes: whatever it has to say waits in it until the chain polls it, batch by batch,
//! so that a full output stops it anywhere. Signals (watermark, barrier, end) pass an operator only when it has nothing
//! left to poll.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, UInt16Type};
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_common::time::Watermark;
use levada_state::cold::ColdStores;
use levada_state::format::KEY_GROUP_COLUMN;
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::StatePart;

use crate::element::SplitVoice;
use crate::error::EngineError;
use crate::metrics::NodeMetrics;
use crate::source::SplitId;

/// A state as it comes back: what `StatePart` had, from one or several subtasks.
#[derive(Debug, Clone)]
pub struct RestoredState {
    /// The state's name within the operator.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// Its rows: shape as in `StatePart`, with `_key_group` (UInt16) before it where it is keyed. Keyed rows outside the
    /// operator's key groups may be among them and are left out by the operator.
    pub batches: Vec<RecordBatch>,
}

/// The rows of a restored batch that belong to these key groups.
///
/// Errors: a batch that does not note its rows' groups, in words.
pub(crate) fn in_groups(batch: &RecordBatch, range: KeyGroupRange) -> Result<RecordBatch, String> {
    let groups = batch.column_by_name(KEY_GROUP_COLUMN).and_then(|column| column.as_primitive_opt::<UInt16Type>());
    let groups = groups.ok_or_else(|| format!("it has no column {KEY_GROUP_COLUMN}"))?;
    if groups.values().iter().all(|group| range.contains(*group)) {
        return Ok(batch.clone());
    }
    let mine: BooleanArray = groups.values().iter().map(|group| Some(range.contains(*group))).collect();
    filter_record_batch(batch, &mine).map_err(|error| error.to_string())
}

/// The column of this name, as a restored state has it and the job wants it.
///
/// Errors: it is missing, of another type, or has nulls where there can be none, in words.
pub(crate) fn restored_column<'a>(batch: &'a RecordBatch, field: &Field) -> Result<&'a ArrayRef, String> {
    let name = field.name();
    let column = batch.column_by_name(name).ok_or_else(|| format!("it has no column \"{name}\""))?;
    if column.data_type() != field.data_type() {
        let (found, expected) = (column.data_type(), field.data_type());
        return Err(format!("column \"{name}\" is {found} in it, {expected} in the job"));
    }
    if !field.is_nullable() && column.null_count() > 0 {
        return Err(format!("column \"{name}\" has nulls in it and cannot in the job"));
    }
    Ok(column)
}

/// What an operator is told when its task starts.
#[derive(Debug, Clone)]
pub struct OperatorContext {
    /// Its parallel instance.
    pub subtask: u32,
    /// How many there are.
    pub parallelism: u32,
    /// Number of key groups of the job.
    pub max_parallelism: u32,
    /// The key groups that it owns.
    pub key_groups: KeyGroupRange,
    /// Most rows of a batch that it gives.
    pub batch_rows_max: usize,
    /// Its counters.
    pub metrics: Arc<NodeMetrics>,
    /// Where its state is kept beyond memory; none on the heap backends.
    pub cold: Option<Arc<dyn ColdStores>>,
    /// The memory that it shares with all other heap states of the TaskManager.
    pub heap_budget: Arc<HeapBudget>,
}

/// One step of a chain.
///
/// Contract: `open` first, once. Then in any order `process`, `advance`, `before_barrier` + `snapshot`, `finish`; before each of
/// these the chain has polled until `None`, and rows and polls only come while it `is_ready`. After `finish` only snapshots and notifications follow. An error fails the task;
/// nothing more is called after it.
pub trait Operator: Send {
    /// Takes its context and what it had in the snapshot that the task is restored from (empty at a first start).
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError>;

    /// Whether it has room to work: asked before it is given rows and before it is polled. `false` says that its store has too
    /// much to write; the store wakes the task when that has changed.
    fn is_ready(&mut self) -> Result<bool, EngineError> {
        Ok(true)
    }

    /// Takes rows of input `input` (0 but for operators with several inputs).
    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError>;

    /// Gives the next batch of pending output, at most `batch_rows_max` rows, never empty; `None` when nothing is pending.
    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError>;

    /// Gives the next batch of an output beside the main one: its place among `OperatorSpec::sides`, and rows as `poll` gives
    /// them. Asked only of an operator that has some, where `poll` has answered `None`; after a batch `poll` is asked again, so
    /// that an operator may let its side rows out before it goes on. The order between outputs is nobody's business, that of
    /// rows and signals holds for each.
    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(None)
    }

    /// Whether `poll` or `poll_side` would give a batch, as far as that is known at once; `true` where it is not. Asked where
    /// there is no room for one: an operator that has none holds nothing up.
    fn has_output(&self) -> bool {
        true
    }

    /// Event time has reached `watermark`, which only ever grows: windows fire. The watermark that goes on downstream is the
    /// returned one (the same, but for an operator that makes time itself).
    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        Ok(Some(watermark))
    }

    /// Whether it wants to hear processing time by `tick`; asked once, after `open`.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Processing time is `time_ms` (since 1970; it never goes back): said before each batch and at the moment asked for.
    /// Answers the next moment at which it wants to be called; one that has come already says that output is pending.
    fn tick(&mut self, _time_ms: i64) -> Result<Option<i64>, EngineError> {
        Ok(None)
    }

    /// What the task's source says of a split (only the watermark operator listens).
    fn hear_split(&mut self, _split: SplitId, _voice: SplitVoice) {}

    /// A watermark of its own making that is due (only the watermark operator has one). Asked for once it has nothing to poll.
    fn due_watermark(&mut self, _quiet: bool) -> Option<Watermark> {
        None
    }

    /// A barrier is here: flushes what must not be kept across it (partials) into the pending output.
    fn before_barrier(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// The input is idle: time goes on downstream without it, so whatever is held back of rows that came must go out first.
    fn idle(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Takes the synchronous part of a snapshot, in time independent of the state's size. `finished`: the operator has seen the
    /// end of its data, its keyed state is dead and left out.
    fn snapshot(&mut self, _checkpoint: CheckpointId, _finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(Vec::new())
    }

    /// Does a bounded piece (about a quarter of a millisecond) of work that waits beside the rows: the rest of a frozen
    /// table. Called after each batch and when there is no input; `true` while there is more.
    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Nothing comes any more: windows that are open fire into the pending output.
    fn finish(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// The checkpoint is complete (`true`) or given up (`false`).
    fn notify(&mut self, _checkpoint: CheckpointId, _completed: bool) -> Result<(), EngineError> {
        Ok(())
    }
}
