//! The JobManager: gRPC and HTTP services, timers, checkpoint storage around the pure core.
//!
//! Read in this order: `server` (what is started), `service` (what may be asked), `dispatcher` (which jobs there are),
//! `driver` (one job), `task_managers` (who computes). Must never know: rows, operators, SQL beyond calling the planner.
//! Invariant: each loop owns its state alone; nothing waits for a driver but its caller.

mod checkpoints;
mod clock;
mod dispatcher;
mod driver;
mod error;
mod http;
mod inline_state;
mod server;
mod service;
mod status;
mod task_managers;

pub use error::JobManagerError;
pub use server::{JobManager, JobManagerHandle};
