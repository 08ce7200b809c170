//! The RocksDB state backend.
