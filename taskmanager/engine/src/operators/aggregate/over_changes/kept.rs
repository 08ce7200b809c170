//! What is kept of groups and their counted values, wherever that is.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::snapshot::StatePart;

use super::super::group_table::GroupTable;
use crate::error::EngineError;
use crate::operator::OperatorContext;

/// Rows that change groups.
pub(super) struct Changing<'a> {
    /// Whether they come, or go.
    pub(super) comes: bool,
    /// The group of each; one id where there is one group.
    pub(super) ids: &'a [u32],
    /// What the accumulators take.
    pub(super) inputs: &'a [ArrayRef],
    pub(super) rows: usize,
}

/// Groups, their accumulators, and the values of columns whose ends are asked for.
pub(super) trait Kept: Send {
    /// Whether there is room for another batch.
    fn is_ready(&mut self) -> Result<bool, EngineError>;

    /// Brings in what is known of these keys; answers of which of them everything is in memory, some at least; `None` where of all.
    fn load(&mut self, _keys: &[ArrayRef], _rows: usize) -> Result<Option<BooleanArray>, EngineError> {
        Ok(None)
    }

    /// Fills `ids` with the group of each row, which may change now.
    ///
    /// Contract: `load` answered that these keys are in memory.
    fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<(), EngineError>;

    /// The groups, of which a batch has just made some.
    fn groups(&self) -> Result<&GroupTable, EngineError>;

    /// Takes rows in, or back.
    fn change(&mut self, changing: Changing<'_>) -> Result<(), EngineError>;

    /// Counts the values of a batch whose rows are of the groups `ids`; of these those go that are not among `comes`.
    fn count_values(&mut self, batch: &RecordBatch, comes: Option<&[bool]>, ids: &[u32]) -> Result<(), EngineError>;

    /// The least or the greatest value of each of these groups in a counted column; null where there is none.
    fn ends(&self, column: usize, groups: &[u32], is_greatest: bool) -> ArrayRef;

    /// Of these groups, which have changed, those without rows are gone.
    fn settle(&mut self, groups: &[u32], rows: &[i64]);

    /// To be called after each batch: sends and forgets what is due where memory is short.
    fn make_room(&mut self) -> Result<(), EngineError>;

    /// Writes the node's counters.
    ///
    /// Errors: `OverBudget`.
    fn count(&mut self, context: &OperatorContext) -> Result<(), EngineError>;

    /// The synchronous part of a snapshot.
    fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError>;

    /// Saves a further piece of a snapshot, or does what else waits beside the rows; answers whether more remains.
    fn background(&mut self) -> Result<bool, EngineError>;

    /// Gives the snapshot of this checkpoint up, if it is running.
    fn abandon(&mut self, checkpoint: CheckpointId);
}

/// The group of a row: without key there is one id for all rows.
pub(super) fn group_of(ids: &[u32], row: u32) -> u32 {
    if ids.len() == 1 { ids[0] } else { ids[row as usize] }
}

/// Those of these groups that have no rows.
pub(super) fn gone(groups: &[u32], rows: &[i64]) -> Vec<u32> {
    groups.iter().zip(rows).filter(|(_, rows)| **rows == 0).map(|(id, _)| *id).collect()
}
