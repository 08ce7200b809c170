//! What the node's counters have of a state: they add up, since a node may have several.

use std::sync::atomic::Ordering;

use crate::metrics::NodeMetrics;

/// Entries and bytes that the counters have.
#[derive(Debug, Default)]
pub(super) struct Shown(usize, usize);

impl Shown {
    /// So many entries and bytes are held now.
    pub(super) fn show(&mut self, metrics: &NodeMetrics, (entries, bytes): (usize, usize)) {
        let Self(entries_before, bytes_before) = std::mem::replace(self, Self(entries, bytes));
        metrics.state_keys.fetch_add((entries as u64).wrapping_sub(entries_before as u64), Ordering::Relaxed);
        metrics.state_bytes.fetch_add((bytes as u64).wrapping_sub(bytes_before as u64), Ordering::Relaxed);
    }
}
