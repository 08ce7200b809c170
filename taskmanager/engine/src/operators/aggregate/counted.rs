//! The values of a column by key and window, each with the number of rows that have it.
//!
//! What counts is when a value *turns*: comes to be there with a row, or ceases to be. A value that no row has any more leaves the
//! state. Must never know what is computed of the values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{CountedValues, OperatorSpec};
use levada_state::bits::Bits;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::group_table::GroupTable;
use super::panes::OpenPanes;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::window::Window;

/// Entries that are read at once after a restore.
const READ_ROWS: usize = 8192;

/// The counts of one column's values.
#[derive(Debug)]
pub(super) struct Counted {
    shape: Arc<Shape>,
    panes: OpenPanes,
    ids: Vec<u32>,
    walk: Walk,
}

impl Counted {
    /// Without values.
    pub(super) fn new(spec: &OperatorSpec, counted: &CountedValues) -> Result<Self, EngineError> {
        Ok(Self::of(Arc::new(Shape::of_values(spec, counted)?)))
    }

    /// Without values of this shape.
    pub(super) fn of(shape: Arc<Shape>) -> Self {
        Self { shape, panes: OpenPanes::default(), ids: Vec::new(), walk: Walk::default() }
    }

    /// Takes what was restored of its state out of `restored`.
    pub(super) fn open(&mut self, context: &OperatorContext, restored: &mut Vec<RestoredState>) -> Result<(), EngineError> {
        let own: Vec<RestoredState> = restored.extract_if(.., |state| state.name == self.shape.state_name()).collect();
        self.panes.open(&self.shape, context, own)
    }

    /// Whether there is room for another batch. Where there is none the store is writing: it wakes the task when it is done.
    pub(super) fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready(&self.shape)
    }

    /// To be called after each batch: sends and forgets what is due where memory is short.
    pub(super) fn make_room(&mut self) -> Result<(), EngineError> {
        self.panes.make_room(&self.shape)
    }

    /// The column of the values in a batch.
    pub(super) fn values<'a>(&self, batch: &'a RecordBatch) -> &'a ArrayRef {
        batch.column(self.shape.value_place())
    }

    /// Counts the rows of a batch, which comes in at `now` where that is asked; of them those go that are not among `comes` (all come
    /// where it is not said), and none counts of windows of which `is_over` says so. Fills `turned` with the rows with which a value came to be there, or ceased to be.
    pub(super) fn turns(
        &mut self,
        (batch, now): (&RecordBatch, Option<i64>),
        comes: Option<&[bool]>,
        is_over: impl Fn(Window) -> bool,
        turned: &mut Vec<u32>,
    ) -> Result<(), EngineError> {
        turned.clear();
        let keys = self.shape.keys(batch);
        for (window, split) in self.shape.split_at(batch, now)?.into_iter().filter(|(window, _)| !is_over(*window)) {
            if let Some(values) = RowValues::of(&self.shape, &keys, split.numbers(batch.num_rows()))? {
                self.count_rows(window, &values, comes, turned)?;
            }
        }
        Ok(())
    }

    fn count_rows(
        &mut self,
        window: Window,
        RowValues { keys, rows }: &RowValues,
        comes: Option<&[bool]>,
        turned: &mut Vec<u32>,
    ) -> Result<(), EngineError> {
        let Self { shape, panes, ids, walk } = self;
        panes.intern(shape, window, keys, rows.len(), ids)?;
        let groups = panes.made_groups(shape, window)?;
        walk.go(ids, groups, |at| {
            let row = rows[at];
            (row, comes.is_none_or(|comes| comes[row as usize]))
        });
        turned.append(&mut walk.turned);
        panes.assign(shape, window, &walk.changed, &[walk.counts()]);
        panes.remove(window, &walk.gone);
        Ok(())
    }

    /// Forgets the windows that are over at this watermark.
    pub(super) fn forget_until(&mut self, watermark: i64) -> Result<(), EngineError> {
        while let Some(window) = self.panes.first().filter(|window| window.has_fired(watermark)) {
            self.panes.drop_pane(&self.shape, window)?;
        }
        Ok(())
    }

    /// Hands the values that are there, with the columns of their keys before them, to `visit`, some at a time.
    ///
    /// Contract: there is no store.
    pub(super) fn each(&self, mut visit: impl FnMut(&[ArrayRef], ArrayRef)) -> Result<(), EngineError> {
        let Some(pane) = self.panes.pane(Window::WHOLE) else { return Ok(()) };
        let len = pane.groups.len();
        for start in (0..len).step_by(READ_ROWS) {
            let rows: Vec<u32> = (start as u32..len.min(start + READ_ROWS) as u32).collect();
            let counts = pane.groups.read_call(0, Rows::Ids(&rows));
            let there = rows.into_iter().zip(counts.as_primitive::<Int64Type>().values());
            let there: Vec<u32> = there.filter(|(_, count)| **count > 0).map(|(row, _)| row).collect();
            let mut keys = pane.groups.keys(Rows::Ids(&there));
            let value = keys.pop().ok_or_else(|| self.shape.invariant("a counted value has no column"))?;
            visit(&keys, value);
        }
        Ok(())
    }

    /// Writes the node's counters; `beside_bytes` are held beside the counts.
    ///
    /// Errors: `OverBudget`.
    pub(super) fn count(&mut self, context: &OperatorContext, beside_bytes: usize) -> Result<(), EngineError> {
        self.panes.hold_beside(beside_bytes + self.walk.memory_bytes());
        self.panes.count(&self.shape, context)
    }

    /// The synchronous part of a snapshot.
    pub(super) fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<StatePart, EngineError> {
        self.panes.snapshot(&self.shape, checkpoint)
    }

    /// Saves a further piece of a snapshot; answers whether more remain.
    pub(super) fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    /// Gives the snapshot of this checkpoint up, if it is running.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.panes.abandon(checkpoint);
    }
}

