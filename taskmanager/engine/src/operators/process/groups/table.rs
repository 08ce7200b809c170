//! The windows of keys that are there: found by key and window, or among the sessions of a key.
//!
//! A group is a window of a key, by number; the number of one that is gone is used again. Must never know what rows it has.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use levada_state::key_index::{ABSENT, KeyIndex};

use crate::function::Namespace;
use crate::operators::window::Window;

/// The number of no group.
pub(super) const NO_GROUP: u32 = ABSENT;

/// A window of a key.
#[derive(Debug, Clone, Copy)]
pub(in crate::operators) struct Group {
    /// Its key, by the id that keyed states know it by; `NO_GROUP` where there is no group of this number.
    pub(in crate::operators) key: u32,
    /// The window that it was when it began: what is kept of it stands under that.
    pub(in crate::operators) name: Window,
    /// The window that it is.
    pub(in crate::operators) window: Window,
    /// When it is looked at next.
    pub(super) due: i64,
    /// The next session of its key.
    next: u32,
    /// Whether its window was not noted yet.
    is_changed: bool,
}

const NOTHING: Group =
    Group { key: NO_GROUP, name: Window::WHOLE, window: Window::WHOLE, due: i64::MAX, next: NO_GROUP, is_changed: false };

/// How groups are found.
#[derive(Debug)]
enum Index {
    /// By key and window.
    Windows(Box<KeyIndex>),
    /// By the key's first one, the one that ends last, each with a link to the one that ends before it.
    Sessions { firsts: Vec<u32>, free: Vec<u32> },
}

/// All groups.
#[derive(Debug)]
pub(in crate::operators) struct Groups {
    slots: Vec<Group>,
    index: Index,
    changed: Vec<u32>,
    live: usize,
}

/// A window as states know it.
pub(in crate::operators) fn namespace(window: Window) -> Namespace {
    Namespace { start: window.start, end: window.end }
}

impl Groups {
    /// None, of sessions or of other windows.
    pub(super) fn new(sessions: bool) -> Self {
        let index = match sessions {
            true => Index::Sessions { firsts: Vec::new(), free: Vec::new() },
            false => Index::Windows(Box::new(KeyIndex::new(&[DataType::Int64, DataType::Int64, DataType::Int64]))),
        };
        Self { slots: Vec::new(), index, changed: Vec::new(), live: 0 }
    }

    /// How many there are.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// All numbers are below this.
    pub(in crate::operators) fn numbers(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is a group of this number.
    pub(super) fn has(&self, group: u32) -> bool {
        self.slots.get(group as usize).is_some_and(|slot| slot.key != NO_GROUP)
    }

    /// A group that is there.
    #[inline]
    pub(in crate::operators) fn get(&self, group: u32) -> &Group {
        &self.slots[group as usize]
    }

    /// Says when a group is looked at next; answers when that was before.
    pub(super) fn set_due(&mut self, group: u32, due: i64) -> i64 {
        std::mem::replace(&mut self.slots[group as usize].due, due)
    }

    /// Appends the groups of these keys in these windows, and to `made` those that are new.
    pub(super) fn enter(&mut self, keys: &[u32], windows: &[Window], groups: &mut Vec<u32>, made: &mut Vec<u32>) {
        let Index::Windows(index) = &mut self.index else { unreachable!("sessions are entered one by one") };
        let start = groups.len();
        index.intern(&columns(keys, windows.iter().copied()), keys.len(), groups);
        index.drain_reused(&mut Vec::new());
        self.slots.resize(index.len().max(self.slots.len()), NOTHING);
        for ((group, key), window) in groups[start..].iter().zip(keys).zip(windows) {
            if self.slots[*group as usize].key == NO_GROUP {
                self.fill(*group, *key, *window, *window, NO_GROUP);
                made.push(*group);
            }
        }
    }

    /// Appends the group of each of these windows, by what they were when they began; `NO_GROUP` where it is not there.
    pub(super) fn find(&mut self, keys: &[u32], names: &[Namespace], groups: &mut Vec<u32>) {
        match &mut self.index {
            Index::Windows(index) => {
                let windows = names.iter().map(|name| Window { start: name.start, end: name.end });
                index.find(&columns(keys, windows), keys.len(), groups);
            }
            Index::Sessions { .. } => {
                let of = |key: u32, name: &Namespace| {
                    // A session reaches over what it was when it began.
                    let mut near = self.touching(key, Window { start: name.start, end: name.end });
                    near.find(|group| namespace(self.get(*group).name) == *name).unwrap_or(NO_GROUP)
                };
                groups.extend(keys.iter().zip(names).map(|(key, name)| of(*key, name)));
            }
        }
    }

    /// The sessions of a key that touch this window, the one that ends last first. Those that ended before it began are not looked at:
    /// long after they are over they may still be there for late rows.
    pub(super) fn touching(&self, key: u32, window: Window) -> impl Iterator<Item = u32> + '_ {
        let of_key = self.sessions(key).map(|group| (group, self.get(group).window));
        let near = of_key.take_while(move |(_, session)| session.end >= window.start);
        near.filter(move |(_, session)| session.start <= window.end).map(|(group, _)| group)
    }

