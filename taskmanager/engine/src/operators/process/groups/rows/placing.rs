//! Which windows rows of a snapshot are in, and what says so.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::plan::{ProcessWindow, WindowSpec};

use super::{Belongs, Contents, FunctionRows, Returned};
use crate::error::EngineError;
use crate::operators::process::window::Shape;
use crate::operators::waiting::RestoredRows;
use crate::operators::window::{Window, namespace_column, times};

impl FunctionRows {
    /// Which groups restored rows are of.
    pub(super) fn returned(&self, rows: RestoredRows) -> Result<Returned<RestoredRows>, EngineError> {
        let (side, batch) = (&self.shape.sides[rows.side], &rows.batch);
        let belongs = match (side.time, &rows.windows) {
            (Some(time), _) => {
                let times = times(batch.column(time));
                Belongs::At(times.map_err(|reason| self.shape.invariant(reason))?.to_vec())
            }
            (None, Some(windows)) => Belongs::In(windows_in(windows)),
            (None, None) => Belongs::In(self.windows_of(rows.side, batch)?),
        };
        let (keys, state) = (side.keys(batch.columns()), side.state.name.clone());
        Ok(Returned { keys, rows: batch.num_rows(), belongs, state, saved: rows })
    }

    /// The window of each row, where it is in one.
    fn windows_of(&self, input: usize, batch: &RecordBatch) -> Result<Vec<Window>, EngineError> {
        let mut windows = vec![Window::WHOLE; batch.num_rows()];
        for (window, split) in self.split(input, batch, None)? {
            split.numbers(batch.num_rows()).into_iter().for_each(|row| windows[row as usize] = window);
        }
        Ok(windows)
    }
}

/// By what rows are in their windows, in words: where it is the same in a snapshot, they are where they belong.
pub(super) fn placed_by(window: &ProcessWindow, shape: &Shape) -> String {
    match &window.window {
        // Which they are is kept beside the rows.
        WindowSpec::Session { .. } => "session".into(),
        other if other.overlaps() => "overlapping".into(),
        other => {
            let times: Vec<_> = shape.sides.iter().map(|side| side.time_name()).collect();
            serde_json::to_string(&(other, &window.time, times)).expect("a plan is written as JSON")
        }
    }
}

/// The windows of rows, as they are kept.
pub(super) fn window_column(windows: &[Window]) -> ArrayRef {
    let times = |time: fn(&Window) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(windows.iter().map(time)))
    };
    namespace_column(times(|window| window.start), times(|window| window.end))
}

/// A column of windows.
fn windows_in(column: &ArrayRef) -> Vec<Window> {
    let times = |at: usize| column.as_struct().column(at).as_primitive::<TimestampMillisecondType>().values().clone();
    times(0).iter().zip(times(1).iter()).map(|(start, end)| Window { start: *start, end: *end }).collect()
}
