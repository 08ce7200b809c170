//! What the integration tests, the simulation and the benchmark programs share: test nodes, clusters of real processes,
//! streams with known results.

pub mod auctions;
pub mod bids;
pub mod counting;
pub mod digest;
pub mod feed;
mod http;
pub mod http_proxy;
pub mod keyed;
pub mod link;
pub mod metrics;
pub mod nodes;
pub mod process;
pub mod proxy;
pub mod python;
pub mod queries;
pub mod report;
pub mod savepoint;
pub mod services;
pub mod several;
pub mod small_disk;
pub mod statistics;
pub mod steps;
pub mod streams;
pub mod text;
pub mod usage;
pub mod windows;
