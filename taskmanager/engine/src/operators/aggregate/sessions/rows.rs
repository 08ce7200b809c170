//! Rows of a batch as sessions take them in, a stretch at a time. Must never know which sessions there are.

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;

use super::super::shape::Shape;
use super::source::Bounds;

/// Rows with what their sessions are made of.
#[derive(Debug)]
pub(super) struct SessionRows {
    /// The key's columns.
    pub(super) keys: Vec<ArrayRef>,
    /// The columns of the calls.
    pub(super) inputs: Vec<ArrayRef>,
    /// The columns whose values are told apart.
    pub(super) values: Vec<ArrayRef>,
    /// From when to when each row holds a session open.
    pub(super) bounds: Bounds,
}

impl SessionRows {
    /// The rows of a batch with these bounds.
    pub(super) fn new(shape: &Shape, batch: &RecordBatch, bounds: Bounds) -> Self {
        Self { keys: shape.keys(batch), inputs: shape.inputs(batch), values: shape.values(batch), bounds }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.bounds.starts.len()
    }

    /// Some of the rows.
    pub(super) fn slice(&self, rows: Range<usize>) -> Self {
        let columns = |columns: &[ArrayRef]| columns.iter().map(|column| column.slice(rows.start, rows.len())).collect();
        let Bounds { starts, ends } = &self.bounds;
        let bounds = Bounds { starts: starts.slice(rows.start, rows.len()), ends: ends.slice(rows.start, rows.len()) };
        Self { keys: columns(&self.keys), inputs: columns(&self.inputs), values: columns(&self.values), bounds }
    }

    /// Runs of rows by whether the session that each would open is over at this watermark.
    pub(super) fn runs(&self, watermark: i64) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        let mut next = 0;
        let runs = self.bounds.ends.chunk_by(move |one, other| (*one <= watermark) == (*other <= watermark));
        runs.map(move |run| {
            next += run.len();
            (next - run.len()..next, run[0] <= watermark)
        })
    }

    /// As `runs`, but rows whose own session would be over by themselves: whether one is late depends on those before it.
    pub(super) fn steps(&self, watermark: i64) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        self.runs(watermark).flat_map(|(rows, is_over)| {
            let step = if is_over { 1 } else { rows.len() };
            rows.step_by(step).map(move |first| (first..first + step, is_over))
        })
    }
}
