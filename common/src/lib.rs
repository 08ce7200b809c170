//! Levada's shared words: what every other package may speak about.
//!
//! Holds ids, times, types, keys, the job graph, the checked plan, checkpoint metadata, configuration, failures and
//! storage paths. Must never know: gRPC, tokio tasks, SQL engines, RocksDB.

pub mod aggregate_state;
pub mod checkpoint;
pub mod config;
pub mod declaration;
pub mod fault;
pub mod function;
pub mod graph;
pub mod human;
pub mod ids;
pub mod keep_alive;
pub mod keys;
pub mod log;
pub mod nearest;
pub mod plan;
pub mod planned_state;
pub mod prometheus;
pub mod restore_check;
pub mod savepoint;
pub mod state_schema;
pub mod storage;
pub mod time;
pub mod types;
