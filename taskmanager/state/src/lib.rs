//! Working state of a task: keyed tables frozen without a pause, the open snapshot format, restore.
//!
//! Must never know: gRPC, tokio, storage, operators. A task is the only owner of its tables; nothing here is shared but the
//! pieces of a snapshot on their way to the background.

pub mod bits;
mod chunked;
pub mod cold;
pub mod descriptor;
pub mod fixed;
pub mod format;
pub mod freeze;
pub mod key_index;
pub mod keyed;
pub mod operator_state;
pub(crate) mod ordered;
pub mod row_codec;
pub mod rows;
pub mod snapshot;
pub mod timers;
pub mod types;
