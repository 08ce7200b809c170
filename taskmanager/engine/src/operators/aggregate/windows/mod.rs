//! Aggregates in event-time windows: a pane per window, emitted whole when time has passed its end, then dropped.

mod firing;
mod open_panes;
mod pane;
mod split;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::ids::CheckpointId;
use levada_common::planned_state::WATERMARK;
use levada_common::time::Watermark;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::task::entries;
use open_panes::OpenPanes;

pub(super) use firing::Firing;
pub(super) use pane::Pane;
pub(in crate::operators) use pane::Window;
pub(in crate::operators) use split::{Split, WindowSource};

/// An aggregation in event-time windows.
///
/// Shape of the output: keys, `window_start`, `window_end`, `window_time` (end − 1 ms), aggregates; append. Windows fire in the
/// order of their ends. A row whose window has fired is late: dropped and counted.
#[derive(Debug)]
pub(super) struct Windows {
    shape: Arc<Shape>,
    panes: OpenPanes,
    firing: Firing,
    watermark: i64,
    context: Option<OperatorContext>,
}

impl Windows {
    pub(super) fn new(shape: Arc<Shape>) -> Self {
        Self { shape, panes: OpenPanes::default(), firing: Firing::default(), watermark: i64::MIN, context: None }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    /// How far time had come in the snapshot: without it a row that is late would open its window anew after a restore, and the
    /// window would fire twice. The same in every subtask, so any entry will do; a union, so that each new subtask has one.
    fn restored_watermark(&self, restored: &[RestoredState]) -> Result<i64, EngineError> {
        let mut watermark = i64::MIN;
        for entry in entries::read(&self.shape.uid, WATERMARK, restored)? {
            let time: i64 = entry.parse().map_err(|_| EngineError::Restore {
                uid: self.shape.uid.clone(),
                state: WATERMARK.into(),
                reason: format!("\"{entry}\" is not a time in milliseconds"),
            })?;
            watermark = watermark.max(time);
        }
        Ok(watermark)
    }

    fn count(&self) {
        let metrics = &self.context().metrics;
        metrics.state_keys.store(self.panes.groups() as u64, Ordering::Relaxed);
        metrics.state_bytes.store(self.panes.memory_bytes() as u64, Ordering::Relaxed);
    }
}

impl Operator for Windows {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let (watermark, restored): (Vec<_>, Vec<_>) = restored.into_iter().partition(|state| state.name == WATERMARK);
        self.watermark = self.restored_watermark(&watermark)?;
        self.panes.restore(&self.shape, context.key_groups, &restored)?;
        self.context = Some(context.clone());
        self.count();
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs) = (self.shape.keys(&batch), self.shape.inputs(&batch));
        let source = self.shape.windows.as_ref().expect("this aggregation has windows");
        let mut late = 0;
        for (window, split) in source.split(&batch).map_err(|reason| self.shape.invariant(reason))? {
            let rows = split.rows(batch.num_rows());
            if window.has_fired(self.watermark) {
                late += rows as u64;
                continue;
            }
            let keys = split.columns(&keys).map_err(|source| self.shape.kernel(source))?;
            let inputs = split.columns(&inputs).map_err(|source| self.shape.kernel(source))?;
            self.panes.take_in(&self.shape, window, &keys, &inputs, rows)?;
        }
        if late > 0 {
            self.context().metrics.late_rows.fetch_add(late, Ordering::Relaxed);
        }
        self.count();
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        let batch = self.firing.next(&self.shape, rows_max, result_columns)?;
        self.firing.take_done().for_each(|pane| self.panes.retire(pane));
        Ok(batch)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has fired stays fired.
        self.watermark = self.watermark.max(watermark.0);
        while let Some(pane) = self.panes.pop_fired(watermark.0) {
            self.firing.push(pane);
        }
        self.count();
        Ok(Some(watermark))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = vec![self.panes.snapshot(&self.shape, checkpoint)];
        let entries = vec![self.watermark.to_string()];
        parts.extend(entries::part_of(&self.shape.uid, WATERMARK, StateKind::OperatorUnion, entries));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.panes.save_next(&self.shape))
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

fn result_columns(pane: &Pane, rows: Rows<'_>) -> Vec<ArrayRef> {
    let (start, end) = pane.window.columns(rows.len());
    let time = pane.window.time_column(rows.len());
    pane.groups.keys(rows).into_iter().chain([start, end, time]).chain(pane.groups.read(rows)).collect()
}
