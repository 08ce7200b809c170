//! A table in front of a cold store: which of its rows the store does not have, and how what it has comes in.
//!
//! The table is then a write-back overlay. An empty row says that there is no entry: because it was deleted, or because the store
//! was asked and had none. What the table has wins over what the store has. Must never know when rows come and go.

use crate::cold::{ColdStateId, Loaded};

use super::at::At;
use super::cell::Cell;
use super::error::StateResult;
use super::here::Here;
use super::piece::{AddressBuilder, Owner};
use super::restore::RestoredRows;
use super::row_index::RowIndex;
use super::table::Table;
use crate::bits::Bits;

/// What a table knows of the store behind it.
#[derive(Debug)]
pub struct ColdRows {
    /// The state in the store.
    pub(super) state: ColdStateId,
    /// Rows that the store has otherwise.
    pub(super) dirty: Bits,
    /// Keys whose row says what the store has; of tables whose rows are keys.
    known: Bits,
    /// What the table does not have the store does not have either: nothing has left the table yet, nor was anything restored.
    pub(super) is_whole: bool,
}

impl ColdRows {
    /// Of a table without rows; `is_whole`: the store has none either.
    pub(super) fn new(state: ColdStateId, is_whole: bool) -> Self {
        Self { state, dirty: Bits::default(), known: Bits::default(), is_whole }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.dirty.memory_bytes() + self.known.memory_bytes()
    }
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// Appends those of `keys` whose rows the store has to be asked for, each once: they count as known from now on.
    pub(super) fn drain_unknown(&mut self, keys: &[u32], unknown: &mut Vec<u32>) {
        if let Some(cold) = self.cold.as_mut().filter(|_| I::BY_KEY) {
            let is_whole = cold.is_whole;
            unknown.extend(keys.iter().copied().filter(|key| cold.known.set(*key) && !is_whole));
        }
    }

    /// Makes sure that the table has the entry, or says that there is none.
    #[inline]
    pub(super) fn fetch(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        if here.overlay.is_none() { Ok(()) } else { self.fetch_entry(here, map_key) }
    }

    #[inline(never)]
    fn fetch_entry(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        let is_known = match (I::BY_KEY, &mut self.cold) {
            (true, Some(cold)) => !cold.known.set(here.key) || cold.is_whole,
            (false, Some(cold)) if cold.is_whole => true,
            _ => self.index.find(here, map_key).is_some(),
        };
        if is_known {
            return Ok(());
        }
        self.load(here, Some(map_key))?;
        let row = self.index.insert(here, map_key);
        self.cover(row);
        Ok(())
    }

    /// Makes sure that the table has all entries of the current key and namespace.
    pub(super) fn fetch_all(&mut self, here: &mut Here<'_>) -> StateResult<()> {
        if self.cold.as_ref().is_none_or(|cold| cold.is_whole) { Ok(()) } else { self.load(here, None) }
    }

    fn load(&mut self, here: &mut Here<'_>, map_key: Option<&I::MapKey>) -> StateResult<()> {
        let (Some(cold), Some(overlay)) = (&self.cold, &mut here.overlay) else { return Ok(()) };
        let namespace = here.at.namespace.filter(|_| self.index.is_windowed());
        let addresses = match map_key {
            Some(map_key) => AddressBuilder::of(&Owner { key: here.at.key, namespace, map_key }).finish(here.keys),
            None => AddressBuilder::of(&Owner { key: here.at.key, namespace, map_key: &() }).finish(here.keys),
        };
        let addresses = addresses.map_err(|source| self.info.of_type(source))?;
        let loaded = overlay.load(&self.info.name, cold.state, &addresses)?;
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
        keys.iter().for_each(|key| absent.set_one(*key));
        let namespaces = vec![None; of_rows.len()];
        self.take_loaded(&RestoredRows { batch: &loaded.rows, keys: &of_rows, namespaces: Some(&namespaces) }, at, &mut absent)
    }

    /// Takes rows in that a scan has found, but for those of entries that the table knows better. `absent` is kept from one
    /// batch of a scan to the next.
    pub(super) fn take_scanned(&mut self, rows: &RestoredRows<'_>, at: &At, absent: &mut Bits) -> StateResult<()> {
        let mut unknown = Vec::new();
        self.drain_unknown(rows.keys, &mut unknown);
        unknown.into_iter().for_each(|key| absent.set_one(key));
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
                self.heap_bytes -= old.heap_bytes();
                self.entries -= usize::from(!old.is_empty());
                self.forget_stamp(row);
            }
            self.index.release(row);
        }
        if let Some(cold) = &mut self.cold {
            cold.known.clear(key);
            cold.is_whole &= !had_entries;
        }
    }
}
