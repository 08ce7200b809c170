//! A table of groups in front of a store, whose owner says which of them come and go.

use std::sync::Arc;

use levada_common::checkpoint::StateKind;
use levada_state::cold::{Change, ColdStateId};
use levada_state::snapshot::StateMeta;

use super::super::super::panes::{Pane, change_of};
use super::super::super::shape::Shape;
use crate::error::EngineError;
use crate::operators::rows::{EntryBytes, Held, KeyedRowStore};

/// The table of one state.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) shape: Arc<Shape>,
    pub(super) meta: StateMeta,
    pub(super) state: ColdStateId,
    pub(super) pane: Pane,
    group_bytes: EntryBytes,
    scratch: Vec<u32>,
}

impl Table {
    /// Takes the state up in its store, with what was restored there.
    pub(super) fn open(shape: &Arc<Shape>, store: &mut KeyedRowStore) -> Result<Self, EngineError> {
        let (uid, schema) = (shape.uid.clone(), Arc::clone(&shape.state));
        let meta = StateMeta { uid, name: shape.state_name().into(), kind: StateKind::Keyed, schema };
        let state = store.open_state(&meta.name, &meta.schema, 0)?;
        let (shape, pane) = (Arc::clone(shape), Pane::before_store(shape));
        Ok(Self { shape, meta, state, pane, group_bytes: EntryBytes::default(), scratch: Vec::new() })
    }

    /// These groups change now; those that are being sent are sent as they are.
    pub(super) fn touch(&mut self, store: &mut KeyedRowStore, ids: &[u32]) -> Result<(), EngineError> {
        self.pane.resize();
        if let Some(piece) = self.pane.unsaved(&self.shape, ids, &mut self.scratch) {
            store.send_now(self.state, change_of(&self.shape, piece)?)?;
        }
        self.pane.mark_changed(ids);
        Ok(())
    }

    /// Takes the next of what is being sent.
    pub(super) fn next_change(&mut self, rows_max: usize) -> Result<Option<(usize, Change)>, EngineError> {
        let Some(piece) = self.pane.next_piece(&self.shape, rows_max, &mut self.scratch) else { return Ok(None) };
        Ok(Some((piece.num_rows(), change_of(&self.shape, piece)?)))
    }

    /// Looks what a group takes.
    pub(super) fn measure(&mut self) {
        self.group_bytes.measure(self.pane.memory_bytes(), self.pane.groups.len());
    }

    /// What it holds.
    pub(super) fn held(&self) -> Held {
        self.group_bytes.held(self.pane.memory_bytes(), self.pane.groups.live())
    }
}
