//! Where the windows of rows come from.

use std::collections::BTreeMap;
use std::ops::Bound;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::RecordBatch;
use levada_common::time::is_event_time;

use super::split::{Split, bounds, split_runs, split_windows};
use super::{Grid, Window};
use crate::operators::event_time::event_times;

/// Where windows come from.
#[derive(Debug, Clone)]
pub(in crate::operators) enum WindowSource {
    /// From a time, in the windows of a grid.
    Times {
        /// Place of the time's column.
        time: usize,
        /// Where windows begin.
        grid: Grid,
    },
    /// From when rows come in, in the windows of a grid.
    Clock {
        /// Where windows begin.
        grid: Grid,
    },
    /// From two columns.
    Columns {
        /// Place of `window_start`.
        start: usize,
        /// Place of `window_end`.
        end: usize,
    },
}

impl WindowSource {
    /// Whether a row may have this window.
    pub(in crate::operators) fn has(&self, window: Window) -> bool {
        match self {
            Self::Times { grid, .. } | Self::Clock { grid } => grid.window(window.start) == window,
            Self::Columns { .. } => true,
        }
    }

    /// As `split`, of rows that come in at `now`, where the clock is asked at all.
    pub(in crate::operators) fn split_at(&self, batch: &RecordBatch, now: Option<i64>) -> Result<Vec<(Window, Split)>, String> {
        match (self, now) {
            (Self::Clock { grid }, Some(now)) => Ok(vec![(grid.window(now), Split::All)]),
            _ => self.split(batch),
        }
    }

    /// Cuts a batch by window. A window may come several times, each time with later rows.
    ///
    /// Errors: a time that is null or out of range, which the watermark operator lets no row have.
    pub(in crate::operators) fn split(&self, batch: &RecordBatch) -> Result<Vec<(Window, Split)>, String> {
        if batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        match self {
            Self::Times { time, grid } => {
                let times = times(batch.column(*time))?;
                let (least, greatest) = bounds(times);
                if let Some(time) = [least, greatest].into_iter().find(|time| !is_event_time(*time)) {
                    return Err(format!("a row has event time {time}, which the watermark operator lets no row have"));
                }
                let first = grid.window(least);
                if greatest < first.end {
                    return Ok(vec![(first, Split::All)]);
                }
                let mut known = Known::new(grid);
                Ok(split_runs(times.len(), |row| {
                    let window = known.window(times[row]);
                    (window, run_in(window, &times[row..]))
                }))
            }
            Self::Clock { .. } => Err("rows in windows of processing time have no time of their own".into()),
            Self::Columns { start, end } => {
                let (starts, ends) = (times(batch.column(*start))?, times(batch.column(*end))?);
                Ok(split_windows(starts, ends))
            }
        }
    }
}

/// Times of a run that are looked at one by one: where rows of several windows alternate runs are short.
const RUN_ROWS: usize = 16;

/// Times that are looked at together, without a branch for each.
const CHUNK_ROWS: usize = 64;

/// How many of the first times are in this window.
fn run_in(window: Window, times: &[i64]) -> usize {
    let count = |times: &[i64]| times.iter().take_while(|time| window.has(**time)).count();
    let (first, rest) = times.split_at(times.len().min(RUN_ROWS));
    let of_first = count(first);
    if of_first < first.len() {
        return of_first;
    }
    let whole = rest.chunks_exact(CHUNK_ROWS).take_while(|chunk| {
        let (least, greatest) = bounds(chunk);
        window.has(least) && window.has(greatest)
    });
    let of_whole = whole.count() * CHUNK_ROWS;
    of_first + of_whole + count(&rest[of_whole..])
}

/// The windows of a batch's rows, each found once where that takes longer than to remember it: in a zone.
struct Known<'g> {
    grid: &'g Grid,
    starts_by_end: BTreeMap<i64, i64>,
}

impl<'g> Known<'g> {
    fn new(grid: &'g Grid) -> Self {
        Self { grid, starts_by_end: BTreeMap::new() }
    }

    fn window(&mut self, time: i64) -> Window {
        if !self.grid.is_zoned() {
            return self.grid.window(time);
        }
        let next = self.starts_by_end.range((Bound::Excluded(time), Bound::Unbounded)).next();
        if let Some(window) = next.map(|(end, start)| Window { start: *start, end: *end }).filter(|window| window.has(time)) {
            return window;
        }
        let window = self.grid.window(time);
        self.starts_by_end.insert(window.end, window.start);
        window
    }
}

/// A column of times.
pub(in crate::operators) fn times(column: &ArrayRef) -> Result<&ScalarBuffer<i64>, String> {
    if column.null_count() > 0 {
        return Err("a row has no event time, which the watermark operator lets no row have".into());
    }
    let times = event_times(column).ok_or_else(|| format!("event time is TIMESTAMP or INT64, not {}", column.data_type()))?;
    Ok(times)
}

#[cfg(test)]
mod tests;
