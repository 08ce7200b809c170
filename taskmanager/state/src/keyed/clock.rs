//! What time it is, as far as a state's time to live asks. Handed in by whoever runs the operator: state has no clock.

use crate::descriptor::TtlTime;

/// The times that decide what has expired. Units: milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Processing time.
    pub processing_ms: i64,
    /// Event time: the watermark.
    pub watermark_ms: i64,
    /// The event time of the current row, the watermark where it has none.
    pub row_ms: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { processing_ms: 0, watermark_ms: i64::MIN, row_ms: i64::MIN }
    }
}

impl Clock {
    /// Now, by the clock that decides.
    #[inline]
    pub(super) fn now(&self, time: TtlTime) -> i64 {
        match time {
            TtlTime::Processing => self.processing_ms,
            TtlTime::Event => self.watermark_ms,
        }
    }

    /// The same, where it was told already.
    pub(super) fn known(&self, time: TtlTime) -> Option<i64> {
        let untold = Self::default().now(time);
        Some(self.now(time)).filter(|now| *now != untold)
    }

    /// The stamp of what is touched now.
    #[inline]
    pub(super) fn stamp(&self, time: TtlTime) -> i64 {
        match time {
            TtlTime::Processing => self.processing_ms,
            TtlTime::Event => self.row_ms.max(self.watermark_ms),
        }
    }
}
