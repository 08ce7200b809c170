//! A window and what is in it.

use std::sync::Arc;

use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_state::bits::Bits;
use levada_state::freeze::FrozenRows;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use crate::operators::window::Window;

/// The groups of one window.
#[derive(Debug)]
pub(in super::super) struct Pane {
    pub(in super::super) window: Window,
    pub(in super::super) groups: GroupTable,
    /// Which of them a running snapshot has still to save.
    pub(super) frozen: FrozenRows,
    /// What the store behind has of them; `None` where there is no store.
    pub(super) stored: Option<Stored>,
    /// Groups and bytes, as they are counted for the pane.
    pub(super) counted: (usize, usize),
}

/// What a store has of a pane's groups.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Groups that it has otherwise, or not at all.
    pub(super) dirty: Bits,
    /// Groups that were sent to it since some left the pane: a look at it may not find them yet.
    pub(super) sent: Bits,
    /// It may have groups that the pane does not.
    pub(super) has_more: bool,
}

impl Pane {
    /// The pane of `window` with these groups, none of which is in a snapshot or a store.
    pub(in super::super) fn new(window: Window, groups: GroupTable) -> Self {
        let mut frozen = FrozenRows::new();
        frozen.resize(groups.len());
        Self { window, groups, frozen, stored: None, counted: (0, 0) }
    }

    /// An empty pane of the whole stream in front of a store, whose owner says which groups leave memory.
    pub(in super::super) fn before_store(shape: &Shape) -> Self {
        Self { stored: Some(Stored::default()), ..Self::new(Window::WHOLE, GroupTable::new(shape)) }
    }

    /// Groups were made.
    pub(in super::super) fn resize(&mut self) {
        self.frozen.resize(self.groups.len());
    }

    /// Whether a store has this group, or will have it once what is being saved was sent.
    pub(in super::super) fn is_stored(&self, id: u32) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.sent.get(id))
    }

    /// Whether a store has this group otherwise, or not at all.
    pub(in super::super) fn is_changed(&self, id: u32) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.dirty.get(id))
    }

    /// These groups are as a store has them.
    pub(in super::super) fn mark_stored(&mut self, ids: &[u32]) {
        if let Some(stored) = &mut self.stored {
            stored.sent.set_all(ids, self.groups.len());
        }
    }

    /// A group leaves memory, or is nothing that a store knows of.
    ///
    /// Contract: nothing of it is to be saved.
    pub(in super::super) fn remove(&mut self, id: u32) {
        if let Some(stored) = &mut self.stored {
            stored.dirty.clear(id);
            stored.sent.clear(id);
        }
        self.groups.remove(&[id]);
    }

    /// The saved rows of the next groups that a running snapshot has still to save, at most `rows_max`; `None` where there is none.
    pub(in super::super) fn next_piece(&mut self, shape: &Shape, rows_max: usize, scratch: &mut Vec<u32>) -> Option<RecordBatch> {
        scratch.clear();
        self.frozen.take_next(rows_max, scratch);
        (!scratch.is_empty()).then(|| self.piece(shape, scratch))
    }

    /// Whether a running snapshot may have groups to save still.
    pub(in super::super) fn is_saving(&self) -> bool {
        self.frozen.is_running()
    }

    /// Whether a store may have groups of the window that the pane does not.
    pub(in super::super) fn has_more(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.has_more)
    }

    /// Whether a store has groups of the window, or will have once what is being saved was sent.
    pub(super) fn is_known_to_store(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.has_more || stored.sent.rows().next().is_some())
    }

    /// These groups have changed, or will at once.
    #[inline]
    pub(in super::super) fn mark_changed(&mut self, ids: &[u32]) {
        if let Some(stored) = &mut self.stored {
            stored.dirty.set_all(ids, self.groups.len());
        }
    }

    /// Begins a snapshot: of all groups, or where there is a store of those that it has otherwise; those that were being sent and
    /// have not left are among them.
    pub(in super::super) fn freeze(&mut self) {
        match &mut self.stored {
            None => match self.groups.standing() {
                None => self.frozen.freeze(),
                Some(standing) => self.frozen.freeze_these(standing.words()),
            },
            Some(stored) => {
                self.frozen.take_rest(stored.dirty.words_mut());
                self.frozen.freeze_these(stored.dirty.words());
                stored.sent.unite(&stored.dirty);
                stored.dirty.clear_all();
            }
        }
    }

    /// The saved rows of those of these groups that a running snapshot must save before they change.
    pub(in super::super) fn unsaved(&mut self, shape: &Shape, ids: &[u32], scratch: &mut Vec<u32>) -> Option<RecordBatch> {
        if !self.frozen.is_running() {
            return None;
        }
        scratch.clear();
        self.frozen.take_unsaved(ids, scratch);
        (!scratch.is_empty()).then(|| self.piece(shape, scratch))
    }

    /// The saved rows of these groups.
    pub(super) fn piece(&self, shape: &Shape, ids: &[u32]) -> RecordBatch {
        piece(shape, self.window, &self.groups, ids)
    }

    /// Bytes held.
    pub(in super::super) fn memory_bytes(&self) -> usize {
        let stored = self.stored.as_ref().map_or(0, |stored| stored.dirty.memory_bytes() + stored.sent.memory_bytes());
        size_of::<Self>() + self.groups.memory_bytes() + self.frozen.memory_bytes() + stored
    }
}

/// The saved rows of these groups of a window.
pub(super) fn piece(shape: &Shape, window: Window, groups: &GroupTable, ids: &[u32]) -> RecordBatch {
    let rows = Rows::Ids(ids);
    let namespace = window.namespace_column(ids.len());
    let mut keys = groups.keys(rows);
    let below = keys.split_off(keys.len() - shape.below);
    let columns = keys.into_iter().chain(namespace).chain(below).chain(groups.states(rows));
    let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
    RecordBatch::try_new_with_options(Arc::clone(&shape.pieces), columns.collect(), &options)
        .expect("states have the planned columns")
}
