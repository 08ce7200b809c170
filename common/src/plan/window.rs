//! Over what rows an aggregation groups beside the key.

use serde::{Deserialize, Serialize};

use crate::human::HumanDuration;
use crate::types::{Column, LogicalType};

/// Over what rows are grouped beside the key. Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowSpec {
    /// No window: every batch's change of a group is emitted; the output is a changelog.
    Running,
    /// `[start, start + size)`, start = floor((time − offset) / size) · size + offset.
    Tumbling {
        /// Length, at least 1.
        size_ms: i64,
        /// Shift, 0 ≤ offset < size.
        offset_ms: i64,
    },
    /// `[start, start + size)` for every start that is `offset` more than a multiple of `slide`: a row is in several windows.
    Sliding {
        /// Length, at least the slide.
        size_ms: i64,
        /// From one start to the next, at least 1.
        slide_ms: i64,
        /// Shift, 0 ≤ offset < slide.
        offset_ms: i64,
    },
    /// The windows of a tumbling one of this size, each as it has grown after every step: `[start, start + step)`,
    /// `[start, start + 2 · step)` and so on to `[start, start + size)`.
    Cumulate {
        /// Length of the longest, a multiple of the step.
        size_ms: i64,
        /// By how much one is longer than the one before, at least 1.
        step_ms: i64,
        /// Shift, 0 ≤ offset < size.
        offset_ms: i64,
    },
    /// From a key's row to its last one that comes, by event time, no later than the gap after the one before, and the gap.
    Session {
        /// How long a session stays open without a row.
        gap: SessionGap,
    },
    /// So many rows of a group, in the order of their arrival.
    Count {
        /// Rows of a window, at least 1.
        size: u32,
        /// Rows from the start of one window to the start of the next, 1 to the size.
        slide: u32,
    },
    /// The input's own window, from its columns `window_start` and `window_end`.
    Same,
    /// Everything, fired at the end of data; the output is append.
    Global,
}

/// How long a session stays open without a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionGap {
    /// The same for every row.
    Fixed {
        /// Milliseconds, at least 1.
        gap_ms: i64,
    },
    /// Each row's own.
    Column {
        /// An integer column of the input, milliseconds; null and less than 1 are bad records.
        name: String,
    },
}

/// What time windows go by, and by whose clocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct WindowTime {
    /// Whether it is processing time: when a row comes in, whatever its event time is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processing: bool,
    /// The zone in which windows begin, of the IANA database or an offset; `None` = UTC. With a zone the lengths of tumbling and
    /// cumulating windows are whole days or divide a day, those of sliding ones are whole days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

impl WindowTime {
    /// Name of the column that rows which wait in windows of processing time have behind their own: when each came in.
    pub const ARRIVED: &str = "_arrived";

    /// That column.
    pub fn arrived() -> Column {
        Column::new(Self::ARRIVED, LogicalType::Timestamp, false)
    }

    /// Processing time, by UTC.
    pub fn processing() -> Self {
        Self { processing: true, time_zone: None }
    }

    /// Whether it is event time, and windows begin by UTC.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl WindowSpec {
    /// Whether results have a window's bounds.
    pub fn is_windowed(&self) -> bool {
        match self {
            Self::Tumbling { .. } | Self::Sliding { .. } | Self::Cumulate { .. } | Self::Session { .. } | Self::Same => true,
            Self::Running | Self::Count { .. } | Self::Global => false,
        }
    }

    /// The state of a chunk of rows beside its aggregates, where windows are of rows: its place among the group's chunks and the rows
    /// in it (INT64).
    pub fn count_state_columns() -> [Column; 2] {
        Self::COUNT_STATE.map(|name| Column::new(name, LogicalType::Int64, false))
    }

    /// Whether a state's column of this name is one of `count_state_columns`.
    pub fn is_count_state_column(name: &str) -> bool {
        Self::COUNT_STATE.contains(&name)
    }

    const COUNT_STATE: [&str; 2] = ["count.chunk", "count.rows"];

    /// Whether a row is in several windows.
    pub fn overlaps(&self) -> bool {
        matches!(self, Self::Sliding { .. } | Self::Cumulate { .. })
    }

    /// Whether windows come from the times of rows.
    pub fn is_over_time(&self) -> bool {
        self.is_windowed() && *self != Self::Same
    }

    /// Size and offset of the tumbling windows in which rows are taken in: the windows themselves, or, where they overlap, slices
    /// of which each is wholly in a window or outside.
    pub fn slices(&self) -> Option<(i64, i64)> {
        match self {
            Self::Tumbling { size_ms, offset_ms } => Some((*size_ms, *offset_ms)),
            Self::Sliding { size_ms, slide_ms, offset_ms } => {
                let slice = greatest_common_divisor(*size_ms, *slide_ms);
                Some((slice, offset_ms.rem_euclid(slice)))
            }
            Self::Cumulate { step_ms, offset_ms, .. } => Some((*step_ms, offset_ms.rem_euclid(*step_ms))),
            Self::Running | Self::Session { .. } | Self::Count { .. } | Self::Same | Self::Global => None,
        }
    }

    /// Where windows of this time, or the slices of which they are made, lie, in the words of `StateSchema::grid`; nothing where the
    /// rows say it.
    pub fn grid(&self, time: &WindowTime) -> String {
        let Some((length_ms, offset_ms)) = self.slices() else { return String::new() };
        let [length, offset] = [length_ms, offset_ms].map(|ms| HumanDuration::from_ms(ms.unsigned_abs()));
        let zone = time.time_zone.as_ref().map(|zone| format!(" in {zone}")).unwrap_or_default();
        format!("slices of {length}, shifted by {offset}{zone}")
    }
}

/// The greatest common divisor of two numbers, at least 1.
pub fn greatest_common_divisor(mut one: i64, mut other: i64) -> i64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_the_coarsest_that_no_window_cuts() {
        let sliding = |size_ms, slide_ms, offset_ms| WindowSpec::Sliding { size_ms, slide_ms, offset_ms }.slices();
        assert_eq!(sliding(10_000, 2_000, 0), Some((2_000, 0)));
        assert_eq!(sliding(10_000, 4_000, 3_000), Some((2_000, 1_000)));
        assert_eq!(sliding(7, 3, 2), Some((1, 0)));
        assert_eq!(sliding(5, 5, 4), Some((5, 4)));
        let cumulate = WindowSpec::Cumulate { size_ms: 60_000, step_ms: 10_000, offset_ms: 25_000 };
        assert_eq!(cumulate.slices(), Some((10_000, 5_000)));
        assert_eq!(WindowSpec::Same.slices(), None);
    }
}
