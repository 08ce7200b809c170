//! What is being saved of the panes: a snapshot on its way to the background, or a generation on its way to the store.

use std::collections::VecDeque;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::snapshot::PieceSender;

use super::super::shape::Shape;
use super::store::PaneStore;
use crate::error::EngineError;
use crate::operators::window::Window;

/// Where pieces go.
#[derive(Debug)]
pub(super) enum Target {
    /// To the background, which encodes them.
    Pieces(PieceSender),
    /// To the store behind the panes.
    Store,
}

/// A snapshot or generation that is running.
#[derive(Debug)]
pub(super) struct Saving {
    /// The checkpoint that it is for, if it is for one.
    pub(super) checkpoint: Option<CheckpointId>,
    pub(super) target: Target,
    /// Windows that were open when it began and may have unsaved groups.
    pub(super) windows: VecDeque<Window>,
}

impl Saving {
    /// Whether whoever takes the pieces has enough to do.
    pub(super) fn is_full(&self, store: Option<&mut PaneStore>) -> Result<bool, EngineError> {
        match (&self.target, store) {
            (Target::Pieces(sender), _) => Ok(sender.is_full()),
            (Target::Store, Some(store)) => Ok(!store.behind.takes_more()?),
            (Target::Store, None) => Ok(false),
        }
    }

    /// Whether nobody takes the pieces any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match &self.target {
            Target::Pieces(sender) => sender.is_abandoned(),
            Target::Store => false,
        }
    }

    /// Sends a piece.
    pub(super) fn send(&self, shape: &Shape, store: Option<&mut PaneStore>, piece: RecordBatch) -> Result<(), EngineError> {
        match (&self.target, store) {
            (Target::Pieces(sender), _) => sender.send(piece),
            (Target::Store, Some(store)) => store.upsert(shape, piece)?,
            (Target::Store, None) => {}
        }
        Ok(())
    }

    /// Everything was sent.
    pub(super) fn finish(self, store: Option<&mut PaneStore>) {
        match (self.target, store) {
            (Target::Pieces(sender), _) => sender.finish(),
            (Target::Store, Some(store)) => store.behind.end_generation(),
            (Target::Store, None) => {}
        }
    }
}
