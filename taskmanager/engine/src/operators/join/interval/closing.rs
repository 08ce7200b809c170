//! A pane whose time has passed: its rows that met none, on their way out.

use arrow::record_batch::RecordBatch;
use levada_common::plan::JoinSide;

use super::super::shape::Shape;
use super::Pane;
use crate::error::EngineError;
use crate::operators::rows::Part;

/// The pane, and how far it is.
pub(super) struct Closing {
    pub(super) side: JoinSide,
    pub(super) pane: Pane,
    row: usize,
}

impl Closing {
    pub(super) fn new(side: JoinSide, pane: Pane) -> Self {
        Self { side, pane, row: 0 }
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    pub(super) fn next(&mut self, shape: &Shape, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let mut rows = Vec::new();
        while self.row < self.pane.times.len() && rows.len() < rows_max {
            if !self.pane.marks.has(self.row as u32) {
                rows.push(self.row as u32);
            }
            self.row += 1;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let own = Part::kept(&self.pane.rows.rows, &rows);
        let parts = match self.side {
            JoinSide::Left => [&own, &Part::Nothing],
            JoinSide::Right => [&Part::Nothing, &own],
        };
        shape.output(rows.len(), parts, None).map(Some)
    }
}
