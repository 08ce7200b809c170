//! One table for the operator's whole life: what running and global aggregates keep, with its snapshots.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::checkpoint::StateKind;
use levada_common::ids::CheckpointId;
use levada_state::freeze::Freezer;
use levada_state::rows::Rows;
use levada_state::snapshot::{StateMeta, StatePart, pieces};

use super::group_table::GroupTable;
use super::restore::restored_rows;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};

/// Rows that the cursor of a snapshot saves between two batches, about a quarter of a millisecond.
pub(super) const BACKGROUND_ROWS: usize = 4096;

/// The groups, and which of them a running snapshot still has to save.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) groups: GroupTable,
    freezer: Freezer,
    checkpoint: Option<CheckpointId>,
}

impl Table {
    /// Without groups.
    pub(super) fn new(shape: &Shape) -> Self {
        Self { groups: GroupTable::new(shape), freezer: Freezer::new(), checkpoint: None }
    }

    /// Takes what was in the snapshot that the task starts from.
    pub(super) fn restore(
        &mut self,
        shape: &Shape,
        context: &OperatorContext,
        restored: &[RestoredState],
    ) -> Result<(), EngineError> {
        let mut ids = Vec::new();
        for rows in restored_rows(shape, context.key_groups, restored)? {
            self.groups.intern(&rows.keys, rows.rows, &mut ids);
            self.groups.merge(shape, self.groups.groups(&ids, rows.rows), &rows.states)?;
        }
        self.freezer.resize(self.groups.len());
        self.count(context);
        Ok(())
    }

    /// To be called with every group that a batch touches, after it was interned and before it is taken in.
    pub(super) fn before_change(&mut self, shape: &Shape, ids: &[u32]) {
        self.freezer.before_change(ids, |ids| piece(shape, &self.groups, ids));
        self.freezer.resize(self.groups.len());
    }

    /// The synchronous part of a snapshot.
    pub(super) fn snapshot(&mut self, shape: &Shape, checkpoint: CheckpointId) -> Vec<StatePart> {
        let (sender, reader) = pieces();
        let gather = |ids: &[u32]| piece(shape, &self.groups, ids);
        self.freezer.freeze(self.groups.len(), sender, gather);
        self.freezer.advance(BACKGROUND_ROWS, gather);
        self.checkpoint = Some(checkpoint);
        let schema = Arc::clone(&shape.state);
        let meta = StateMeta { uid: shape.uid.clone(), name: shape.state_name().into(), kind: StateKind::Keyed, schema };
        vec![StatePart { meta, contents: reader.into() }]
    }

    /// Saves a further piece; answers whether more remain.
    pub(super) fn background(&mut self, shape: &Shape) -> bool {
        self.freezer.advance(BACKGROUND_ROWS, |ids| piece(shape, &self.groups, ids))
    }

    /// Gives a snapshot up whose checkpoint was.
    pub(super) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) {
        if !completed && self.checkpoint == Some(checkpoint) {
            self.freezer.abandon();
        }
    }

    /// Writes the operator's counters.
    pub(super) fn count(&self, context: &OperatorContext) {
        let bytes = self.groups.memory_bytes() + self.freezer.memory_bytes();
        context.metrics.state_keys.store(self.groups.len() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
    }
}

/// The saved rows of these groups.
fn piece(shape: &Shape, groups: &GroupTable, ids: &[u32]) -> RecordBatch {
    let rows = Rows::Ids(ids);
    let columns: Vec<ArrayRef> = groups.keys(rows).into_iter().chain(groups.states(rows)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
    RecordBatch::try_new_with_options(Arc::clone(&shape.pieces), columns, &options).expect("states have the planned columns")
}
