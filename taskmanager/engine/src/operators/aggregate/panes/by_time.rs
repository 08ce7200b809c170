//! The open panes in the order of their windows, for windows that are made of them.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use super::{OpenPanes, Pane};
use crate::operators::window::Window;

impl OpenPanes {
    /// The windows of the open panes, and those of which only a store has groups; some come twice.
    pub(in super::super) fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        let beyond = self.store.iter().flat_map(|store| &store.beyond);
        self.panes.keys().chain(beyond).copied()
    }

    /// The window that ends first, in memory or beyond it.
    pub(in super::super) fn first(&self) -> Option<Window> {
        let beyond = self.store.as_ref().and_then(|store| store.beyond.first());
        self.panes.keys().next().into_iter().chain(beyond).min().copied()
    }

    /// The panes in memory whose windows end after `after` and not after `until`, in order.
    pub(in super::super) fn ending(&self, after: i64, until: i64) -> impl DoubleEndedIterator<Item = &Pane> {
        bounds(after, until).into_iter().flat_map(|range| self.panes.range(range)).map(|(_, pane)| pane)
    }

    /// The windows that end after `after` and not after `until` of which a store may have groups that memory has not, in order.
    pub(in super::super) fn beyond(&self, after: i64, until: i64) -> impl Iterator<Item = Window> + '_ {
        let stored = self.store.as_ref().zip(bounds(after, until));
        stored.into_iter().flat_map(|(store, range)| store.beyond.range(range)).copied()
    }

    /// The windows that end after `after` and not after `until`, in memory or in the store; `WHOLE` is not among them.
    pub(in super::super) fn known(&self, after: i64, until: i64) -> BTreeSet<Window> {
        let mut known: BTreeSet<Window> = self.ending(after, until).map(|pane| pane.window).collect();
        known.extend(self.beyond(after, until));
        known.remove(&Window::WHOLE);
        known
    }

    /// Number of groups in all panes in memory.
    pub(in super::super) fn groups(&self) -> usize {
        self.groups
    }
}

/// The windows that end after `after` and not after `until`; `None` where there can be none.
fn bounds(after: i64, until: i64) -> Option<impl RangeBounds<Window>> {
    let last = |end: i64| Window { end, start: i64::MAX };
    (after < until).then(|| (Bound::Excluded(last(after)), Bound::Included(last(until))))
}
