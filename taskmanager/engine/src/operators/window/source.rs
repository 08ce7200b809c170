//! Where the windows of rows come from.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::RecordBatch;
use levada_common::time::is_event_time;

use super::Window;
use super::split::{Split, bounds, split_rows, split_windows};
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

/// The window of a time.
fn tumbling(time: i64, size_ms: i64, offset_ms: i64) -> Window {
    let start = grid_floor(time, size_ms, offset_ms);
    Window { start, end: start.saturating_add(size_ms) }
}

/// The greatest time up to `time` that is `offset_ms` more than a multiple of `period_ms`. Times before 1970 are floored like any
/// other.
pub(in crate::operators) fn grid_floor(time: i64, period_ms: i64, offset_ms: i64) -> i64 {
    time.saturating_sub(time.saturating_sub(offset_ms).rem_euclid(period_ms))
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
