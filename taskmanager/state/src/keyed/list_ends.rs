//! Lists in front of a cold store that are only added to: the place of the last element is all that is read of them.
//!
//! The table then has those elements that were added, *behind* those that the store has; whoever asks for the list brings in the
//! others before it is answered. Whether the lists of a batch come in whole or by their ends depends on what was done with those of
//! the last one. Must never know what an element is.

use crate::cold::{Addresses, Loaded};
use crate::row_codec::Namespaces;
use crate::rows::Rows;
use crate::types::StateReader;

use super::at::{At, Namespace};
use super::cell::Cell;
use super::error::StateResult;
use super::here::Here;
use super::piece::{AddressBuilder, Owner, UNTOUCHED};
use super::restore::RestoredRows;
use super::row_index::RowIndex;
use super::state::KeyedState;
use super::stored_list::StoredList;
use super::table::Table;

/// Additions for each time that lists are asked for, at least, for ends to be enough.
const ADDED_PER_ASKED: u32 = 4;

/// What is done with the lists of a state.
#[derive(Debug, Default)]
pub(super) struct ListUse {
    asked: u32,
    added: u32,
    ends_are_enough: bool,
}

impl ListUse {
    /// Whether the ends of the next batch's lists are enough, by what was done with those of the last one.
    fn next_batch(&mut self) -> bool {
        if self.asked + self.added > 0 {
            self.ends_are_enough = self.asked.saturating_mul(ADDED_PER_ASKED) <= self.added;
        }
        (self.asked, self.added) = (0, 0);
        self.ends_are_enough
    }
}

/// A list of which the table has the end only.
#[derive(Debug, Clone, Copy)]
pub struct ListBehind {
    row: u32,
    key: u32,
    namespace: Option<Namespace>,
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// Whether the ends of the lists of the next batch are enough.
    pub(super) fn ends_are_enough(&mut self) -> bool {
        self.cold.as_mut().is_some_and(|cold| C::IS_LIST && cold.list_use.next_batch())
    }

    /// Makes sure that elements can be added to the list of this place.
    #[inline]
    pub(super) fn fetch_end(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        if here.overlay.is_none() { Ok(()) } else { self.fetch_place(here, map_key) }
    }

    #[inline(never)]
    fn fetch_place(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        if let (Some(cold), true) = (&mut self.cold, here.is_batch()) {
            cold.list_use.added += 1;
        }
        if self.knows(here, map_key) {
            return Ok(());
        }
        let namespace = here.at.namespace.filter(|_| self.index.is_windowed());
        let addresses = AddressBuilder::of(&Owner { key: here.at.key, namespace, map_key: &() }).finish(here.keys);
        let addresses = addresses.map_err(|source| self.info.of_type(source))?;
        let (Some(cold), Some(overlay)) = (&self.cold, &mut here.overlay) else { return Ok(()) };
        let loaded = overlay.load_last(&self.info.name, cold.state, &addresses)?;
        let at = *here.at;
        match self.end_of(&loaded)?.first() {
            Some(None) => self.load(here, Some(map_key))?,
            Some(Some(next)) => {
                let row = self.index.insert(&at, map_key);
                self.begin_behind(row, *next);
            }
            None => {}
        }
        let row = self.index.insert(&at, map_key);
        self.cover(row);
        Ok(())
    }

    /// Of each of these last elements the next place; none where it is not known when it was touched: the list has to come in whole to
    /// be touched.
    fn end_of(&self, loaded: &Loaded) -> StateResult<Vec<Option<i64>>> {
        let rows = RestoredRows { batch: &loaded.rows, keys: &[], namespaces: None };
        let (places, stamps) = (rows.indexes(&self.info, true)?, rows.stamps(&self.info));
        let is_known = |row: usize| self.stamps.is_none() || stamps.get(row).is_some_and(|stamp| *stamp != UNTOUCHED);
        Ok(places.iter().enumerate().map(|(row, place)| is_known(row).then(|| place + 1)).collect())
    }

    /// The row's list is in the store up to, not including, `next`.
    fn begin_behind(&mut self, row: u32, next: i64) {
        self.cover(row);
        if let Some(cold) = &mut self.cold {
            *cold.list(row) = StoredList::behind(next);
            cold.lists_behind.set_one(row);
        }
    }

    /// Brings in what the store has of the list of this place before what the table has.
    pub(super) fn fetch_head(&mut self, here: &mut Here<'_>, map_key: &I::MapKey) -> StateResult<()> {
        let is_batch = here.is_batch();
        let Some(cold) = &mut self.cold else { return Ok(()) };
        cold.list_use.asked += u32::from(is_batch);
        let Some(row) = self.index.find(here.at, map_key).filter(|row| cold.lists_behind.get(*row)) else { return Ok(()) };
        let namespace = here.at.namespace.filter(|_| self.index.is_windowed());
        let addresses = AddressBuilder::of(&Owner { key: here.at.key, namespace, map_key: &() }).finish(here.keys);
        let addresses = addresses.map_err(|source| self.info.of_type(source))?;
        let Some(overlay) = &mut here.overlay else { return Ok(()) };
        let loaded = overlay.load(&self.info.name, cold.state, &addresses, usize::MAX)?;
        self.take_heads(&[ListBehind { row, key: here.at.key, namespace }], &loaded)
    }

