//! The TaskManager: slots, task threads, data exchange, snapshot uploads. The shell around `levada-engine`.
//!
//! A binary of one's own makes a [`Builder`], adds its sources, sinks and functions, and calls [`run_main`]. What functions are
//! written with is in [`mod@function`], [`state`] and [`types`]; [`harness`] runs them in tests. Must never know: what rows
//! mean, and what becomes of a job (the JobManager decides that). Read first: `manager`, `runner`, `inbox`, `net`.

pub mod function;

mod allocator;
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
mod pace;
mod portions;
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
pub use levada_common::declaration::Options;
pub use levada_common::types;
pub use levada_engine::harness;
pub use levada_state as state;
pub use observer::{Observer, Step};
pub use program::run_main;
