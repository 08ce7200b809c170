//! The pure core of the JobManager: job state machine, scheduling, checkpoint coordination, liveness, restart.
//!
//! `Machine::handle(now, wall_ms, event, &mut effects)` is all of it: no clock, no IO, no async, no randomness, no threads. The
//! shell (`levada-jobmanager`) performs the effects and brings their results back as events.

mod clock;
pub mod event;
pub mod status;

pub mod machine;

mod deployment;
mod execution;
pub mod placement;
mod restart;
pub mod restore;

mod coordinator;
mod health;
mod history;
mod pending;
mod retained;
mod savepoints;
mod shared;

pub mod alignment;
pub mod liveness;

#[cfg(test)]
mod testing;

pub use event::{Effect, Event};
pub use machine::{Machine, Options};
pub use restore::RestoreBase;
pub use savepoints::{SavepointMode, SavepointPhase, SavepointRequest, SavepointStatus};
pub use status::{JobSnapshot, JobState};
