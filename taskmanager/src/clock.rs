//! The process's monotonic clock, counted from its start: what pure cores are handed as `Instant`.

use std::time::{Duration, Instant as StdInstant, SystemTime};

use levada_common::time::Instant;

/// A clock; copies agree.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: StdInstant,
    start_ms: i64,
}

impl Default for Clock {
    fn default() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let start_ms = since_1970.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Self { start: StdInstant::now(), start_ms }
    }
}

impl Clock {
    /// The moment `at`.
    pub fn of(&self, at: StdInstant) -> Instant {
        Instant(at.duration_since(self.start).as_millis() as u64)
    }

    /// Processing time at `Instant(0)`, in milliseconds since 1970: what the wall clock said when this one started. From there
    /// on the wall clock is not looked at again, so that processing time never goes back.
    pub fn start_ms(&self) -> i64 {
        self.start_ms
    }

    /// From `at` until `moment`; at least a millisecond, since moments are cut to milliseconds.
    pub fn until(&self, at: StdInstant, moment: Instant) -> Duration {
        let target = self.start + Duration::from_millis(moment.0);
        target.saturating_duration_since(at).max(Duration::from_millis(1))
    }
}
