//! Which groups a batch changes.

use levada_state::bits::Bits;

/// Finds the distinct ones among ids.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// A bit per group; all zero between two batches.
    touched: Bits,
    /// The changed groups, in order of first appearance.
    pub(super) ids: Vec<u32>,
}

impl Changed {
    /// Puts the distinct ids among `ids` into `self.ids`.
    pub(super) fn collect(&mut self, ids: &[u32]) {
        let Self { touched, ids: changed } = self;
        changed.clear();
        changed.extend(ids.iter().copied().filter(|id| touched.set(*id)));
        changed.iter().for_each(|id| touched.clear(*id));
    }
}
