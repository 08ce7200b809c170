//! A pane whose time has passed: its rows that met none, on their way out.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::plan::JoinSide;

use super::super::shape::Shape;
use super::rows::IntervalRows;
use crate::error::EngineError;
use crate::operators::rows::Part;
use crate::operators::waiting::Waiting;

/// The pane, or what was read of it, and how far it is.
pub(super) struct Closing {
    side: JoinSide,
    rows: Arc<IntervalRows>,
    row: usize,
}

impl Closing {
    pub(super) fn new(side: JoinSide, rows: Arc<IntervalRows>) -> Self {
        Self { side, rows, row: 0 }
    }

    /// What is held, as it is counted: side, bytes and rows.
    pub(super) fn held(&self) -> (usize, usize, usize) {
        (self.side as usize, self.rows.memory_bytes(), self.rows.times.len())
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    pub(super) fn next(&mut self, shape: &Shape, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let mut rows = Vec::new();
        while self.row < self.rows.times.len() && rows.len() < rows_max {
            if !self.rows.met.as_ref().is_some_and(|met| met.has(self.row as u32)) {
                rows.push(self.row as u32);
            }
            self.row += 1;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let own = Part::kept(&self.rows.indexed.rows, &rows);
        let parts = match self.side {
            JoinSide::Left => [&own, &Part::Nothing],
            JoinSide::Right => [&Part::Nothing, &own],
        };
        shape.output(rows.len(), parts, None).map(Some)
    }
}
