//! Aggregates over everything: they fire once, at the end of data.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::group_table::GroupTable;
use super::panes::{Emission, OpenPanes};
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::window::Window;

/// An aggregation in a global window.
///
/// Shape of the output: keys, aggregates; append. Without key there is one row, of no rows too.
#[derive(Debug)]
pub(super) struct Global {
    shape: Arc<Shape>,
    panes: OpenPanes,
    emission: Emission,
    ids: Vec<u32>,
    context: Option<OperatorContext>,
}

impl Global {
    pub(super) fn new(shape: Arc<Shape>) -> Self {
        Self { shape, panes: OpenPanes::default(), emission: Emission::default(), ids: Vec::new(), context: None }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        self.panes.count(&self.shape, context)
    }
}

impl Operator for Global {
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
        self.panes.intern(&self.shape, Window::WHOLE, &keys, rows, &mut self.ids)?;
        self.panes.take_in(&self.shape, Window::WHOLE, &self.ids, &inputs, rows)?;
        self.panes.make_room(&self.shape)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        self.emission.next(&self.shape, &mut self.panes, rows_max, result_columns)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(if finished { Vec::new() } else { vec![self.panes.snapshot(&self.shape, checkpoint)?] })
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        if self.shape.key_types.is_empty() {
            // The one group is there even where no row has made it.
            self.panes.intern(&self.shape, Window::WHOLE, &[], 1, &mut self.ids)?;
        }
        let pane = self.panes.pop(&self.shape, Window::WHOLE)?;
        self.emission.push(pane);
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}

fn result_columns(_window: Window, groups: &GroupTable, rows: Rows<'_>) -> Result<Vec<ArrayRef>, EngineError> {
    Ok(groups.keys(rows).into_iter().chain(groups.read(rows)).collect())
}
