//! Aggregates over everything: they fire once, at the end of data.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use super::table::Table;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};

/// An aggregation in a global window.
///
/// Shape of the output: keys, aggregates; append. Without key there is one row, of no rows too.
#[derive(Debug)]
pub(super) struct Global {
    shape: Arc<Shape>,
    table: Table,
    ids: Vec<u32>,
    /// The next group to be emitted, once it fires.
    cursor: Option<usize>,
    /// Whether what fires is the one group of no rows: that is no state.
    is_over_none: bool,
    context: Option<OperatorContext>,
}

impl Global {
    pub(super) fn new(shape: Arc<Shape>) -> Self {
        let table = Table::new(&shape);
        Self { shape, table, ids: Vec::new(), cursor: None, is_over_none: false, context: None }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }
}

impl Operator for Global {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.table.restore(&self.shape, context, &restored)?;
        self.context = Some(context.clone());
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs) = (self.shape.keys(&batch), self.shape.inputs(&batch));
        self.table.groups.intern(&keys, batch.num_rows(), &mut self.ids);
        self.table.before_change(&self.shape, &self.ids);
        let groups = self.table.groups.groups(&self.ids, batch.num_rows());
        self.table.groups.take_in(&self.shape, groups, &inputs)?;
        self.table.count(self.context());
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let Some(start) = self.cursor.filter(|start| *start < self.table.groups.len()) else { return Ok(None) };
        let end = self.table.groups.len().min(start + self.context().batch_rows_max);
        self.cursor = Some(end);
        let rows = Rows::Span { start, end };
        let columns = self.table.groups.keys(rows).into_iter().chain(self.table.groups.read(rows));
        self.shape.output(columns.collect()).map(Some)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(if finished || self.is_over_none { Vec::new() } else { self.table.snapshot(&self.shape, checkpoint) })
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.table.background(&self.shape))
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.is_over_none = self.table.groups.ensure_unit();
        self.cursor = Some(0);
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.table.notify(checkpoint, completed);
        Ok(())
    }
}
