//! What a table with windows knows of the store behind it, without asking.
//!
//! Must never know what a window has. Invariant: of a window that `StoredWindows` denies the store has nothing.

use std::collections::{BTreeSet, HashMap};

use super::at::Namespace;

/// Windows that are known one by one; of more than that the older half is taken together.
const WINDOWS_MAX: usize = 1024;

/// Windows of keys that were brought in: whole, or maps that are too large for that.
#[derive(Debug, Default)]
pub(super) struct KnownWindows {
    of_keys: HashMap<u32, Vec<(Namespace, bool)>>,
    windows: usize,
}

impl KnownWindows {
    /// Whether this window of the key was brought in, whole or not.
    pub(super) fn is_known(&self, key: u32, window: Namespace) -> bool {
        self.find(key, window).is_some()
    }

    /// Whether this window of the key was brought in whole.
    pub(super) fn is_whole(&self, key: u32, window: Namespace) -> bool {
        self.find(key, window) == Some(true)
    }

    fn find(&self, key: u32, window: Namespace) -> Option<bool> {
        let windows = self.of_keys.get(&key)?;
        windows.iter().find(|(known, _)| *known == window).map(|(_, is_whole)| *is_whole)
    }

    /// This window of the key was brought in.
    pub(super) fn brought_in(&mut self, key: u32, window: Namespace, is_whole: bool) {
        let windows = self.of_keys.entry(key).or_default();
        match windows.iter_mut().find(|(known, _)| *known == window) {
            Some((_, known)) => *known = is_whole,
            None => {
                windows.push((window, is_whole));
                self.windows += 1;
            }
        }
    }

    /// The key leaves memory.
    pub(super) fn forget(&mut self, key: u32) {
        self.windows -= self.of_keys.remove(&key).map_or(0, |windows| windows.len());
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.of_keys.len() * 2 * size_of::<(u32, Vec<(Namespace, bool)>)>() + self.windows * size_of::<(Namespace, bool)>()
    }
}

/// Windows of which the store may have something: those that were restored, and those of rows that left memory.
#[derive(Debug)]
pub(super) struct StoredWindows {
    /// It may have any window that ends at this time or before.
    until_ms: i64,
    /// Later ones.
    windows: BTreeSet<Namespace>,
}

impl Default for StoredWindows {
    fn default() -> Self {
        Self { until_ms: i64::MIN, windows: BTreeSet::new() }
    }
}

impl StoredWindows {
    /// Whether the store may have something of this window.
    pub(super) fn may_have(&self, window: Namespace) -> bool {
        window.end <= self.until_ms || self.windows.contains(&window)
    }

    /// The store has something of this window.
    pub(super) fn insert(&mut self, window: Namespace) {
        if window.end <= self.until_ms || !self.windows.insert(window) || self.windows.len() <= WINDOWS_MAX {
            return;
        }
        // Windows pass: those that end late are asked for.
        if let Some(middle) = self.windows.iter().nth(WINDOWS_MAX / 2) {
            self.until_ms = middle.end;
        }
        let until_ms = self.until_ms;
        self.windows.retain(|window| window.end > until_ms);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.windows.len() * 2 * size_of::<Namespace>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: i64, end: i64) -> Namespace {
        Namespace { start, end }
    }

    #[test]
    fn windows_of_a_key_are_known_until_it_leaves() {
        let mut known = KnownWindows::default();
        known.brought_in(1, window(0, 10), false);
        known.brought_in(1, window(10, 20), true);
        assert!(known.is_known(1, window(0, 10)) && !known.is_whole(1, window(0, 10)));
        assert!(known.is_whole(1, window(10, 20)) && !known.is_known(2, window(0, 10)));
        known.brought_in(1, window(0, 10), true);
        assert!(known.is_whole(1, window(0, 10)));
        known.forget(1);
        known.forget(1);
        assert!(!known.is_known(1, window(10, 20)));
        assert_eq!(known.windows, 0);
    }

    #[test]
    fn no_stored_window_is_denied_however_many_there_are() {
        let mut stored = StoredWindows::default();
        let windows: Vec<Namespace> = (0..10_000i64).map(|n| window(n * 7 % 10_000, n * 7 % 10_000 + 5)).collect();
        for (at, next) in windows.iter().enumerate() {
            assert!(!stored.may_have(window(next.start, 1_000_000)));
            stored.insert(*next);
            assert!(windows[..=at].iter().rev().take(2_000).all(|window| stored.may_have(*window)));
            assert!(stored.windows.len() <= WINDOWS_MAX + 1);
        }
    }
}
