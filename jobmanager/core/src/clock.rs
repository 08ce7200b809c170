//! The moment of an event, as the shell says it.

use levada_common::time::Instant;

/// The two readings that come with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// What the core reckons with.
    pub now: Instant,
    /// Milliseconds since 1970, to be shown to people only.
    pub wall_ms: u64,
}
