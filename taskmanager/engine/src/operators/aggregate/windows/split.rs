//! Which window each row of a batch is in, and the batch cut accordingly.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::time::is_event_time;

use super::super::panes::Window;
use crate::operators::event_time::event_times;

/// Where windows come from.
#[derive(Debug, Clone)]
pub(in crate::operators) enum WindowSource {
    /// From a time, in windows of equal size.
    Tumbling {
        /// Place of the time's column.
        time: usize,
        /// At least 1.
        size_ms: i64,
        /// Shift, `0 ≤ offset < size`.
        offset_ms: i64,
    },
    /// From two columns.
    Columns {
        /// Place of `window_start`.
        start: usize,
        /// Place of `window_end`.
        end: usize,
    },
}

/// The rows of a batch that are in one window; row order is kept.
#[derive(Debug)]
pub(in crate::operators) enum Split {
    /// All of them.
    All,
    /// A run of them.
    Run {
        /// First row.
        start: usize,
        /// Number of rows.
        rows: usize,
    },
    /// These.
    Rows(UInt32Array),
}

impl Split {
    /// Number of rows, of a batch that has `all`.
    pub(in crate::operators) fn rows(&self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::Run { rows, .. } => *rows,
            Self::Rows(rows) => rows.len(),
        }
    }

    /// These rows of the batch's columns.
    pub(in crate::operators) fn columns(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>, ArrowError> {
        match self {
            Self::All => Ok(columns.to_vec()),
            Self::Run { start, rows } => Ok(columns.iter().map(|column| column.slice(*start, *rows)).collect()),
            Self::Rows(rows) => columns.iter().map(|column| take(column, rows, None)).collect(),
        }
    }
}

/// Runs of rows in one window up to which a batch is cut by slices: beyond, windows alternate and rows are gathered.
const RUNS_MAX: usize = 16;

impl WindowSource {
    /// Cuts a batch by window. A window may come several times, each time with later rows.
    ///
    /// Errors: a time that is null or out of range, which the watermark operator lets no row have.
    pub(in crate::operators) fn split(&self, batch: &RecordBatch) -> Result<Vec<(Window, Split)>, String> {
        if batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        match self {
            Self::Tumbling { time, size_ms, offset_ms } => {
                let times = times(batch.column(*time))?;
                let (least, greatest) = bounds(times);
                if let Some(time) = [least, greatest].into_iter().find(|time| !is_event_time(*time)) {
                    return Err(format!("a row has event time {time}, which the watermark operator lets no row have"));
                }
                let first = tumbling(least, *size_ms, *offset_ms);
                if greatest < first.end {
                    return Ok(vec![(first, Split::All)]);
                }
                let mut window = first;
                Ok(split_rows(times.len(), |row| {
                    let time = times[row];
                    if time < window.start || time >= window.end {
                        window = tumbling(time, *size_ms, *offset_ms);
                    }
                    window
                }))
            }
            Self::Columns { start, end } => {
                let (starts, ends) = (times(batch.column(*start))?, times(batch.column(*end))?);
                Ok(split_windows(starts, ends))
            }
        }
    }
}

/// Cuts rows that have these windows, at least one.
pub(in super::super) fn split_windows(starts: &[i64], ends: &[i64]) -> Vec<(Window, Split)> {
    let (start, end) = (bounds(starts), bounds(ends));
    if start.0 == start.1 && end.0 == end.1 {
        return vec![(Window { start: start.0, end: end.0 }, Split::All)];
    }
    split_rows(starts.len(), |row| Window { start: starts[row], end: ends[row] })
}

/// The window of a time.
fn tumbling(time: i64, size_ms: i64, offset_ms: i64) -> Window {
    let start = grid_floor(time, size_ms, offset_ms);
    Window { start, end: start.saturating_add(size_ms) }
}

/// The greatest time up to `time` that is `offset_ms` more than a multiple of `period_ms`. Times before 1970 are floored like any
/// other.
pub(in super::super) fn grid_floor(time: i64, period_ms: i64, offset_ms: i64) -> i64 {
    time.saturating_sub(time.saturating_sub(offset_ms).rem_euclid(period_ms))
}

/// A column of times.
pub(in super::super) fn times(column: &ArrayRef) -> Result<&ScalarBuffer<i64>, String> {
    if column.null_count() > 0 {
        return Err("a row has no event time, which the watermark operator lets no row have".into());
    }
    let times = event_times(column).ok_or_else(|| format!("event time is TIMESTAMP or INT64, not {}", column.data_type()))?;
    Ok(times)
}

/// The least and the greatest of at least one value.
fn bounds(values: &[i64]) -> (i64, i64) {
    values.iter().fold((i64::MAX, i64::MIN), |(least, greatest), value| (least.min(*value), greatest.max(*value)))
}

fn split_rows(rows: usize, mut window_of: impl FnMut(usize) -> Window) -> Vec<(Window, Split)> {
    let windows: Vec<Window> = (0..rows).map(&mut window_of).collect();
    let runs = windows.chunk_by(|one, other| one == other);
    if runs.clone().nth(RUNS_MAX).is_none() {
        let mut start = 0;
        let runs = runs.map(|run| {
            start += run.len();
            (run[0], Split::Run { start: start - run.len(), rows: run.len() })
        });
        return runs.collect();
    }
    gather_rows(&windows)
}

/// The rows of each window, by a counting sort.
fn gather_rows(windows: &[Window]) -> Vec<(Window, Split)> {
    let mut numbers: HashMap<Window, usize> = HashMap::new();
    let mut found: Vec<(Window, usize)> = Vec::new();
    let mut last = (windows[0], 0);
    let numbered: Vec<usize> = windows
        .iter()
        .map(|window| {
            if found.is_empty() || *window != last.0 {
                let number = *numbers.entry(*window).or_insert_with(|| {
                    found.push((*window, 0));
                    found.len() - 1
                });
                last = (*window, number);
            }
            found[last.1].1 += 1;
            last.1
        })
        .collect();
    let mut next = 0;
    let mut places: Vec<usize> = found
        .iter()
        .map(|(_, rows)| {
            next += rows;
            next - rows
        })
        .collect();
    let mut sorted = vec![0u32; windows.len()];
    for (row, number) in numbered.into_iter().enumerate() {
        sorted[places[number]] = row as u32;
        places[number] += 1;
    }
    let sorted = UInt32Array::from(sorted);
    let ends = places;
    found.into_iter().zip(ends).map(|((window, rows), end)| (window, Split::Rows(sorted.slice(end - rows, rows)))).collect()
}

#[cfg(test)]
mod tests;
