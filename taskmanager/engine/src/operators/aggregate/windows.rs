//! Aggregates in event-time windows: a pane per window, emitted whole when time has passed its end, then dropped.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::group_table::GroupTable;
use super::panes::{Emission, OpenPanes};
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::event_time::{restored_watermark, watermark_part};
use crate::operators::late::LateRows;
use crate::operators::window::Window;

/// An aggregation in event-time windows.
///
/// Shape of the output: keys, `window_start`, `window_end`, `window_time` (end − 1 ms), aggregates; append. Windows fire in the
/// order of their ends. A row whose window has fired is late: counted, and given beside the result where that is read.
#[derive(Debug)]
pub(super) struct Windows {
    shape: Arc<Shape>,
    panes: OpenPanes,
    emission: Emission,
    ids: Vec<u32>,
    watermark: i64,
    late: LateRows,
    context: Option<OperatorContext>,
}

impl Windows {
    pub(super) fn new(shape: Arc<Shape>, late: LateRows) -> Self {
        Self {
            shape,
            panes: OpenPanes::default(),
            emission: Emission::default(),
            ids: Vec::new(),
            watermark: i64::MIN,
            late,
            context: None,
        }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }
}

impl Operator for Windows {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.watermark = restored_watermark(&self.shape.uid, &mut restored)?;
        self.panes.open(&self.shape, context, &restored)?;
        // What a job that took late rows in had kept of windows that are over: their results were given.
        while let Some(pane) = self.panes.pop_fired(&self.shape, self.watermark)? {
            self.emission.push(pane);
            while self.emission.next(&self.shape, &mut self.panes, context.batch_rows_max, result_columns)?.is_some() {}
        }
        self.late.open(context);
        self.context = Some(context.clone());
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let watermark = self.watermark;
        let late = self.panes.take_batch(&self.shape, &batch, &mut self.ids, |window| window.has_fired(watermark))?;
        for split in late {
            self.late.take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.panes.make_room(&self.shape)?;
        self.panes.count(self.context());
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        self.emission.next(&self.shape, &mut self.panes, rows_max, result_columns)
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.poll())
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has fired stays fired.
        self.watermark = self.watermark.max(watermark.0);
        while let Some(pane) = self.panes.pop_fired(&self.shape, watermark.0)? {
            self.emission.push(pane);
        }
        self.panes.count(self.context());
        Ok(Some(watermark))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = vec![self.panes.snapshot(&self.shape, checkpoint)?];
        parts.extend(watermark_part(&self.shape.uid, self.watermark));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.advance(Watermark::MAX).map(|_| ())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}

fn result_columns(window: Window, groups: &GroupTable, rows: Rows<'_>) -> Vec<ArrayRef> {
    groups.keys(rows).into_iter().chain(window.result_columns(rows.len())).chain(groups.read(rows)).collect()
}
