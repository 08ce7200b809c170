//! Sources and sinks that only tests and benchmarks need, added through `levada_taskmanager::Builder` like a user's own.

pub mod rmw;
pub mod sluggish;
pub mod tally;
pub mod throttle;
