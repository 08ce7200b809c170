//! A table in front of a cold store: which of its rows the store does not have, and how what it has comes in.
//!
//! The table is then a write-back overlay. An empty row says that there is no entry: because it was deleted, or because the store
//! was asked and had none. What the table has wins over what the store has. Must never know when rows come and go.

use std::collections::HashMap;

use crate::cold::{ColdStateId, Loaded};

use super::at::At;
use super::cell::Cell;
use super::error::StateResult;
use super::here::Here;
use super::known_windows::{KnownWindows, StoredWindows};
use super::list_ends::ListUse;
use super::piece::{AddressBuilder, Owner};
use super::restore::RestoredRows;
use super::row_index::RowIndex;
use super::stored_list::StoredList;
use super::table::Table;
use crate::bits::Bits;

/// Entries of one key's map that are brought in before its batch. Of a larger map the others come in when they are asked for.
/// Tests have small maps that are large.
pub(super) const MAP_ENTRIES_AT_ONCE: usize = if cfg!(test) { 5 } else { 64 };

/// What a table knows of the store behind it.
#[derive(Debug)]
pub struct ColdRows {
    /// The state in the store.
    pub(super) state: ColdStateId,
    /// Rows that the store has otherwise.
    pub(super) dirty: Bits,
    /// Keys of which the table has everything that the store has, or says that it is gone. Not of tables with windows.
    known: Bits,
    /// Windows of keys that were brought in.
    pub(super) known_windows: KnownWindows,
    /// Of a table with windows, those of which the store may have something.
    pub(super) stored: StoredWindows,
    /// Keys with maps too large to be brought in at once.
    large: Bits,
    /// What the store has of the list in each row that it has something of.
    lists: HashMap<u32, StoredList>,
    /// Rows of lists of which the store has elements that the table does not have: it has those that were added behind them.
    pub(super) lists_behind: Bits,
    /// How the lists are used.
    pub(super) list_use: ListUse,
    /// What the table does not have the store does not have either: nothing has left the table yet, nor was anything restored.
    pub(super) is_whole: bool,
}

impl ColdRows {
    /// Of a table without rows; `is_whole`: the store has none either.
    pub(super) fn new(state: ColdStateId, is_whole: bool) -> Self {
        let (dirty, known, large) = (Bits::default(), Bits::default(), Bits::default());
        let (known_windows, stored) = (KnownWindows::default(), StoredWindows::default());
        let (lists, lists_behind, list_use) = (HashMap::new(), Bits::default(), ListUse::default());
        Self { state, dirty, known, known_windows, stored, large, lists, lists_behind, list_use, is_whole }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let lists = self.lists.capacity() * (size_of::<(u32, StoredList)>() + 1) + self.lists_behind.memory_bytes();
        let windows = self.known_windows.memory_bytes() + self.stored.memory_bytes();
        self.dirty.memory_bytes() + self.known.memory_bytes() + self.large.memory_bytes() + windows + lists
    }

    /// What the store has of the row's list.
    pub(super) fn list(&mut self, row: u32) -> &mut StoredList {
        self.lists.entry(row).or_default()
    }

    /// As `list`, for one who only looks.
    pub(super) fn list_of(&self, row: u32) -> StoredList {
        self.lists.get(&row).copied().unwrap_or_default()
    }
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// Appends those of `keys` of which the store has to be asked for everything, each once: they count as known from now on.
    pub(super) fn drain_unknown(&mut self, keys: &[u32], unknown: &mut Vec<u32>) {
        let is_windowed = self.index.is_windowed();
        if let Some(cold) = self.cold.as_mut().filter(|_| !is_windowed) {
            let ColdRows { known, large, is_whole, .. } = cold;
            unknown.extend(keys.iter().copied().filter(|key| !large.get(*key) && known.set(*key) && !*is_whole));
        }
    }

    /// These keys, each of which `drain_unknown` gave, are not asked for after all: their entries come in one by one.
    pub(super) fn forget_known(&mut self, keys: &[u32]) {
        if let Some(cold) = &mut self.cold {
            keys.iter().for_each(|key| cold.known.clear(*key));
        }
    }

    /// Most entries of a key that a batch brings in.
    pub(super) fn entries_at_once(&self) -> usize {
        if I::SINGLE { usize::MAX } else { MAP_ENTRIES_AT_ONCE }
    }

    /// Whether the table has everything that the store has of a window of a key.
    fn knows_window(&self, at: &At) -> bool {
        let (Some(cold), Some(window)) = (&self.cold, at.namespace.filter(|_| self.index.is_windowed())) else { return false };
        !cold.stored.may_have(window) || cold.known_windows.is_whole(at.key, window)
    }

    /// Makes sure that the table has the entry, or says that there is none.
    #[inline]
    pub(super) fn fetch(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        if here.overlay.is_none() { Ok(()) } else { self.fetch_entry(here, map_key) }
    }

    #[inline(never)]
    fn fetch_entry(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        if !self.knows(here, map_key) {
            self.load(here, Some(map_key))?;
            let row = self.index.insert(here, map_key);
            self.cover(row);
        }
        if C::IS_LIST { self.fetch_head(here, map_key) } else { Ok(()) }
    }

