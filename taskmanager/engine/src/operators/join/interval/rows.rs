//! The rows of one side in one stretch of time: by key, with their times, and whether they have met one.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::buffer::ScalarBuffer;
use arrow::error::ArrowError;
use levada_common::plan::JoinSide;

use super::super::indexed::IndexedRows;
use super::super::shape::Shape;
use crate::error::EngineError;
use crate::operators::event_time::event_times;
use crate::operators::rows::{Marks, RowBuffer};
use crate::operators::waiting::Waiting;

/// The rows.
pub(super) struct IntervalRows {
    pub(super) indexed: IndexedRows,
    /// Of each row.
    pub(super) times: Vec<i64>,
    /// Rows that have met one, where that must be known.
    pub(super) met: Option<Marks>,
}

/// The times of rows of a side, in the columns that are kept.
pub(super) fn times(shape: &Shape, side: usize, columns: &[ArrayRef]) -> Result<ScalarBuffer<i64>, EngineError> {
    let times = shape.sides[side].time.and_then(|time| event_times(&columns[time]));
    times.cloned().ok_or_else(|| shape.invariant("event time is of another type"))
}

impl Waiting for IntervalRows {
    type Owner = Shape;

    // Rows come into the newest panes.
    const OLDEST_LEAVE: bool = true;

    fn new(shape: &Shape, side: usize) -> Self {
        let met = shape.kind.marks(JoinSide::ALL[side]).then(Marks::default);
        Self { indexed: IndexedRows::new(&shape.sides[side].key_types), times: Vec::new(), met }
    }

    fn push(&mut self, shape: &Shape, side: usize, columns: &[ArrayRef], marks: Option<&BooleanArray>) -> Result<(), ArrowError> {
        let first = self.times.len();
        let times = times(shape, side, columns).map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        self.indexed.push(&shape.sides[side].keys(columns), columns)?;
        self.times.extend_from_slice(&times);
        if let Some(met) = &mut self.met {
            met.resize(self.times.len());
            for (row, _) in marks.into_iter().flatten().enumerate().filter(|(_, is_marked)| *is_marked == Some(true)) {
                met.set((first + row) as u32);
            }
        }
        Ok(())
    }

    fn rows(&self) -> &RowBuffer {
        &self.indexed.rows
    }

    fn marks(&self) -> Option<&Marks> {
        self.met.as_ref()
    }

    fn memory_bytes(&self) -> usize {
        let met = self.met.as_ref().map_or(0, Marks::memory_bytes);
        self.indexed.memory_bytes() + self.times.capacity() * size_of::<i64>() + met
    }
}
