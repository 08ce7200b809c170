//! Rows once for each of their windows, where these overlap and each is to have its rows by itself.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take;
use arrow::record_batch::RecordBatch;
use levada_common::plan::{WindowSpec, WindowTime};
use levada_common::types::StreamSchema;

use super::{Grid, Series, Window, times, zone};

/// Finds the windows of rows.
#[derive(Debug)]
pub(in crate::operators) struct Spread {
    /// Place of the event time, where windows go by it.
    time: Option<usize>,
    series: Series,
    /// Where the slices lie.
    grid: Grid,
}

/// Rows by their windows: those of a row stand together, in the order of their ends.
#[derive(Debug, Default)]
pub(in crate::operators) struct SpreadRows {
    rows: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    /// The rows without any.
    pub(in crate::operators) late: Vec<u32>,
}

impl Spread {
    /// Of rows of this stream in these windows.
    ///
    /// Errors: they do not overlap, or there is no event time, in words.
    pub(in crate::operators) fn new(windows: &WindowSpec, time: &WindowTime, input: &StreamSchema) -> Result<Self, String> {
        let (length_ms, offset_ms) = windows.slices().ok_or("windows without slices have no rows in several")?;
        let grid = Grid::new(length_ms, offset_ms, zone(time.time_zone.as_deref())?);
        let time = match time.processing {
            true => None,
            false => {
                let time = input.event_time.as_ref().and_then(|time| input.batch_index(time));
                Some(time.ok_or("windows over a stream without event time")?)
            }
        };
        let series = Series::of(windows, grid).ok_or("windows that do not overlap have no rows in several")?;
        Ok(Self { time, series, grid })
    }

    /// What the windows are made of.
    pub(in crate::operators) fn series(&self) -> Series {
        self.series
    }

    /// The rows of a batch that comes at `now`, where that is asked, by their windows, which `find` says of each slice.
    ///
    /// Errors: a time that is null, in words.
    pub(in crate::operators) fn rows(
        &self,
        batch: &RecordBatch,
        now: Option<i64>,
        find: impl Fn(Window, &mut Vec<Window>),
    ) -> Result<SpreadRows, String> {
        let times = self.time.map(|time| times(batch.column(time))).transpose()?;
        let now = now.unwrap_or_default();
        let (mut found, mut slice, mut windows) = (SpreadRows::default(), None, Vec::new());
        for row in 0..batch.num_rows() {
            let time = times.map_or(now, |times| times[row]);
            if !slice.is_some_and(|slice: Window| slice.has(time)) {
                let of_time = self.grid.window(time);
                windows.clear();
                find(of_time, &mut windows);
                slice = Some(of_time);
            }
            if windows.is_empty() {
                found.late.push(row as u32);
            }
            for window in &windows {
                found.rows.push(row as u32);
                found.starts.push(window.start);
                found.ends.push(window.end);
            }
        }
        Ok(found)
    }
}

impl SpreadRows {
    /// The columns of the batch, and behind them start and end of each row's window.
    ///
    /// Errors: an Arrow kernel's, in words.
    pub(in crate::operators) fn columns(self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, String> {
        let rows = UInt32Array::from(self.rows);
        let columns = batch.columns().iter().map(|column| take(column, &rows, None)).collect::<Result<Vec<_>, _>>();
        let mut columns = columns.map_err(|error| error.to_string())?;
        columns.extend([self.starts, self.ends].map(|times| Arc::new(TimestampMillisecondArray::from(times)) as ArrayRef));
        Ok(columns)
    }
}
