//! Configuration of the services: one typed tree, read once, checked once.
//!
//! The embedded `default.yaml` < a file < `LEVADA__SECTION__KEY` < `--set section.key=value`. Then `resolve` gives each
//! service the values that it needs; nothing reads configuration after that.

mod address;
mod memory;
mod reference;
mod resolve;
mod rocksdb;
mod tree;

pub use address::{BadAddress, HostPort};
pub use memory::machine_memory_bytes;
pub use reference::reference_markdown;
pub use resolve::{JobManagerConfig, LogConfig, LogFormat, TaskManagerConfig};
pub use rocksdb::RocksdbProfile;
pub use tree::{ConfigError, Configuration, Layers};

/// Every key with its default and, behind `#`, its meaning.
const DEFAULTS: &str = include_str!("default.yaml");
