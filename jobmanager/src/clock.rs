//! The process's clock, handed to pure cores as plain numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levada_common::time::Instant;

/// Monotonic time since the JobManager started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
}

impl Clock {
    /// Counts from now.
    pub(crate) fn start() -> Self {
        Self { start: tokio::time::Instant::now() }
    }

    /// Now.
    pub(crate) fn now(self) -> Instant {
        Instant(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The moment `at`, for a timer.
    pub(crate) fn timer(self, at: Instant) -> tokio::time::Instant {
        self.start + Duration::from_millis(at.0)
    }

    /// Wall-clock time in milliseconds since 1970, for people only.
    pub(crate) fn wall_ms(self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Waits until `deadline`, for ever where there is none.
pub(crate) async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
