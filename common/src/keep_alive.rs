//! When a connection that answers nothing is given up, by HTTP/2's own pings.
//!
//! Invariant: never before the heartbeats over it, or about it, are given up: `heartbeat.timeout` alone decides who is lost.

use std::time::Duration;

/// Silence after which a connection is probed.
const INTERVAL: Duration = Duration::from_secs(10);

/// Least time for the answer: what `heartbeat.timeout` is by default.
const TIMEOUT_MIN: Duration = Duration::from_secs(50);

/// How a connection is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence after which a ping is sent.
    pub interval: Duration,
    /// Time for its answer; then the connection is closed.
    pub timeout: Duration,
}

impl KeepAlive {
    /// That of a cluster where a TaskManager is lost after so long a silence.
    pub fn of(heartbeat_timeout: Duration) -> Self {
        Self { interval: INTERVAL, timeout: heartbeat_timeout.max(TIMEOUT_MIN) }
    }
}

/// For who has not heard yet what the cluster's heartbeats are.
impl Default for KeepAlive {
    fn default() -> Self {
        Self::of(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_not_given_up_before_its_heartbeats_are() {
        for (heartbeat, timeout) in [(0, 50), (20, 50), (50, 50), (51, 51), (180, 180), (86_400, 86_400)] {
            let keep_alive = KeepAlive::of(Duration::from_secs(heartbeat));
            assert_eq!((keep_alive.interval.as_secs(), keep_alive.timeout.as_secs()), (10, timeout));
        }
    }
}