/// Rows that have a value, with their keys and values.
pub(super) struct RowValues {
    /// Columns of the keys, and behind them the value.
    pub(super) keys: Vec<ArrayRef>,
    pub(super) rows: Vec<u32>,
}

impl RowValues {
    /// Those of these rows that have a value, if some do; `keys` are the columns of all rows.
    pub(super) fn of(shape: &Shape, keys: &[ArrayRef], mut rows: Vec<u32>) -> Result<Option<Self>, EngineError> {
        if let Some(nulls) = keys.last().and_then(|value| value.nulls()) {
            rows.retain(|row| nulls.is_valid(*row as usize));
        }
        if rows.is_empty() {
            return Ok(None);
        }
        if rows.len() == keys[0].len() {
            return Ok(Some(Self { keys: keys.to_vec(), rows }));
        }
        let places = UInt32Array::from(rows.clone());
        let keys = keys.iter().map(|column| take(column, &places, None)).collect::<Result<Vec<_>, _>>();
        Ok(Some(Self { keys: keys.map_err(|source| shape.kernel(source))?, rows }))
    }
}

/// A walk over the rows of a batch; vectors that are filled anew each time.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// By entry: its count so far, where this batch has it.
    latest: Vec<i64>,
    /// Entries that this batch has; all zero between two batches.
    seen: Bits,
    /// The same, in order of first appearance.
    pub(super) changed: Vec<u32>,
    /// Rows with which a value turned.
    pub(super) turned: Vec<u32>,
    /// Entries that no row has any more.
    pub(super) gone: Vec<u32>,
}

impl Walk {
    /// Walks over the entries of the rows, `table` having their counts before the batch; `row` gives a row's number and whether it
    /// comes.
    pub(super) fn go(&mut self, ids: &[u32], table: &GroupTable, row: impl Fn(usize) -> (u32, bool)) {
        let before = table.read_call(0, Rows::Ids(ids));
        let before = before.as_primitive::<Int64Type>().values();
        self.changed.clear();
        self.gone.clear();
        self.turned.clear();
        self.latest.resize(table.len().max(self.latest.len()), 0);
        for (at, id) in ids.iter().enumerate() {
            let count = &mut self.latest[*id as usize];
            if self.seen.set(*id) {
                self.changed.push(*id);
                *count = before[at];
            }
            let (number, comes) = row(at);
            let after = *count + if comes { 1 } else { -1 };
            if (*count > 0) != (after > 0) {
                self.turned.push(number);
            }
            *count = after;
        }
        for id in &self.changed {
            self.seen.clear(*id);
            if self.latest[*id as usize] == 0 {
                self.gone.push(*id);
            }
        }
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.latest.capacity() * size_of::<i64>() + self.seen.memory_bytes()
    }

    /// The counts of the changed entries.
    pub(super) fn counts(&self) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(self.changed.iter().map(|id| self.latest[*id as usize])))
    }
}
