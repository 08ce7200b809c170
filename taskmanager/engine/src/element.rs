//! What flows on a channel.

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;
use serde::{Deserialize, Serialize};

/// One thing on a channel, in order with the others of that channel.
#[derive(Debug, Clone)]
pub enum Element {
    /// Rows; never empty.
    Batch(RecordBatch),
    /// No row at this time or earlier comes any more.
    Watermark(Watermark),
    /// The channel has nothing to say about time until its next batch or watermark.
    Idle,
    /// Everything before belongs to the checkpoint, everything after does not.
    Barrier(Barrier),
    /// Nothing comes any more.
    EndOfData,
}

/// A checkpoint's cut through the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}
