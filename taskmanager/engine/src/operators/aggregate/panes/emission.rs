//! What goes out of panes that fired: what memory has of each, then what only the store has.

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use super::stored_rows::StoredRows;
use super::{Firing, OpenPanes, Pane};
use crate::error::EngineError;
use crate::operators::window::Window;

/// Panes that go out, in order.
#[derive(Debug, Default)]
pub(in super::super) struct Emission {
    firing: Firing,
    /// The rest of the pane that went out of memory last.
    stored: Option<StoredRows>,
}

impl Emission {
    /// Puts a pane at the end.
    pub(in super::super) fn push(&mut self, pane: Pane) {
        self.firing.push(pane);
    }

    /// Whether something goes out still.
    pub(in super::super) fn is_pending(&self) -> bool {
        self.stored.is_some() || self.firing.is_pending()
    }

    /// The next rows, at most `rows_max`; `columns` reads groups of a window out. A pane that is out goes back to `panes`.
    pub(in super::super) fn next(
        &mut self,
        shape: &Shape,
        panes: &mut OpenPanes,
        rows_max: usize,
        columns: impl Fn(Window, &GroupTable, Rows<'_>) -> Result<Vec<ArrayRef>, EngineError>,
    ) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            if let Some(stored) = &mut self.stored {
                if let Some(batch) = stored.next(shape, panes, rows_max, &columns)? {
                    return Ok(Some(batch));
                }
                self.stored = None;
            }
            let batch = self.firing.next(shape, rows_max, &columns)?;
            for pane in self.firing.take_done() {
                self.stored = panes.stored_rows(shape, pane)?;
            }
            if batch.is_some() || self.stored.is_none() {
                return Ok(batch);
            }
        }
    }
}
