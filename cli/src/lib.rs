//! The levada command line and the embedded cluster.
//!
//! `levada run` is the same JobManager and TaskManager as everywhere, started in one process on loopback.

pub mod client;
pub mod cluster;
pub mod command;
mod progress;
mod signals;
pub mod snapshot;
mod table;
