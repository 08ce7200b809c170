//! Running aggregates: every batch's change of a group goes out at once, as a changelog.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::change_rows::ChangeRows;
use super::changed::Changed;
use super::group_table::GroupTable;
use super::panes::OpenPanes;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::Window;

/// A running aggregation.
///
/// Shape of the output: `_op`, keys, aggregates. A group's first change is an insert, later ones are updates; at most one change
/// per group and batch, in order of first appearance in the batch; with `full`, the row that an update replaces goes before it.
#[derive(Debug)]
pub(super) struct Running {
    shape: Arc<Shape>,
    full: bool,
    panes: OpenPanes,
    changed: Changed,
    ids: Vec<u32>,
    pending: Pending,
    context: Option<OperatorContext>,
}

impl Running {
    pub(super) fn new(shape: Arc<Shape>, full: bool) -> Self {
        let (panes, changed, pending) = (OpenPanes::default(), Changed::default(), Pending::default());
        Self { shape, full, panes, changed, ids: Vec::new(), pending, context: None }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        self.panes.count(&self.shape, context)
    }

    /// The groups, of which a batch has just made some.
    fn groups(&self) -> Result<&GroupTable, EngineError> {
        self.panes.made_groups(&self.shape, Window::WHOLE)
    }

    /// The change rows of the changed groups, given what the old ones among them were.
    fn changelog(&self, known: &[u32], groups_before: usize, before: Option<Vec<ArrayRef>>) -> Result<RecordBatch, EngineError> {
        let groups = self.groups()?;
        let (mut changes, mut old) = (ChangeRows::default(), 0);
        for (row, id) in self.changed.ids.iter().enumerate() {
            match (*id as usize) < groups_before {
                false => changes.insert(row),
                true => {
                    changes.update(before.as_ref().map(|_| old), row);
                    old += 1;
                }
            }
        }
        let rows = Rows::Ids(&self.changed.ids);
        let after = groups.keys(rows).into_iter().chain(groups.read(rows)).collect();
        let before: Vec<ArrayRef> =
            before.into_iter().flat_map(|before| groups.keys(Rows::Ids(known)).into_iter().chain(before)).collect();
        changes.batch(&self.shape, &before, after)
    }
}

impl Operator for Running {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.panes.open(&self.shape, context, restored)?;
        self.context = Some(context.clone());
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs, rows) = (self.shape.keys(&batch), self.shape.inputs(&batch), batch.num_rows());
        let groups_before = self.panes.intern(&self.shape, Window::WHOLE, &keys, rows, &mut self.ids)?;
        self.changed.collect(&self.ids);
        let known: Vec<u32> = match self.full {
            true => self.changed.ids.iter().copied().filter(|id| (*id as usize) < groups_before).collect(),
            false => Vec::new(),
        };
        // What they were, for `-U`.
        let before = if known.is_empty() { None } else { Some(self.groups()?.read(Rows::Ids(&known))) };
        self.panes.take_in(&self.shape, Window::WHOLE, &self.ids, &inputs, rows)?;
        let changes = self.changelog(&known, groups_before, before)?;
        self.pending.push(changes);
        self.panes.make_room(&self.shape)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        Ok(self.pending.pop(rows_max))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(if finished { Vec::new() } else { vec![self.panes.snapshot(&self.shape, checkpoint)?] })
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}
