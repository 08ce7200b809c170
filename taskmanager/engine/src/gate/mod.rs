//! The two sides of a task that face channels: many channels become one stream, one stream becomes many channels.

pub mod align;
pub mod input;
pub mod output;
pub mod partition;
mod waiting;
pub mod watermark;
