//! Sources, sinks and formats.
//!
//! A connector is one folder: `declaration.rs` says what planning must know of it, `source.rs` and `sink.rs` make it;
//! and one line in `registry::registry`. Must never know: the network between TaskManagers, checkpoints' storage, SQL.

pub mod batch;
pub mod error;
pub mod options;
pub mod registry;
pub mod stripes;
pub mod throttle;

pub mod formats;
pub mod text;

pub mod blackhole;
pub mod file;
pub mod generate;
pub mod nexmark;
pub mod print;
pub mod socket;

#[cfg(test)]
mod testing;

pub use registry::{Registry, registry};
