//! The TaskManager: slots, task threads, data exchange, snapshot uploads. The shell around `levada-engine`.
//!
//! A binary of one's own makes a [`Builder`], adds its sources and sinks, and calls [`run_main`]. Must never know: what rows
//! mean, and what becomes of a job (the JobManager decides that). Read first: `manager`, `runner`, `inbox`, `net`.

mod builder;
mod clock;
mod error;
mod observer;
mod program;
mod runtimes;

mod channels;
mod databases;
mod deploy;
mod manager;
mod registration;
mod restore;
mod rpc;

mod inbox;
mod net;
mod runner;
mod task;
mod upload;

mod board;
mod http;
mod metrics;

#[cfg(test)]
mod testing;

pub use builder::{Builder, TaskManager};
pub use error::TaskManagerError;
pub use observer::Observer;
pub use program::run_main;
