//! A window and what is in it.

use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray, TimestampMillisecondArray};
use arrow::datatypes::DataType;
use levada_state::freeze::FrozenRows;

use super::super::group_table::GroupTable;
use super::super::shape::namespace_type;

/// The times `[start, end)`, in milliseconds; windows order by end, then start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::operators) struct Window {
    pub(in crate::operators) end: i64,
    pub(in crate::operators) start: i64,
}

impl Window {
    /// The one window of an aggregation without windows; it never fires by time.
    pub(in super::super) const WHOLE: Self = Self { end: i64::MAX, start: i64::MIN };

    /// Whether this watermark has reached the window's last millisecond.
    pub(in crate::operators) fn has_fired(self, watermark: i64) -> bool {
        self != Self::WHOLE && watermark >= self.end.saturating_sub(1)
    }

    /// `window_start` and `window_end` of so many rows.
    pub(in crate::operators) fn columns(self, rows: usize) -> (ArrayRef, ArrayRef) {
        (time_column(self.start, rows), time_column(self.end, rows))
    }

    /// `window_time` of so many rows.
    pub(in crate::operators) fn time_column(self, rows: usize) -> ArrayRef {
        time_column(self.end.saturating_sub(1), rows)
    }

    /// The window in a snapshot's pieces.
    pub(super) fn namespace_column(self, rows: usize) -> ArrayRef {
        let DataType::Struct(fields) = namespace_type() else { unreachable!("a namespace is a struct") };
        let (start, end) = self.columns(rows);
        Arc::new(StructArray::new(fields, vec![start, end], None))
    }
}

fn time_column(ms: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from(vec![ms; rows]))
}

/// The groups of one window.
#[derive(Debug)]
pub(in super::super) struct Pane {
    pub(in super::super) window: Window,
    pub(in super::super) groups: GroupTable,
    /// Which of them a running snapshot has still to save.
    pub(super) frozen: FrozenRows,
}

impl Pane {
    /// The pane of `window` with these groups, none of which is in a snapshot.
    pub(in super::super) fn new(window: Window, groups: GroupTable) -> Self {
        let mut frozen = FrozenRows::new();
        frozen.resize(groups.len());
        Self { window, groups, frozen }
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.groups.memory_bytes() + self.frozen.memory_bytes()
    }
}
