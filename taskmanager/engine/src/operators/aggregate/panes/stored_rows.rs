//! The groups of a pane that only the store has, on their way out.
//!
//! Read in the order of the store, a batch at a time: a pane that is larger than memory never comes into it whole. Where the pane
//! has fired they are deleted as they go.

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::record_batch::RecordBatch;
use levada_state::cold::Scan;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::pending::Pending;
use super::super::shape::Shape;
use super::store::{PaneStore, StoredGroups, failed};
use super::{OpenPanes, Pane, Window};
use crate::error::EngineError;

/// What the store has beyond a pane that went out of memory.
pub(super) struct StoredRows {
    /// Has the groups that memory had, which are out.
    pane: Pane,
    scan: Scan,
    /// The accumulators of one batch.
    groups: GroupTable,
    pending: Pending,
}

impl std::fmt::Debug for StoredRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredRows").field("window", &self.pane.window).finish_non_exhaustive()
    }
}

impl StoredRows {
    /// The next rows, at most `rows_max`; `columns` reads groups of a pane out.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        panes: &mut OpenPanes,
        rows_max: usize,
        columns: impl Fn(Window, &GroupTable, Rows<'_>) -> Vec<ArrayRef>,
    ) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            if let Some(batch) = self.pending.pop(rows_max) {
                return Ok(Some(batch));
            }
            let Some(batch) = self.scan.next() else { return Ok(None) };
            let stored = PaneStore::groups_of(shape, &batch.map_err(|source| failed(shape, source))?);
            self.take(shape, &stored)?;
            self.pending.push(shape.output(columns(self.pane.window, &self.groups, Rows::first(self.groups.len())))?);
            if let Some(store) = &mut panes.store {
                store.delete(shape, self.pane.window, stored.keys, stored.rows)?;
            }
        }
    }

    /// Takes those groups in that memory did not have.
    fn take(&mut self, shape: &Shape, stored: &StoredGroups) -> Result<(), EngineError> {
        let (mut ids, mut absent) = (Vec::new(), Vec::new());
        self.pane.groups.absent(&stored.keys, stored.rows, &mut absent);
        let absent = UInt32Array::from(absent);
        let some = |columns: &[ArrayRef]| {
            let columns = columns.iter().map(|column| take(column, &absent, None)).collect::<Result<Vec<_>, _>>();
            columns.map_err(|source| shape.kernel(source))
        };
        self.groups.clear();
        self.groups.intern(&some(&stored.keys)?, absent.len(), &mut ids);
        self.groups.merge(shape, self.groups.groups(&ids, absent.len()), &some(&stored.states)?)
    }
}

impl OpenPanes {
    /// What the store has beyond a pane that `pop` gave; nothing where memory had all.
    pub(super) fn stored_rows(&mut self, shape: &Shape, pane: Pane) -> Result<Option<StoredRows>, EngineError> {
        match self.store.as_mut().filter(|_| pane.has_more()) {
            Some(store) => {
                let scan = store.scan(shape, pane.window)?;
                Ok(Some(StoredRows { pane, scan, groups: GroupTable::new(shape), pending: Pending::default() }))
            }
            None => {
                self.retire(pane);
                Ok(None)
            }
        }
    }
}
