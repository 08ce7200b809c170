//! Event time: milliseconds since 1970 in UTC, bounded so that no arithmetic on it can overflow.

pub mod calendar;
pub mod zone;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The least time a row may have: the start of year −9999.
pub const EVENT_TIME_MIN_MS: i64 = -377_705_116_800_000;

/// The greatest time a row may have: the last millisecond of year 9999.
pub const EVENT_TIME_MAX_MS: i64 = 253_402_300_799_999;

/// Whether a row may carry this time.
///
/// Units: milliseconds since 1970, UTC.
pub fn is_event_time(ms: i64) -> bool {
    (EVENT_TIME_MIN_MS..=EVENT_TIME_MAX_MS).contains(&ms)
}

/// A promise that no row with this time or an earlier one comes any more on this stream.
///
/// Units: milliseconds of event time. `Watermark::MAX` ends all event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Watermark(pub i64);

impl Watermark {
    /// Before anything was seen.
    pub const MIN: Watermark = Watermark(i64::MIN);
    /// At the end of data: every window may fire.
    pub const MAX: Watermark = Watermark(i64::MAX);
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MIN => f.write_str("none"),
            Self::MAX => f.write_str("end"),
            Self(ms) => write!(f, "{ms}"),
        }
    }
}

/// A moment of a process's own monotonic clock, which pure cores are handed; never compared between processes.
///
/// Units: milliseconds since the process chose to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The moment `ms` milliseconds later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`, or 0 where it lies ahead.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
