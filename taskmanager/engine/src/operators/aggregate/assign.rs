//! Gives each row once for each of its windows, where windows overlap and what is computed of them cannot be made of slices.
//!
//! Windows that are over are left out; a row of which all are goes on in its last one, so that the aggregation counts it as late.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::plan::{AssignSpec, OperatorSpec};
use levada_common::time::Watermark;

use super::slices::Series;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::{Grid, Window, WindowClock, times, zone};

/// Assigns windows.
///
/// Shape of the output: as `AssignSpec` has it; a row's windows stand together, in the order of their ends.
struct Assign {
    uid: Uid,
    output: SchemaRef,
    /// Place of the event time, where windows go by it.
    time: Option<usize>,
    series: Series,
    /// Where the slices lie.
    grid: Grid,
    clock: WindowClock,
    lateness_ms: i64,
    pending: Pending,
    rows_max: usize,
}

/// The operator that assigns these windows.
///
/// Errors: `Invariant` where they do not overlap, or there is no event time.
pub(in crate::operators) fn build(spec: &OperatorSpec, assign: &AssignSpec) -> Result<Box<dyn Operator>, EngineError> {
    let broken = |message: &str| EngineError::Invariant { uid: spec.uid.clone(), message: message.into() };
    let (length_ms, offset_ms) = assign.window.slices().ok_or_else(|| broken("windows without slices are not assigned"))?;
    let zone = zone(assign.time.time_zone.as_deref()).map_err(|reason| broken(&reason))?;
    let grid = Grid::new(length_ms, offset_ms, zone);
    let time = match assign.time.processing {
        true => None,
        false => {
            let time = spec.input.event_time.as_ref().and_then(|time| spec.input.batch_index(time));
            Some(time.ok_or_else(|| broken("windows over a stream without event time"))?)
        }
    };
    Ok(Box::new(Assign {
        uid: spec.uid.clone(),
        output: spec.output.to_arrow(),
        time,
        series: Series::of(&assign.window, grid).ok_or_else(|| broken("windows that do not overlap are not assigned"))?,
        grid,
        clock: WindowClock::new(&assign.time),
        lateness_ms: assign.lateness_ms,
        pending: Pending::default(),
        rows_max: usize::MAX,
    }))
}

impl Assign {
    fn invariant(&self, message: String) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message }
    }

    /// The windows of a slice that rows still go to.
    fn windows(&self, slice: Window, windows: &mut Vec<Window>) {
        windows.clear();
        windows.extend(self.series.after(slice, self.clock.watermark().saturating_sub(self.lateness_ms)));
        if windows.is_empty() {
            windows.push(self.series.last(slice));
        }
    }
}

impl Operator for Assign {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.uid, context, &mut restored)?;
        self.rows_max = context.batch_rows_max;
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let times = self.time.map(|time| times(batch.column(time))).transpose().map_err(|reason| self.invariant(reason))?;
        let now = self.clock.now().unwrap_or_default();
        let (mut rows, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let (mut slice, mut windows) = (None, Vec::new());
        for row in 0..batch.num_rows() {
            let time = times.map_or(now, |times| times[row]);
            if !slice.is_some_and(|slice: Window| slice.has(time)) {
                let found = self.grid.window(time);
                self.windows(found, &mut windows);
                slice = Some(found);
            }
            for window in &windows {
                rows.push(row as u32);
                starts.push(window.start);
                ends.push(window.end);
            }
        }
        let rows = UInt32Array::from(rows);
        let columns = batch.columns().iter().map(|column| take(column, &rows, None)).collect::<Result<Vec<_>, _>>();
        let mut columns = columns.map_err(|error| self.invariant(error.to_string()))?;
        columns.extend([starts, ends].map(|times| Arc::new(TimestampMillisecondArray::from(times)) as ArrayRef));
        let output = RecordBatch::try_new(Arc::clone(&self.output), columns);
        self.pending.push(output.map_err(|error| self.invariant(error.to_string()))?);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.pop(self.rows_max))
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.clock.advance(watermark);
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        Ok(None)
    }
}
