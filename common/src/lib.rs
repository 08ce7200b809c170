//! Levada's shared words: what every other package may speak about.
//!
//! Holds ids, times, types, keys, the job graph, the checked plan, checkpoint metadata, configuration, failures and
//! storage paths. Must never know: gRPC, tokio tasks, SQL engines, RocksDB.

pub mod ids;
pub mod time;
pub mod types;
pub mod keys;
pub mod fault;
pub mod graph;
pub mod declaration;
pub mod plan;
pub mod checkpoint;
pub mod config;
pub mod storage;
