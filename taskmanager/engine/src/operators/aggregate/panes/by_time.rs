//! The open panes in the order of their windows, for windows that are made of them.
//!
//! Of panes on the heap only, but for `known`: what a store has beyond them is not among the others.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::{OpenPanes, Pane};
use crate::operators::window::Window;

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
        let range = (after < until).then(|| self.panes.range(between(after, until)));
        range.into_iter().flatten().map(|(_, pane)| pane)
    }

    /// The windows that end after `after` and not after `until`, in memory or in the store; `WHOLE` is not among them.
    pub(in super::super) fn known(&self, after: i64, until: i64) -> BTreeSet<Window> {
        let mut known: BTreeSet<Window> = self.ending(after, until).map(|pane| pane.window).collect();
        if let Some(store) = self.store.as_ref().filter(|_| after < until) {
            known.extend(store.beyond.range(between(after, until)).copied());
        }
        known.remove(&Window::WHOLE);
        known
    }

    /// Number of groups in all open panes.
    pub(in super::super) fn groups(&self) -> usize {
        self.groups
    }
}

/// Windows that end after `after` and not after `until`.
fn between(after: i64, until: i64) -> (Bound<Window>, Bound<Window>) {
    let beyond = |end: i64| Window { end, start: i64::MAX };
    (Bound::Excluded(beyond(after)), Bound::Included(beyond(until)))
}
