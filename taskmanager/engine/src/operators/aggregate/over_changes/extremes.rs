//! The least and the greatest value of each group, of a column whose values are counted; on the heap.
//!
//! Invariant: a value is in the order of its group exactly as long as its count is above zero; the order is not in snapshots, but
//! made of the counts.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::keys::normalise_key_column;
use levada_common::plan::{CountedValues, OperatorSpec};
use levada_state::snapshot::StatePart;

use super::super::counted::Counted;
use super::super::shape::Shape;
use super::order::Order;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};

/// A column whose values are counted.
#[derive(Debug, Clone)]
pub(super) struct ExtremesShape {
    pub(super) counted: Arc<Shape>,
    data_type: DataType,
}

impl ExtremesShape {
    /// Errors: `Invariant` where the plan names a column that there is not, or whose values have no order.
    pub(super) fn new(spec: &OperatorSpec, counted: &CountedValues) -> Result<Self, EngineError> {
        let data_type = spec.input.column(&counted.value).map(|column| column.ty.to_arrow());
        let data_type = data_type.filter(|data_type| Order::new(data_type).is_some()).ok_or_else(|| EngineError::Invariant {
            uid: spec.uid.clone(),
            message: format!("the values of column \"{}\" have no order", counted.value),
        })?;
        Ok(Self { counted: Arc::new(Shape::of_values(spec, counted)?), data_type })
    }

    /// Without values.
    pub(super) fn order(&self) -> Order {
        Order::new(&self.data_type).expect("it was made of a type that has an order")
    }
}

/// The values of one column, counted and in order.
#[derive(Debug)]
pub(super) struct Extremes {
    counted: Counted,
    order: Order,
    turned: Vec<u32>,
}

impl Extremes {
    /// Without values.
    pub(super) fn new(shape: &ExtremesShape) -> Self {
        Self { counted: Counted::of(Arc::clone(&shape.counted)), order: shape.order(), turned: Vec::new() }
    }

    /// Takes what was restored of its state out of `restored`; `put_in_order` follows.
    ///
    /// Contract: there is no store.
    pub(super) fn open(&mut self, context: &OperatorContext, restored: &mut Vec<RestoredState>) -> Result<(), EngineError> {
        self.counted.open(context, restored)
    }

    /// Orders the values that were restored; `find` gives the groups of keys.
    pub(super) fn put_in_order(&mut self, mut find: impl FnMut(&[ArrayRef], usize, &mut Vec<u32>)) -> Result<(), EngineError> {
        let (mut ids, order) = (Vec::new(), &mut self.order);
        self.counted.each(|keys, values| {
            find(keys, values.len(), &mut ids);
            let rows: Vec<u32> = (0..values.len() as u32).collect();
            order.turn(&values, &rows, |row| (ids[row as usize], true));
        })
    }

    /// Counts a batch's rows, of groups that `group` names.
    pub(super) fn take(
        &mut self,
        batch: &RecordBatch,
        comes: Option<&[bool]>,
        group: impl Fn(u32) -> u32,
    ) -> Result<(), EngineError> {
        self.counted.turns((batch, None), comes, |_| false, &mut self.turned)?;
        let values = normalise_key_column(ArrayRef::clone(self.counted.values(batch)));
        let comes = |row: u32| comes.is_none_or(|comes| comes[row as usize]);
        self.order.turn(&values, &self.turned, |row| (group(row), comes(row)));
        Ok(())
    }

    /// The least or the greatest value of each of these groups; null where there is none.
    pub(super) fn ends(&self, groups: &[u32], is_greatest: bool) -> ArrayRef {
        self.order.ends(groups, is_greatest)
    }

    /// These groups are gone.
    pub(super) fn forget(&mut self, groups: &[u32]) {
        groups.iter().for_each(|group| self.order.forget(*group));
    }

    /// Writes the node's counters.
    ///
    /// Errors: `OverBudget`.
    pub(super) fn count(&mut self, context: &OperatorContext) -> Result<(), EngineError> {
        self.counted.count(context, self.order.memory_bytes())
    }

    /// The synchronous part of a snapshot.
    pub(super) fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<StatePart, EngineError> {
        self.counted.snapshot(checkpoint)
    }

    /// Saves a further piece of a snapshot; answers whether more remain.
    pub(super) fn background(&mut self) -> Result<bool, EngineError> {
        self.counted.background()
    }

    /// Gives the snapshot of this checkpoint up, if it is running.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.counted.abandon(checkpoint);
    }
}
