//! Aggregates in windows: a pane per window, emitted whole when time has passed its end, then dropped.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::WindowTime;
use levada_common::time::Watermark;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::group_table::GroupTable;
use super::panes::{Emission, OpenPanes};
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::window::{Window, WindowClock};

/// An aggregation in windows that do not overlap, of event time or processing time.
///
/// Shape of the output: keys, `window_start`, `window_end`, `window_time` (end − 1 ms), aggregates; append. Windows fire in the
/// order of their ends. A row whose window has fired is late: counted, and given beside the result where that is read. By
/// processing time no row is.
#[derive(Debug)]
pub(super) struct Windows {
    shape: Arc<Shape>,
    panes: OpenPanes,
    emission: Emission,
    ids: Vec<u32>,
    clock: WindowClock,
    late: LateRows,
    context: Option<OperatorContext>,
}

impl Windows {
    pub(super) fn new(shape: Arc<Shape>, late: LateRows, time: &WindowTime) -> Self {
        Self {
            shape,
            panes: OpenPanes::default(),
            emission: Emission::default(),
            ids: Vec::new(),
            clock: WindowClock::new(time),
            late,
            context: None,
        }
    }

    /// Sends the windows out that are over.
    fn fire(&mut self) -> Result<(), EngineError> {
        while let Some(pane) = self.panes.pop_fired(&self.shape, self.clock.watermark())? {
            self.emission.push(pane);
        }
        self.count()
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        self.panes.count(&self.shape, context)
    }
}

impl Operator for Windows {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        self.panes.open(&self.shape, context, restored)?;
        // What a job that took late rows in had kept of windows that are over: their results were given. By processing time none was
        // that is here: another subtask's clock had come further.
        while !self.clock.is_processing()
            && let Some(pane) = self.panes.pop_fired(&self.shape, self.clock.watermark())?
        {
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
        let (watermark, now) = (self.clock.watermark(), self.clock.now());
        let late = self.panes.take_batch(&self.shape, (&batch, now), &mut self.ids, |window| window.has_fired(watermark))?;
        for split in late {
            self.late.take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.panes.make_room(&self.shape)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        self.emission.next(&self.shape, &mut self.panes, rows_max, result_columns)
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.poll())
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        if self.clock.advance(watermark) {
            self.fire()?;
        }
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        self.fire()?;
        if self.emission.is_pending() {
            return Ok(Some(time_ms));
        }
        Ok(self.panes.first().map(|window| self.clock.shows_at(window.end)))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = vec![self.panes.snapshot(&self.shape, checkpoint)?];
        parts.extend(self.clock.parts(&self.shape.uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        self.fire()
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}

fn result_columns(window: Window, groups: &GroupTable, rows: Rows<'_>) -> Result<Vec<ArrayRef>, EngineError> {
    Ok(groups.keys(rows).into_iter().chain(window.result_columns(rows.len())).chain(groups.read(rows)).collect())
}
