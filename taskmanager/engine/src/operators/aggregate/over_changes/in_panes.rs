//! Groups as those of the whole stream, in front of a store where no values are counted; with values they are on the heap, since
//! their order goes by the groups' places in memory.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::snapshot::StatePart;

use super::super::group_table::GroupTable;
use super::super::panes::OpenPanes;
use super::super::shape::Shape;
use super::extremes::{Extremes, ExtremesShape};
use super::kept::{Changing, Kept, gone, group_of};
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::window::Window;

/// The groups.
#[derive(Debug)]
pub(super) struct InPanes {
    shape: Arc<Shape>,
    groups: OpenPanes,
    extremes: Vec<Extremes>,
}

impl InPanes {
    /// With what was restored.
    ///
    /// Contract: where values are counted there is no store.
    pub(super) fn open(
        shape: &Arc<Shape>,
        extremes: &[ExtremesShape],
        context: &OperatorContext,
        mut restored: Vec<RestoredState>,
    ) -> Result<Self, EngineError> {
        let mut extremes: Vec<Extremes> = extremes.iter().map(Extremes::new).collect();
        for extremes in &mut extremes {
            extremes.open(context, &mut restored)?;
        }
        let mut groups = OpenPanes::default();
        groups.open(shape, context, restored)?;
        for extremes in &mut extremes {
            extremes.put_in_order(|keys, rows, ids| groups.find(Window::WHOLE, keys, rows, ids))?;
        }
        Ok(Self { shape: Arc::clone(shape), groups, extremes })
    }
}

impl Kept for InPanes {
    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.groups.is_ready(&self.shape)
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<(), EngineError> {
        self.groups.intern(&self.shape, Window::WHOLE, keys, rows, ids).map(|_| ())
    }

    fn groups(&self) -> Result<&GroupTable, EngineError> {
        self.groups.made_groups(&self.shape, Window::WHOLE)
    }

    fn change(&mut self, Changing { comes, ids, inputs, rows }: Changing<'_>) -> Result<(), EngineError> {
        match comes {
            true => self.groups.take_in(&self.shape, Window::WHOLE, ids, inputs, rows),
            false => self.groups.take_back(&self.shape, Window::WHOLE, ids, inputs, rows),
        }
    }

    fn count_values(&mut self, batch: &RecordBatch, comes: Option<&[bool]>, ids: &[u32]) -> Result<(), EngineError> {
        self.extremes.iter_mut().try_for_each(|extremes| extremes.take(batch, comes, |row| group_of(ids, row)))
    }

    fn ends(&self, column: usize, groups: &[u32], is_greatest: bool) -> ArrayRef {
        self.extremes[column].ends(groups, is_greatest)
    }

    fn settle(&mut self, groups: &[u32], rows: &[i64]) {
        let gone = gone(groups, rows);
        self.extremes.iter_mut().for_each(|extremes| extremes.forget(&gone));
        self.groups.remove(Window::WHOLE, &gone);
    }

    fn make_room(&mut self) -> Result<(), EngineError> {
        self.groups.make_room(&self.shape)
    }

    fn count(&mut self, context: &OperatorContext) -> Result<(), EngineError> {
        self.groups.count(&self.shape, context)?;
        self.extremes.iter_mut().try_for_each(|extremes| extremes.count(context))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        let mut parts = vec![self.groups.snapshot(&self.shape, checkpoint)?];
        for extremes in &mut self.extremes {
            parts.push(extremes.snapshot(checkpoint)?);
        }
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let mut remains = self.groups.background(&self.shape)?;
        for extremes in &mut self.extremes {
            remains |= extremes.background()?;
        }
        Ok(remains)
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        self.groups.abandon(checkpoint);
        self.extremes.iter_mut().for_each(|extremes| extremes.abandon(checkpoint));
    }
}
