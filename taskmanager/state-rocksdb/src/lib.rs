//! The RocksDB state backend: the contract of `levada_state::cold`, kept by one database per operator of a task.
//!
//! One [`Rocksdb`] in a TaskManager has what all its databases share: memory, file descriptors, data directories. It makes
//! [`TaskDatabases`], which restore and open the stores of a task. A store's background thread (`writer`) alone writes its
//! database: changes become sorted files that are ingested, and a snapshot is RocksDB's checkpoint, hard links to its files.
//!
//! Must never know: where snapshots go, what a state means. Invariant: a store keeps the contract of `levada_state::cold`
//! (its suite, run in the tests), and nothing is left on disk when a task's directory is dropped.

mod database;
mod description;
mod descriptors;
mod directory;
mod escape;
mod generation;
mod load;
mod options;
mod restore;
mod rows;
mod scan;
mod settings;
mod shared;
mod snapshot;
mod store;
mod tables;
mod task;
mod writer;

pub use directory::WorkingDirectoryError;
pub use restore::read_database;
pub use settings::RocksdbSettings;
pub use shared::{MemoryUse, Rocksdb};
pub use task::TaskDatabases;

#[cfg(test)]
mod tests;