    /// Those of the lists of these keys, in these windows where there are any, of which the table has the end only; of all keys where
    /// none are given.
    pub(super) fn lists_behind(&self, keys: Option<&[u32]>, windows: &[Namespace], at: &At) -> Vec<ListBehind> {
        let Some(cold) = self.cold.as_ref().filter(|_| C::IS_LIST) else { return Vec::new() };
        let behind = |row: u32| ListBehind { row, key: self.index.key(row), namespace: self.index.namespace(row) };
        let is_behind = |row: &u32| cold.lists_behind.get(*row);
        let Some(keys) = keys else { return (0..self.cells.len() as u32).filter(is_behind).map(behind).collect() };
        let row_of = |(place, key): (usize, &u32)| {
            let namespace = windows.get(place).copied();
            if namespace.is_some() != self.index.is_windowed() {
                return None;
            }
            self.first_of(&At { key: *key, namespace, ..*at })
        };
        keys.iter().enumerate().filter_map(row_of).filter(is_behind).map(behind).collect()
    }

    /// Takes in what the store has of these lists before what the table has; each may be named twice.
    pub(super) fn take_heads(&mut self, lists: &[ListBehind], loaded: &Loaded) -> StateResult<()> {
        let rows = RestoredRows { batch: &loaded.rows, keys: &[], namespaces: None };
        let (places, stamps) = (rows.indexes(&self.info, true)?, rows.stamps(&self.info));
        let values = rows.reader::<C::Item>(&self.info, &self.info.schema.values)?;
        let mut from = 0;
        for of_list in loaded.positions.chunk_by(|left, right| left == right) {
            let (first, end) = (from, from + of_list.len());
            from = end;
            let row = lists[of_list[0] as usize].row;
            let Some(cold) = self.cold.as_ref().filter(|cold| cold.lists_behind.get(row)) else { continue };
            // What the table has may be written by now.
            let head = first + places[first..end].partition_point(|place| *place < cold.list_of(row).first);
            let items: Vec<C::Item> = (first..head).map(|at| values.get(at)).collect();
            self.precede(row, items, &places[first..head], stamps.get(first..head));
        }
        // Of the others nothing is left there: it has expired.
        if let Some(cold) = &mut self.cold {
            lists.iter().for_each(|list| cold.lists_behind.clear(list.row));
        }
        Ok(())
    }

    /// Puts elements that the store has at these places before those of the row's list.
    fn precede(&mut self, row: u32, items: Vec<C::Item>, places: &[i64], stamps: Option<&[i64]>) {
        if items.is_empty() {
            return;
        }
        if self.frozen.is_running() {
            self.save_copy(row);
        }
        if let Some(cold) = &mut self.cold {
            cold.list(row).preceded(places);
            cold.lists_behind.clear(row);
        }
        let cell = &mut self.cells[row as usize];
        let bytes = cell.heap_bytes();
        self.entries += usize::from(cell.is_empty());
        cell.precede(items, stamps.filter(|_| self.stamps.is_some()));
        self.heap_bytes += cell.heap_bytes() - bytes;
        if let (Some(of_rows), Some(last)) = (&mut self.stamps, stamps.and_then(<[i64]>::last)) {
            of_rows[row as usize] = of_rows[row as usize].max(*last);
        }
    }

    /// Takes in the ends of these keys' lists, each of which `drain_unknown` gave.
    pub(super) fn take_ends(&mut self, keys: &[u32], loaded: &Loaded) -> StateResult<()> {
        let ends = self.end_of(loaded)?;
        for (position, end) in loaded.positions.iter().zip(ends) {
            // Without windows a list's row is its key.
            let key = keys[*position as usize];
            match end {
                Some(next) => self.begin_behind(key, next),
                None => self.forget_known(&[key]),
            }
        }
        Ok(())
    }
}

impl KeyedState {
    /// Brings in what the store has of lists of these keys, in these windows where there are any, of which the tables have the end only.
    pub(super) fn load_heads(&mut self, ids: &[u32], windows: &[Namespace]) -> StateResult<()> {
        (0..self.states.len()).try_for_each(|state| self.load_heads_of(state, Some(ids), windows))
    }

    /// Brings in what the store has of a state's lists of which the table has the end only.
    pub(super) fn load_heads_of(&mut self, state: usize, ids: Option<&[u32]>, windows: &[Namespace]) -> StateResult<()> {
        let Self { overlay: Some(overlay), states, keys, at, .. } = self else { return Ok(()) };
        let rows = states[state].state.rows_mut();
        let lists = rows.lists_behind(ids, windows, at);
        let Some(state) = rows.cold_state().filter(|_| !lists.is_empty()) else { return Ok(()) };
        let of_keys: Vec<u32> = lists.iter().map(|list| list.key).collect();
        let namespaces: Vec<_> = lists.iter().map(|list| list.namespace).collect();
        let namespace = rows.info().schema.windowed.then(|| Namespaces::column(&namespaces));
        let addresses = Addresses { keys: keys.keys(Rows::Ids(&of_keys)), namespace, below: Vec::new(), rows: of_keys.len() };
        let loaded = overlay.load(&rows.info().name, state, &addresses, usize::MAX)?;
        rows.take_heads(&lists, &loaded)
    }
}
