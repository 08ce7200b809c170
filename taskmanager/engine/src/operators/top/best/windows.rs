//! The keys of windows, where each key is one of a window: which ones memory has of each, and of which windows only a store has some.

use std::collections::{BTreeMap, BTreeSet};

use crate::operators::rows::{NO_ROW, RowLists};
use crate::operators::window::Window;

/// The keys that have rows, by window.
#[derive(Default)]
pub(in super::super) struct KeysByWindow {
    /// The number of each window that has keys in memory.
    numbers: BTreeMap<Window, u32>,
    /// By number.
    windows: Vec<Window>,
    free: Vec<u32>,
    /// By number the window's keys.
    keys: RowLists,
    /// The windows of which keys left memory.
    beyond: BTreeSet<Window>,
}

impl KeysByWindow {
    /// A key of this window has rows now.
    pub(in super::super) fn add(&mut self, window: Window, key: u32) {
        let Self { numbers, windows, free, keys, .. } = self;
        let number = *numbers.entry(window).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                windows.push(window);
                windows.len() as u32 - 1
            })
        });
        windows[number as usize] = window;
        keys.resize(windows.len(), key as usize + 1);
        keys.insert(number, NO_ROW, key);
    }

    /// A key is out of memory, and only the store has it.
    pub(super) fn leave(&mut self, key: u32) {
        let window = self.remove(key);
        self.beyond.insert(window);
    }

    /// Takes a key of this window out, if memory has one.
    pub(in super::super) fn pop(&mut self, window: Window) -> Option<u32> {
        let key = self.keys.first(*self.numbers.get(&window)?);
        self.remove(key);
        Some(key)
    }

    /// Takes a key out; answers of which window it was.
    fn remove(&mut self, key: u32) -> Window {
        let number = self.keys.key(key);
        self.keys.remove(key);
        let window = self.windows[number as usize];
        if self.keys.len(number) == 0 {
            self.numbers.remove(&window);
            self.free.push(number);
        }
        window
    }

    /// The window that ends first, in memory or beyond it.
    pub(in super::super) fn first(&self) -> Option<Window> {
        self.numbers.keys().next().into_iter().chain(self.beyond.first()).min().copied()
    }

    /// A store has rows of this window that memory does not.
    pub(in super::super) fn has_beyond(&mut self, window: Window) {
        self.beyond.insert(window);
    }

    /// Whether a store may have rows of this window that memory does not.
    pub(in super::super) fn is_beyond(&self, window: Window) -> bool {
        self.beyond.contains(&window)
    }

    /// Whether there is such a window.
    pub(in super::super) fn is_any_beyond(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Forgets that there is something; answers whether there was.
    pub(in super::super) fn forget_beyond(&mut self, window: Window) -> bool {
        self.beyond.remove(&window)
    }

    /// Bytes held.
    pub(in super::super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.windows.capacity() * size_of::<Window>()
    }
}
