//! The open panes in the order of their windows, for windows that are made of them.
//!
//! Of panes on the heap only: what a store has beyond them is not among these.

use std::ops::Bound;

use super::{OpenPanes, Pane, Window};

impl OpenPanes {
    /// The windows of the open panes, in order.
    pub(in super::super) fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.panes.keys().copied()
    }

    /// The window that ends first.
    pub(in super::super) fn first(&self) -> Option<Window> {
        self.windows().next()
    }

    /// The panes whose windows end after `after` and not after `until`, in order.
    pub(in super::super) fn ending(&self, after: i64, until: i64) -> impl DoubleEndedIterator<Item = &Pane> {
        let beyond = |end: i64| Window { end, start: i64::MAX };
        let range = (after < until).then(|| self.panes.range((Bound::Excluded(beyond(after)), Bound::Included(beyond(until)))));
        range.into_iter().flatten().map(|(_, pane)| pane)
    }

    /// Number of groups in all open panes.
    pub(in super::super) fn groups(&self) -> usize {
        self.groups
    }

    /// Bytes held by all open panes.
    pub(in super::super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
