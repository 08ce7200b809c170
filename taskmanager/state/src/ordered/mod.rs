//! An ordered map that is frozen without a pause: *save before first change*, with a cursor in the order of keys.
//!
//! The task owns the map and goes on changing it. Each entry carries the number of barriers that it has seen; the running
//! snapshot holds those that were born before its barrier. An entry behind the cursor is saved; one before it that is replaced or
//! removed is moved out and saved first. Nothing is copied, a barrier takes the same time for any size, and no step is longer
//! than its bound. Must never know what keys and values are, nor where a snapshot goes.
//!
//! One snapshot runs at a time, as in `freeze`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// The map.
#[derive(Debug)]
pub(crate) struct OrderedTable<K, V> {
    entries: BTreeMap<K, Born<V>>,
    /// Barriers so far.
    barriers: u32,
    running: Option<Running<K>>,
    /// Entries of the running snapshot that were taken out before they were saved.
    moved: Vec<(K, V)>,
}

/// A value and the number of barriers before it.
#[derive(Debug)]
struct Born<V> {
    barriers: u32,
    value: V,
}

/// A running snapshot.
#[derive(Debug)]
struct Running<K> {
    /// Entries up to this one are saved.
    cursor: Option<K>,
    /// The cursor has passed the last entry.
    is_passed: bool,
}

impl<K: Ord + Clone, V> OrderedTable<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), barriers: 0, running: None, moved: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|born| &born.value)
    }

    pub(crate) fn first(&self) -> Option<&K> {
        self.entries.first_key_value().map(|(key, _)| key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, born)| (key, &born.value))
    }

    /// Puts a value in the place of what the key has. What it had is given back, unless the running snapshot still needs it.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let born = Born { barriers: self.barriers, value };
        match self.entries.entry(key) {
            Entry::Vacant(place) => {
                place.insert(born);
                None
            }
            Entry::Occupied(mut place) => {
                let old = place.insert(born);
                if !is_unsaved(&self.running, self.barriers, place.key(), old.barriers) {
                    return Some(old.value);
                }
                self.moved.push((place.key().clone(), old.value));
                None
            }
        }
    }

    /// Adds an entry where the key has none; answers whether it did.
    pub(crate) fn insert_new(&mut self, key: K, value: V) -> bool {
        match self.entries.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Born { barriers: self.barriers, value });
                true
            }
        }
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: &K) -> Removed<V> {
        match self.entries.remove_entry(key) {
            None => Removed::Absent,
            Some((key, born)) => self.removed(key, born),
        }
    }

    /// Takes the first entry out if `is_due` says so of its key.
    pub(crate) fn remove_first(&mut self, is_due: impl FnOnce(&K) -> bool) -> Option<(K, Removed<V>)> {
        let first = self.entries.first_entry().filter(|first| is_due(first.key()))?;
        let (key, born) = first.remove_entry();
        Some((key.clone(), self.removed(key, born)))
    }

    fn removed(&mut self, key: K, born: Born<V>) -> Removed<V> {
        if !is_unsaved(&self.running, self.barriers, &key, born.barriers) {
            return Removed::Gone(born.value);
        }
        self.moved.push((key, born.value));
        Removed::Kept
    }

    /// Adds entries that are not in the map, in any order; faster than one by one where they are many.
    pub(crate) fn extend_new(&mut self, entries: Vec<(K, V)>) {
        let barriers = self.barriers;
        let mut more = entries.into_iter().map(|(key, value)| (key, Born { barriers, value })).collect();
        self.entries.append(&mut more);
    }

    /// Starts a snapshot of the entries that the map has now.
    ///
    /// Contract: none is running.
    pub(crate) fn freeze(&mut self) {
        assert!(self.running.is_none(), "one snapshot runs at a time");
        self.barriers += 1;
        self.running = Some(Running { cursor: None, is_passed: false });
    }

    /// Whether a snapshot has entries that are not saved.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Entries that wait to be saved because they were taken out.
    pub(crate) fn moved(&self) -> usize {
        self.moved.len()
    }

    /// Hands the entries that were taken out to `save`, which they then leave.
    pub(crate) fn save_moved(&mut self, save: impl FnMut((K, V))) {
        self.moved.drain(..).for_each(save);
        self.end_if_passed();
    }

    /// Hands the next entries to `save`, looking at no more than `looks`. Ends the snapshot behind the last one.
    pub(crate) fn save_next(&mut self, looks: usize, mut save: impl FnMut(&K, &V)) {
        let Some(running) = &mut self.running else { return };
        let start = running.cursor.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.entries.range((start.as_ref(), Bound::Unbounded)).peekable();
        let mut last = None;
        for (key, born) in rest.by_ref().take(looks) {
            if born.barriers < self.barriers {
                save(key, &born.value);
            }
            last = Some(key);
        }
        running.is_passed = rest.peek().is_none();
        running.cursor = match (last, start) {
            (Some(last), _) => Some(last.clone()),
            (None, Bound::Excluded(cursor)) => Some(cursor),
            (None, _) => None,
        };
        self.end_if_passed();
    }

    fn end_if_passed(&mut self) {
        if self.moved.is_empty() && self.running.as_ref().is_some_and(|running| running.is_passed) {
            self.running = None;
        }
    }

    /// Gives the running snapshot up. What was taken out goes to `drop`.
    pub(crate) fn abandon(&mut self, drop: impl FnMut((K, V))) {
        self.running = None;
        self.moved.drain(..).for_each(drop);
    }

    /// About the bytes held, but for what is behind pointers of keys and values: a node of the tree is two thirds full.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.len() * (size_of::<K>() + size_of::<Born<V>>()) * 3 / 2 + self.moved.capacity() * size_of::<(K, V)>()
    }
}

/// What became of an entry that was to be removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removed<V> {
    /// There was none.
    Absent,
    /// It is out of the map.
    Gone(V),
    /// It is out of the map, but the running snapshot has still to save it.
    Kept,
}

/// Whether an entry is of the running snapshot and not saved.
fn is_unsaved<K: Ord>(running: &Option<Running<K>>, barriers: u32, key: &K, born: u32) -> bool {
    let is_ahead = |running: &Running<K>| !running.is_passed && running.cursor.as_ref().is_none_or(|cursor| key > cursor);
    born < barriers && running.as_ref().is_some_and(is_ahead)
}

#[cfg(test)]
mod tests;