    /// Whether the store need not be asked for the entry, of a key without windows from now on.
    pub(super) fn knows(&mut self, at: &At, map_key: &I::MapKey) -> bool {
        match (I::BY_KEY, &mut self.cold) {
            (true, Some(cold)) => !cold.known.set(at.key) || cold.is_whole,
            (false, Some(cold)) if cold.is_whole || cold.known.get(at.key) => true,
            _ => self.index.find(at, map_key).is_some() || self.knows_window(at),
        }
    }

    /// Makes sure that the table has all entries of the current key and namespace.
    pub(super) fn fetch_all(&mut self, here: &mut Here<'_>) -> StateResult<()> {
        if self.cold.as_ref().is_none_or(|cold| cold.is_whole || cold.known.get(here.key)) || self.knows_window(here) {
            return Ok(());
        }
        self.load(here, None)?;
        let window = here.at.namespace.filter(|_| self.index.is_windowed());
        match (&mut self.cold, window) {
            (Some(cold), Some(window)) => cold.known_windows.brought_in(here.at.key, window, true),
            (Some(cold), None) => {
                cold.known.set(here.at.key);
                cold.large.clear(here.at.key);
            }
            (None, _) => {}
        }
        Ok(())
    }

    pub(super) fn load(&mut self, here: &mut Here<'_>, map_key: Option<&I::MapKey>) -> StateResult<()> {
        let (Some(cold), Some(overlay)) = (&self.cold, &mut here.overlay) else { return Ok(()) };
        let namespace = here.at.namespace.filter(|_| self.index.is_windowed());
        let addresses = match map_key {
            Some(map_key) => AddressBuilder::of(&Owner { key: here.at.key, namespace, map_key }).finish(here.keys),
            None => AddressBuilder::of(&Owner { key: here.at.key, namespace, map_key: &() }).finish(here.keys),
        };
        let addresses = addresses.map_err(|source| self.info.of_type(source))?;
        let loaded = overlay.load(&self.info.name, cold.state, &addresses, usize::MAX)?;
        let rows = loaded.rows.num_rows();
        let (keys, namespaces, mut absent) = (vec![here.at.key; rows], vec![namespace; rows], Bits::default());
        if I::BY_KEY {
            absent.set(here.at.key);
        }
        self.take_loaded(&RestoredRows { batch: &loaded.rows, keys: &keys, namespaces: Some(&namespaces) }, here.at, &mut absent)
    }

    /// Takes in what the store has of these keys, each of which `drain_unknown` gave.
    pub(super) fn take_keys(&mut self, keys: &[u32], loaded: &Loaded, at: &At) -> StateResult<()> {
        let of_rows: Vec<u32> = loaded.positions.iter().map(|position| keys[*position as usize]).collect();
        let mut absent = Bits::default();
        if I::BY_KEY {
            keys.iter().for_each(|key| absent.set_one(*key));
        }
        if let Some(cold) = &mut self.cold {
            for key in loaded.cut.iter().map(|position| keys[*position as usize]) {
                cold.known.clear(key);
                cold.large.set(key);
            }
        }
        let namespaces = vec![None; of_rows.len()];
        self.take_loaded(&RestoredRows { batch: &loaded.rows, keys: &of_rows, namespaces: Some(&namespaces) }, at, &mut absent)
    }

    /// Takes rows in that a scan has found, but for those of entries that the table knows better. `absent` is kept from one
    /// batch of a scan to the next.
    pub(super) fn take_scanned(&mut self, rows: &RestoredRows<'_>, at: &At, absent: &mut Bits) -> StateResult<()> {
        if I::BY_KEY {
            let mut unknown = Vec::new();
            self.drain_unknown(rows.keys, &mut unknown);
            unknown.into_iter().for_each(|key| absent.set_one(key));
        }
        self.take_loaded(rows, at, absent)
    }

    /// Whether the key's rows can go: the store has them as they are.
    pub(super) fn is_clean(&self, key: u32) -> bool {
        let Some(cold) = &self.cold else { return false };
        let mut row = self.index.first(key);
        while let Some(at) = row {
            if cold.dirty.get(at) {
                return false;
            }
            row = self.index.next(at);
        }
        true
    }

    /// Lets the key's rows go.
    ///
    /// Contract: they are clean, and nothing is being sent.
    pub(super) fn evict(&mut self, key: u32) {
        let (mut next, mut had_entries) = (self.index.first(key), false);
        while let Some(row) = next {
            next = self.index.next(row);
            if let Some(cell) = self.cells.get_mut(row as usize) {
                let old = std::mem::replace(cell, C::empty());
                had_entries |= !old.is_empty();
                if let (false, Some(cold), Some(window)) = (old.is_empty(), &mut self.cold, self.index.namespace(row)) {
                    cold.stored.insert(window);
                }
                self.heap_bytes -= old.heap_bytes();
                self.entries -= usize::from(!old.is_empty());
                self.forget_stamp(row);
            }
            if let Some(cold) = self.cold.as_mut().filter(|_| C::IS_LIST) {
                cold.lists.remove(&row);
                cold.lists_behind.clear(row);
            }
            self.index.release(row);
        }
        if let Some(cold) = &mut self.cold {
            cold.known.clear(key);
            cold.large.clear(key);
            cold.known_windows.forget(key);
            cold.is_whole &= !had_entries;
        }
    }
}