    /// The sessions of a key, the one that ends last first.
    fn sessions(&self, key: u32) -> impl Iterator<Item = u32> + '_ {
        let first = match &self.index {
            Index::Sessions { firsts, .. } => firsts.get(key as usize).copied().filter(|first| *first != NO_GROUP),
            Index::Windows(_) => None,
        };
        std::iter::successors(first, move |group| Some(self.get(*group).next).filter(|next| *next != NO_GROUP))
    }

    /// Opens a session.
    ///
    /// Contract: it touches no other of its key. So the order of their ends stays while they grow.
    pub(super) fn open(&mut self, key: u32, name: Window, window: Window) -> u32 {
        let Index::Sessions { firsts, free } = &mut self.index else { unreachable!("other windows are entered") };
        let group = free.pop().unwrap_or(self.slots.len() as u32);
        firsts.resize(firsts.len().max(key as usize + 1), NO_GROUP);
        self.slots.resize(self.slots.len().max(group as usize + 1), NOTHING);
        let (mut before, mut next) = (NO_GROUP, firsts[key as usize]);
        while next != NO_GROUP && self.slots[next as usize].window.end > window.end {
            (before, next) = (next, self.slots[next as usize].next);
        }
        match before {
            NO_GROUP => firsts[key as usize] = group,
            before => self.slots[before as usize].next = group,
        }
        self.fill(group, key, name, window, next);
        group
    }

    fn fill(&mut self, group: u32, key: u32, name: Window, window: Window, next: u32) {
        self.slots[group as usize] = Group { key, name, window, due: i64::MAX, next, is_changed: true };
        self.changed.push(group);
        self.live += 1;
    }

    /// A group's window is this now.
    #[inline]
    pub(super) fn grow(&mut self, group: u32, window: Window) {
        let slot = &mut self.slots[group as usize];
        if slot.window == window {
            return;
        }
        slot.window = window;
        if !std::mem::replace(&mut slot.is_changed, true) {
            self.changed.push(group);
        }
    }

    /// Forgets a group.
    pub(super) fn remove(&mut self, group: u32) {
        let Group { key, next, .. } = std::mem::replace(&mut self.slots[group as usize], NOTHING);
        self.live -= 1;
        match &mut self.index {
            Index::Windows(index) => index.remove(group),
            Index::Sessions { firsts, free } => {
                free.push(group);
                let first = &mut firsts[key as usize];
                if *first == group {
                    *first = next;
                    return;
                }
                let mut at = *first;
                while self.slots[at as usize].next != group {
                    at = self.slots[at as usize].next;
                }
                self.slots[at as usize].next = next;
            }
        }
    }

    /// Takes the groups whose windows are new, or others, since this was asked last; some may be gone.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|group| std::mem::replace(&mut self.slots[*group as usize].is_changed, false));
        changed
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let index = match &self.index {
            Index::Windows(index) => index.memory_bytes(),
            Index::Sessions { firsts, free } => (firsts.capacity() + free.capacity()) * size_of::<u32>(),
        };
        index + self.slots.capacity() * size_of::<Group>() + self.changed.capacity() * size_of::<u32>()
    }
}

/// Keys and windows as columns.
fn columns(keys: &[u32], windows: impl Iterator<Item = Window> + Clone) -> [ArrayRef; 3] {
    let starts = windows.clone().map(|window| window.start);
    let ends = windows.map(|window| window.end);
    [
        Arc::new(Int64Array::from_iter_values(keys.iter().map(|key| i64::from(*key)))),
        Arc::new(Int64Array::from_iter_values(starts)),
        Arc::new(Int64Array::from_iter_values(ends)),
    ]
}
