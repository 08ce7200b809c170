//! Running aggregates: every batch's change of a group goes out at once, as a changelog.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array};
use arrow::compute::interleave;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::types::RowKind;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

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
    changes: Changes,
    ids: Vec<u32>,
    pending: Pending,
    context: Option<OperatorContext>,
}

impl Running {
    pub(super) fn new(shape: Arc<Shape>, full: bool) -> Self {
        let (panes, changes, pending) = (OpenPanes::default(), Changes::default(), Pending::default());
        Self { shape, full, panes, changes, ids: Vec::new(), pending, context: None }
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
        let pane = self.panes.pane(Window::WHOLE);
        pane.map(|pane| &pane.groups).ok_or_else(|| self.shape.invariant("a batch has made no groups"))
    }

    /// The change rows of the changed groups, given what the old ones among them were.
    fn changelog(&self, known: &[u32], groups_before: usize, before: Option<Vec<ArrayRef>>) -> Result<RecordBatch, EngineError> {
        let groups = self.groups()?;
        let changed = &self.changes.changed;
        let rows = Rows::Ids(changed);
        let kind = |id: &u32| if (*id as usize) < groups_before { RowKind::UpdateAfter } else { RowKind::Insert };
        let after: Vec<ArrayRef> = groups.keys(rows).into_iter().chain(groups.read(rows)).collect();
        let Some(before) = before else {
            let op: ArrayRef = Arc::new(Int8Array::from_iter_values(changed.iter().map(|id| kind(id) as i8)));
            return self.shape.output(std::iter::once(op).chain(after).collect());
        };
        let before: Vec<ArrayRef> = groups.keys(Rows::Ids(known)).into_iter().chain(before).collect();
        let (mut op, mut places, mut old) = (Vec::new(), Vec::new(), 0);
        for (row, id) in changed.iter().enumerate() {
            if kind(id) == RowKind::UpdateAfter {
                op.push(RowKind::UpdateBefore as i8);
                places.push((0, old));
                old += 1;
            }
            op.push(kind(id) as i8);
            places.push((1, row));
        }
        let op: ArrayRef = Arc::new(Int8Array::from(op));
        let columns = before.iter().zip(&after).map(|(before, after)| interleave(&[before.as_ref(), after.as_ref()], &places));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|source| self.shape.kernel(source))?;
        self.shape.output(std::iter::once(op).chain(columns).collect())
    }
}

impl Operator for Running {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.panes.open(&self.shape, context, &restored)?;
        self.context = Some(context.clone());
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs, rows) = (self.shape.keys(&batch), self.shape.inputs(&batch), batch.num_rows());
        let groups_before = self.panes.intern(&self.shape, Window::WHOLE, &keys, rows, &mut self.ids)?;
        self.changes.collect(&self.ids, self.groups()?.len());
        let known: Vec<u32> = match self.full {
            true => self.changes.changed.iter().copied().filter(|id| (*id as usize) < groups_before).collect(),
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

/// Finds which groups a batch changes, each once.
#[derive(Debug, Default)]
struct Changes {
    /// A bit per group; all zero between two batches.
    touched: Vec<u64>,
    /// The changed groups, in order of first appearance.
    changed: Vec<u32>,
}

impl Changes {
    /// Puts the distinct ids among `ids` into `changed`.
    fn collect(&mut self, ids: &[u32], groups: usize) {
        self.touched.resize(groups.div_ceil(64).max(self.touched.len()), 0);
        self.changed.clear();
        for id in ids {
            let (word, bit) = (&mut self.touched[*id as usize / 64], 1 << (id % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.changed.push(*id);
            }
        }
        for id in &self.changed {
            self.touched[*id as usize / 64] = 0;
        }
    }
}
