//! The groups of a pane that only the store has, on their way out.
//!
//! Read in the order of the store, a batch at a time: a pane that is larger than memory never comes into it whole. Where the pane
//! is forgotten they are deleted as they go; where it stays they are written back as given.

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_state::cold::Scan;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use super::pane::piece;
use super::store::PaneStore;
use super::{OpenPanes, Pane};
use crate::error::EngineError;
use crate::operators::behind::failed;
use crate::operators::pending::Pending;
use crate::operators::window::Window;

/// What the store has beyond a pane.
pub(in super::super) struct StoredRows {
    window: Window,
    /// A pane that went out of memory: it has the groups that memory had, which are out. Without it the pane is still open.
    leaving: Option<Pane>,
    scan: Scan,
    /// The accumulators of one batch.
    groups: GroupTable,
    pending: Pending,
}

impl std::fmt::Debug for StoredRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredRows").field("window", &self.window).finish_non_exhaustive()
    }
}

impl StoredRows {
    fn new(shape: &Shape, window: Window, leaving: Option<Pane>, scan: Scan) -> Self {
        Self { window, leaving, scan, groups: GroupTable::new(shape), pending: Pending::default() }
    }

    /// Beyond a pane that stays.
    pub(super) fn staying(shape: &Shape, window: Window, scan: Scan) -> Self {
        Self::new(shape, window, None, scan)
    }

    /// The next rows, at most `rows_max`; `columns` reads groups of a pane out.
    pub(in super::super) fn next(
        &mut self,
        shape: &Shape,
        panes: &mut OpenPanes,
        rows_max: usize,
        columns: impl Fn(Window, &GroupTable, Rows<'_>) -> Result<Vec<ArrayRef>, EngineError>,
    ) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            if let Some(batch) = self.pending.pop(rows_max) {
                return Ok(Some(batch));
            }
            let Some(batch) = self.scan.next() else {
                if let Some(store) = panes.store.as_mut().filter(|_| self.leaving.is_none()) {
                    store.hold();
                }
                return Ok(None);
            };
            let stored = PaneStore::groups_of(shape, &batch.map_err(|source| failed(&shape.uid, source))?);
            let absent = match &mut self.leaving {
                Some(pane) => stored.absent_from(shape, &mut pane.groups)?,
                // It stays, so it is open.
                None => stored.absent_from(shape, &mut panes.open_pane(shape, self.window).groups)?,
            };
            self.groups.clear();
            self.groups.absorb(shape, &absent.keys, absent.rows, &absent.states)?;
            self.pending.push(shape.output(columns(self.window, &self.groups, Rows::first(self.groups.len()))?)?);
            let Some(store) = &mut panes.store else { continue };
            if self.leaving.is_some() {
                store.delete(shape, self.window, stored.keys, stored.rows)?;
            } else {
                let given = self.groups.due(Rows::first(self.groups.len()));
                self.groups.give(&given);
                store.upsert(shape, piece(shape, self.window, &self.groups, &given))?;
            }
        }
    }
}

impl OpenPanes {
    /// What the store has beyond a pane that `pop` gave; nothing where memory had all.
    pub(super) fn stored_rows(&mut self, shape: &Shape, pane: Pane) -> Result<Option<StoredRows>, EngineError> {
        match self.store.as_mut().filter(|_| pane.has_more()) {
            Some(store) => {
                let scan = store.scan(pane.window, store.key_groups)?;
                Ok(Some(StoredRows::new(shape, pane.window, Some(pane), scan)))
            }
            None => {
                self.retire(pane);
                Ok(None)
            }
        }
    }
}
