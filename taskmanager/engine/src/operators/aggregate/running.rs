//! Running aggregates: every batch's change of a group goes out at once, as a changelog.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array};
use arrow::compute::interleave;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::types::RowKind;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::pending::Pending;
use super::shape::Shape;
use super::table::Table;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};

/// A running aggregation.
///
/// Shape of the output: `_op`, keys, aggregates. A group's first change is an insert, later ones are updates; at most one change
/// per group and batch, in order of first appearance in the batch; with `full`, the row that an update replaces goes before it.
#[derive(Debug)]
pub(super) struct Running {
    shape: Arc<Shape>,
    full: bool,
    table: Table,
    changes: Changes,
    ids: Vec<u32>,
    pending: Pending,
    context: Option<OperatorContext>,
}

impl Running {
    pub(super) fn new(shape: Arc<Shape>, full: bool) -> Self {
        let table = Table::new(&shape);
        Self { shape, full, table, changes: Changes::default(), ids: Vec::new(), pending: Pending::default(), context: None }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    /// The changes of groups that are `known` already: what they were, for `-U`.
    fn before(&self, known: &[u32]) -> Result<Option<Vec<ArrayRef>>, EngineError> {
        Ok((self.full && !known.is_empty()).then(|| self.table.groups.read(Rows::Ids(known))))
    }

    /// The change rows of the changed groups, given what the old ones among them were.
    fn changelog(&self, known: &[u32], groups_before: usize, before: Option<Vec<ArrayRef>>) -> Result<RecordBatch, EngineError> {
        let changed = &self.changes.changed;
        let rows = Rows::Ids(changed);
        let kind = |id: &u32| if (*id as usize) < groups_before { RowKind::UpdateAfter } else { RowKind::Insert };
        let after: Vec<ArrayRef> = self.table.groups.keys(rows).into_iter().chain(self.table.groups.read(rows)).collect();
        let Some(before) = before else {
            let op: ArrayRef = Arc::new(Int8Array::from_iter_values(changed.iter().map(|id| kind(id) as i8)));
            return self.shape.output(std::iter::once(op).chain(after).collect());
        };
        let before: Vec<ArrayRef> = self.table.groups.keys(Rows::Ids(known)).into_iter().chain(before).collect();
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
        self.table.restore(&self.shape, context, &restored)?;
        self.context = Some(context.clone());
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs) = (self.shape.keys(&batch), self.shape.inputs(&batch));
        let groups_before = self.table.groups.len();
        self.table.groups.intern(&keys, batch.num_rows(), &mut self.ids);
        self.changes.collect(&self.ids, self.table.groups.len());
        let known: Vec<u32> = match self.full {
            true => self.changes.changed.iter().copied().filter(|id| (*id as usize) < groups_before).collect(),
            false => Vec::new(),
        };
        let before = self.before(&known)?;
        self.table.before_change(&self.shape, &self.changes.changed);
        let groups = self.table.groups.groups(&self.ids, batch.num_rows());
        self.table.groups.take_in(&self.shape, groups, &inputs)?;
        let changes = self.changelog(&known, groups_before, before)?;
        self.pending.push(changes);
        self.table.count(self.context());
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        Ok(self.pending.pop(rows_max))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(if finished { Vec::new() } else { self.table.snapshot(&self.shape, checkpoint) })
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.table.background(&self.shape))
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.table.notify(checkpoint, completed);
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
