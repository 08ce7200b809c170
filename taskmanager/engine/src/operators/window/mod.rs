//! Windows: what one is, on what grid they lie, which of them overlap and what time they go by, where those of rows come from, and a
//! batch cut by them.
//!
//! Must never know what is done with rows in a window.

mod clock;
mod grid;
mod placed;
mod series;
mod source;
mod split;
mod spread;

use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use levada_common::time::zone::Zone;
use levada_state::cold;

pub(super) use clock::WindowClock;
pub(super) use grid::{Grid, grid_floor};
pub(super) use placed::{placed_part, was_placed};
pub(super) use series::Series;
pub(super) use source::{WindowSource, times};
pub(super) use split::{Split, split_windows};
pub(super) use spread::Spread;

/// The struct column of a pane's window in a snapshot.
pub(super) const NAMESPACE_COLUMN: &str = "namespace";

/// The columns of a window, in partials and results.
pub(super) const WINDOW_START: &str = "window_start";

/// As `WINDOW_START`.
pub(super) const WINDOW_END: &str = "window_end";

/// The times `[start, end)`, in milliseconds; windows order by end, then start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Window {
    pub(super) end: i64,
    pub(super) start: i64,
}

impl Window {
    /// The one window of an aggregation without windows; it never fires by time.
    pub(super) const WHOLE: Self = Self { end: i64::MAX, start: i64::MIN };

    /// Whether a time is in it.
    pub(super) fn has(self, time: i64) -> bool {
        (self.start..self.end).contains(&time)
    }

    /// Whether this watermark has reached the window's last millisecond.
    pub(super) fn has_fired(self, watermark: i64) -> bool {
        self != Self::WHOLE && watermark >= self.end.saturating_sub(1)
    }

    /// `window_start` and `window_end` of so many rows.
    pub(super) fn columns(self, rows: usize) -> (ArrayRef, ArrayRef) {
        (time_column(self.start, rows), time_column(self.end, rows))
    }

    /// `window_time` of so many rows.
    pub(super) fn time_column(self, rows: usize) -> ArrayRef {
        time_column(self.end.saturating_sub(1), rows)
    }

    /// `window_start`, `window_end` and `window_time` of so many rows.
    pub(super) fn result_columns(self, rows: usize) -> [ArrayRef; 3] {
        let (start, end) = self.columns(rows);
        [start, end, self.time_column(rows)]
    }

    /// The window in a snapshot's pieces; none for `WHOLE`.
    pub(super) fn namespace_column(self, rows: usize) -> Option<ArrayRef> {
        if self == Self::WHOLE {
            return None;
        }
        let (start, end) = self.columns(rows);
        Some(namespace_column(start, end))
    }

    /// The window as a store knows it.
    pub(super) fn in_store(self) -> Option<cold::Window> {
        (self != Self::WHOLE).then_some(cold::Window { end: self.end, start: self.start })
    }

    /// The window that a store knows as this.
    pub(super) fn of_store(window: Option<cold::Window>) -> Self {
        window.map_or(Self::WHOLE, |window| Self { end: window.end, start: window.start })
    }
}

/// The same time for so many rows.
pub(super) fn time_column(ms: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from(vec![ms; rows]))
}

/// The zone of this name, which the planner has checked; none where none is named.
///
/// Errors: there is none of it, in words.
pub(super) fn zone(name: Option<&str>) -> Result<Option<Zone>, String> {
    name.map(str::parse::<Zone>).transpose().map_err(|error| error.to_string())
}

/// The type of the window in a snapshot.
pub(super) fn namespace_type() -> DataType {
    DataType::Struct(namespace_fields())
}

/// A column of windows in a snapshot.
pub(super) fn namespace_column(starts: ArrayRef, ends: ArrayRef) -> ArrayRef {
    Arc::new(StructArray::new(namespace_fields(), vec![starts, ends], None))
}

fn namespace_fields() -> Fields {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    vec![Field::new("start", time.clone(), false), Field::new("end", time, false)].into()
}
