//! Panes that stay when results of them are given: their groups change by it, as by rows.

use arrow::array::ArrayRef;

use super::super::shape::Shape;
use super::stored_rows::StoredRows;
use super::{OpenPanes, Pane, open, recount};
use crate::error::EngineError;
use crate::operators::window::Window;

impl OpenPanes {
    /// The pane of `window`, which it opens.
    pub(in super::super) fn opened(&mut self, shape: &Shape, window: Window) -> &Pane {
        self.open_pane(shape, window)
    }

    /// Likewise, to be changed.
    pub(super) fn open_pane(&mut self, shape: &Shape, window: Window) -> &mut Pane {
        open(&mut self.panes, (self.store.as_ref(), &mut self.spare), window, shape)
    }

    /// As `take_in`, but groups whose result was given begin anew.
    pub(in super::super) fn take_in_anew(
        &mut self,
        shape: &Shape,
        window: Window,
        ids: &[u32],
        inputs: &[ArrayRef],
        rows: usize,
    ) -> Result<(), EngineError> {
        self.change(shape, window, |groups| groups.take_in_anew(shape, ids, rows, inputs))
    }

    /// The results of these groups are given now; each is saved as it is, if it must be.
    pub(in super::super) fn give(&mut self, shape: &Shape, window: Window, ids: &[u32]) -> Result<(), EngineError> {
        let pane = open(&mut self.panes, (self.store.as_ref(), &mut self.spare), window, shape);
        if let (Some(saving), Some(piece)) = (&self.saving, pane.unsaved(shape, ids, &mut self.scratch)) {
            saving.send(shape, self.store.as_mut(), piece)?;
        }
        pane.groups.give(ids);
        pane.mark_changed(ids);
        recount(pane, &mut self.groups, &mut self.memory_bytes);
        Ok(())
    }

    /// What the store has of a window beyond its pane, which stays: groups of it that go out count as given. Nothing where memory has
    /// all.
    pub(in super::super) fn stored_due(&mut self, shape: &Shape, window: Window) -> Result<Option<StoredRows>, EngineError> {
        if !self.opened(shape, window).has_more() {
            return Ok(None);
        }
        // Groups change in the store now: what was begun to be read of it would be old.
        self.warming = None;
        // What is being sent is of a time before: what changes now can be sent only after it.
        self.save_all(shape)?;
        let Some(store) = &mut self.store else { return Ok(None) };
        let scan = store.scan(window, store.key_groups)?;
        Ok(Some(StoredRows::staying(shape, window, scan)))
    }
}
