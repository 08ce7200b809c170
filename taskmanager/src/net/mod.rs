//! Channels between tasks: queues inside this process, a gRPC stream each to and from other TaskManagers.
//!
//! Everything here hides behind the engine's `ChannelReader` and `ChannelWriter`. Must never know: what rows mean, and how
//! tasks are run.

pub mod client;
pub mod frame;
pub mod local;
pub mod preface;
pub mod queue;
pub mod registry;
pub mod remote;
pub mod server;

/// The connection's HTTP/2 window: the largest there is, so that a stream that is not read never stops the others.
pub const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Least window of one channel, in bytes.
pub const CHANNEL_WINDOW_BYTES_MIN: u32 = 128 * 1024;

/// Largest window of one channel, in bytes.
pub const CHANNEL_WINDOW_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// Channels of one connection.
pub const STREAMS_MAX: u32 = 1 << 16;

/// The window of a channel for which `bytes` were planned.
pub fn channel_window(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(CHANNEL_WINDOW_BYTES_MIN, CHANNEL_WINDOW_BYTES_MAX)
}

#[cfg(test)]
mod tests;
