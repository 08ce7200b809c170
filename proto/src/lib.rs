//! The wire: gRPC services and their conversion to and from levada-common.
//!
//! Generated with protox, so no protoc is needed. Must never know: what messages mean.

pub mod convert;
pub mod frame;
pub mod metadata;
pub mod snapshot;

/// The generated messages and services of package `levada.v1`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("levada.v1");
}

/// The compiled descriptors, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/levada.bin"));

/// Version of the protocol between JobManager and TaskManagers; another one is refused at registration.
pub const PROTOCOL: u32 = 2;

/// Largest message from the JobManager to a TaskManager, whatever the frame size: a deployment, with its plan and splits.
pub const COMMAND_BYTES_MAX: u64 = 256 << 20;

/// Bytes that a message has on the wire, before anything of it is written.
pub fn encoded_len(message: &impl prost::Message) -> u64 {
    message.encoded_len() as u64
}

#[cfg(test)]
mod fuzz;
