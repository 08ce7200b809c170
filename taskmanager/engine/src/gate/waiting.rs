//! Channels whose rows wait until the others have ended: the rows of one input, until the other was read whole.
//!
//! They are not read meanwhile, so that they fill up and hold their senders back. A barrier does not wait as long: while a checkpoint
//! is aligned they are read up to its barrier, and what was read is kept here, in order. Its rows belong to that snapshot. Must never
//! know what rows are. Invariant: what is kept came before every barrier that has not been given.

use arrow::array::Array;
use arrow::record_batch::RecordBatch;

use crate::element::Element;
use crate::gate::input::ChannelRole;

/// Something that was read, and its channel; none where it was restored.
pub(super) type Held = (Option<usize>, Element);

/// What is held back.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Whether each channel waits.
    waits: Vec<bool>,
    /// Channels that are waited for.
    awaited: usize,
    held: Vec<Held>,
    bytes: usize,
}

impl Waiting {
    /// Of channels with these roles, none of which has ended.
    pub(super) fn new(roles: &[ChannelRole]) -> Self {
        let waits: Vec<bool> = roles.iter().map(|role| role.waits).collect();
        let awaited = if waits.contains(&true) { waits.iter().filter(|waits| !**waits).count() } else { 0 };
        Self { waits, awaited, ..Self::default() }
    }

    /// Whether anything has to wait.
    pub(super) fn is_on(&self) -> bool {
        self.awaited > 0
    }

    /// Whether what comes on this channel has to wait.
    pub(super) fn has(&self, channel: usize) -> bool {
        self.is_on() && self.waits[channel]
    }

    /// Keeps what came.
    pub(super) fn hold(&mut self, channel: Option<usize>, element: Element) {
        if let Element::Batch(batch) = &element {
            self.bytes += bytes(batch);
        }
        self.held.push((channel, element));
    }

    /// A channel has ended; what goes on now, where it was the last that was waited for.
    pub(super) fn end(&mut self, channel: usize) -> Vec<Held> {
        if !self.is_on() || self.waits[channel] {
            return Vec::new();
        }
        self.awaited -= 1;
        if self.is_on() {
            return Vec::new();
        }
        self.bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// The rows that are kept.
    pub(super) fn rows(&self) -> impl Iterator<Item = &RecordBatch> {
        self.held.iter().filter_map(|(_, element)| match element {
            Element::Batch(batch) => Some(batch),
            _ => None,
        })
    }

    /// Bytes of these.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes of the rows, as far as that is known; those of a part of larger arrays are not counted more than once.
fn bytes(batch: &RecordBatch) -> usize {
    let of = |column: &dyn Array| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size());
    batch.columns().iter().map(|column| of(column.as_ref())).sum()
}
