//! What flows on a channel, and what of it passes through a chain beside rows.

use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::CheckpointKind;
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;

/// One thing on a channel, in order with the others of that channel.
#[derive(Debug, Clone)]
pub enum Element {
    /// Rows; never empty.
    Batch(RecordBatch),
    /// No row at this time or earlier comes any more. Ends idleness, also where it repeats an earlier one.
    Watermark(Watermark),
    /// The channel has nothing to say about time until its next batch or watermark.
    Idle,
    /// Everything before belongs to the checkpoint, everything after does not.
    Barrier(Barrier),
    /// Nothing comes any more.
    EndOfData,
}

/// A checkpoint's cut through the streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What it is taken for.
    pub kind: CheckpointKind,
}

impl Barrier {
    /// The cut of an ordinary checkpoint.
    pub fn checkpoint(checkpoint: CheckpointId) -> Self {
        Self { checkpoint, kind: CheckpointKind::Checkpoint }
    }
}

/// What a source says of one of its splits, to whoever makes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitVoice {
    /// It has begun: time waits for it.
    Begin,
    /// The rows that come next are its own.
    Rows,
    /// It has nothing to say about time until its next rows.
    Idle,
    /// It has ended.
    End,
}

/// What passes through a task beside rows: the elements of all its channels merged into one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Event time has reached this; always more than before, never `Watermark::MAX`, which `End` implies.
    Watermark(Watermark),
    /// Nothing is said about time for a while.
    Idle,
    /// Something is said about time again.
    Active,
    /// The cut of a checkpoint. What that is taken for concerns no operator: it goes from the task's head to its tail.
    Barrier(CheckpointId),
    /// Nothing comes any more, and event time is over.
    End,
}
