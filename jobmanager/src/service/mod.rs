//! The gRPC services. Handlers decode, send, reply; what they mean is decided elsewhere.

mod client;
mod cluster;
mod watch;

pub(crate) use client::ClientService;
pub(crate) use cluster::ClusterService;
