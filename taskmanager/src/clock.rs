//! The process's monotonic clock, counted from its start: what pure cores are handed as `Instant`.

use std::time::{Duration, Instant as StdInstant};

use levada_common::time::Instant;

/// A clock; copies agree.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: StdInstant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: StdInstant::now() }
    }
}

impl Clock {
    /// The moment `at`.
    pub fn of(&self, at: StdInstant) -> Instant {
        Instant(at.duration_since(self.start).as_millis() as u64)
    }

    /// From `at` until `moment`; at least a millisecond, since moments are cut to milliseconds.
    pub fn until(&self, at: StdInstant, moment: Instant) -> Duration {
        let target = self.start + Duration::from_millis(moment.0);
        target.saturating_duration_since(at).max(Duration::from_millis(1))
    }
}
