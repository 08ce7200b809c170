//! What can be done with the rows of any state without knowing what is in them.

use std::any::Any;

use crate::cold::{Change, ColdStateId, Loaded};
use crate::key_index::KeyIndex;
use crate::snapshot::PieceSender;
use crate::types::TypeError;

use super::at::{At, Namespace};
use super::cell::Cell;
use super::clock::Clock;
use super::cold_rows::ColdRows;
use super::error::StateError;
use super::list_ends::ListBehind;
use super::restore::RestoredRows;
use super::row_index::RowIndex;
use super::state::TOUCHED_ROWS;
use super::table::{Table, TableInfo};
use crate::bits::Bits;

/// The rows of a state, whatever its type.
pub trait StateRows: Send + 'static {
    /// What they are of.
    fn info(&self) -> &TableInfo;
    /// Whether the key has an entry.
    fn has(&self, key: u32) -> bool;
    /// Reads the rows of these keys, so that they are in the cache when they are asked for.
    fn touch(&self, keys: &[u32]);
    /// See `Table::freeze`.
    fn freeze(&mut self, keys: &KeyIndex, sender: PieceSender, clock: &Clock) -> Result<(), TypeError>;
    /// See `Table::advance`.
    fn advance(&mut self, keys: &KeyIndex, items: usize) -> Result<bool, TypeError>;
    /// See `Table::flush_saved`; only where there is something to flush.
    fn flush_saved(&mut self, keys: &KeyIndex, at_least: usize) -> Result<(), TypeError>;
    /// See `Table::abandon`.
    fn abandon(&mut self);
    /// Takes rows out of a snapshot.
    fn restore(&mut self, rows: &RestoredRows<'_>, clock: &Clock) -> Result<(), Box<StateError>>;
    /// Puts a cold store behind the rows.
    fn put_cold(&mut self, cold: ColdRows);
    /// The state in the cold store, where there is one.
    fn cold_state(&self) -> Option<ColdStateId>;
    /// What is known of the cold store, where there is one.
    fn cold(&mut self) -> Option<&mut ColdRows>;
    /// See `Table::drain_unknown`.
    fn drain_unknown(&mut self, keys: &[u32], unknown: &mut Vec<u32>);
    /// See `Table::forget_known`.
    fn forget_known(&mut self, keys: &[u32]);
    /// See `Table::entries_at_once`.
    fn entries_at_once(&self) -> usize;
    /// Whether an entry is a list.
    fn holds_lists(&self) -> bool;
    /// See `Table::ends_are_enough`.
    fn ends_are_enough(&mut self) -> bool;
    /// See `Table::take_ends`.
    fn take_ends(&mut self, keys: &[u32], loaded: &Loaded) -> Result<(), Box<StateError>>;
    /// See `Table::lists_behind`.
    fn lists_behind(&self, keys: Option<&[u32]>, windows: &[Namespace], at: &At) -> Vec<ListBehind>;
    /// See `Table::take_heads`.
    fn take_heads(&mut self, lists: &[ListBehind], loaded: &Loaded) -> Result<(), Box<StateError>>;
    /// See `Table::take_keys`.
    fn take_keys(&mut self, keys: &[u32], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>>;
    /// See `Table::unknown_windows`.
    fn unknown_windows(&self, keys: &[u32], windows: &[Namespace], at: &At) -> Vec<u32>;
    /// See `Table::take_windows`.
    fn take_windows(&mut self, keys: &[u32], windows: &[Namespace], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>>;
    /// See `Table::take_scanned`.
    fn take_scanned(&mut self, rows: &RestoredRows<'_>, at: &At, absent: &mut Bits) -> Result<(), Box<StateError>>;
    /// See `Table::freeze_dirty`.
    fn freeze_dirty(&mut self, clock: &Clock);
    /// See `Frozen::take_changes`.
    fn take_changes(&mut self) -> Vec<Change>;
    /// See `Table::is_clean`.
    fn is_clean(&self, key: u32) -> bool;
    /// See `Table::evict`.
    fn evict(&mut self, key: u32);
    /// See `Table::clear`.
    fn clear(&mut self, at: &At);
    /// Removes what has expired among the next `rows` rows.
    fn clean(&mut self, at: &At, rows: usize);
    /// Appends the keys of rows that became empty since the last call.
    fn drain_emptied(&mut self, keys: &mut Vec<u32>);
    /// Bytes held.
    fn memory_bytes(&self) -> usize;
    /// See `Table::idle_bytes`.
    fn idle_bytes(&self, free_keys: usize) -> usize;
    /// Entries that are there; those that have expired and were not removed yet are among them.
    fn entries(&self) -> usize;
}

/// Entries of a key that are touched ahead.
const TOUCHED_ENTRIES: usize = 4;

/// Rows that a table has to have for touching them ahead to pay.
const TOUCH_ROWS_MIN: usize = 1 << 13;

impl<I: RowIndex, C: Cell> StateRows for Table<I, C> {
    fn info(&self) -> &TableInfo {
        &self.info
    }

    fn has(&self, key: u32) -> bool {
        Table::has(self, key)
    }

    fn touch(&self, keys: &[u32]) {
        if self.cells.len() < TOUCH_ROWS_MIN {
            return;
        }
        let mut rows = [None; TOUCHED_ROWS];
        rows.iter_mut().zip(keys).for_each(|(row, key)| *row = self.index.first(*key));
        for _ in 0..if I::BY_KEY { 1 } else { TOUCHED_ENTRIES } {
            let found = rows.iter().flatten().filter(|row| self.row(**row).is_some());
            std::hint::black_box(found.count());
            rows.iter_mut().for_each(|row| *row = row.and_then(|row| self.index.next(row)));
        }
    }

    fn freeze(&mut self, keys: &KeyIndex, sender: PieceSender, clock: &Clock) -> Result<(), TypeError> {
        let expired_up_to = self.info.ttl.and_then(|ttl| ttl.expired_up_to(clock.now(ttl.time)));
        Table::freeze(self, keys, sender, expired_up_to)
    }

    fn advance(&mut self, keys: &KeyIndex, items: usize) -> Result<bool, TypeError> {
        Table::advance(self, keys, items)
    }

    fn flush_saved(&mut self, keys: &KeyIndex, at_least: usize) -> Result<(), TypeError> {
        if self.frozen.is_due(at_least) { Table::flush_saved(self, keys) } else { Ok(()) }
    }

    fn abandon(&mut self) {
        Table::abandon(self);
    }

    fn restore(&mut self, rows: &RestoredRows<'_>, clock: &Clock) -> Result<(), Box<StateError>> {
        Table::restore(self, rows, clock)
    }

    fn put_cold(&mut self, cold: ColdRows) {
        self.cold = Some(cold);
    }

    fn cold_state(&self) -> Option<ColdStateId> {
        self.cold.as_ref().map(|cold| cold.state)
    }

    fn cold(&mut self) -> Option<&mut ColdRows> {
        self.cold.as_mut()
    }

    fn drain_unknown(&mut self, keys: &[u32], unknown: &mut Vec<u32>) {
        Table::drain_unknown(self, keys, unknown);
    }

    fn forget_known(&mut self, keys: &[u32]) {
        Table::forget_known(self, keys);
    }

    fn entries_at_once(&self) -> usize {
        Table::entries_at_once(self)
    }

    fn holds_lists(&self) -> bool {
        C::IS_LIST
    }

    fn ends_are_enough(&mut self) -> bool {
        Table::ends_are_enough(self)
    }

    fn take_ends(&mut self, keys: &[u32], loaded: &Loaded) -> Result<(), Box<StateError>> {
        Table::take_ends(self, keys, loaded)
    }

    fn lists_behind(&self, keys: Option<&[u32]>, windows: &[Namespace], at: &At) -> Vec<ListBehind> {
        Table::lists_behind(self, keys, windows, at)
    }

    fn take_heads(&mut self, lists: &[ListBehind], loaded: &Loaded) -> Result<(), Box<StateError>> {
        Table::take_heads(self, lists, loaded)
    }

    fn take_keys(&mut self, keys: &[u32], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>> {
        Table::take_keys(self, keys, loaded, at)
    }

    fn unknown_windows(&self, keys: &[u32], windows: &[Namespace], at: &At) -> Vec<u32> {
        Table::unknown_windows(self, keys, windows, at)
    }

    fn take_windows(&mut self, keys: &[u32], windows: &[Namespace], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>> {
        Table::take_windows(self, keys, windows, loaded, at)
    }

    fn take_scanned(&mut self, rows: &RestoredRows<'_>, at: &At, absent: &mut Bits) -> Result<(), Box<StateError>> {
        Table::take_scanned(self, rows, at, absent)
    }

    fn freeze_dirty(&mut self, clock: &Clock) {
        let expired_up_to = self.info.ttl.and_then(|ttl| ttl.expired_up_to(clock.now(ttl.time)));
        Table::freeze_dirty(self, expired_up_to);
    }

    fn take_changes(&mut self) -> Vec<Change> {
        self.frozen.take_changes()
    }

    fn is_clean(&self, key: u32) -> bool {
        Table::is_clean(self, key)
    }

    fn evict(&mut self, key: u32) {
        Table::evict(self, key);
    }

    fn clear(&mut self, at: &At) {
        Table::clear(self, at);
    }

    fn clean(&mut self, at: &At, rows: usize) {
        Table::clean(self, at, rows);
    }

    fn drain_emptied(&mut self, keys: &mut Vec<u32>) {
        keys.append(&mut self.emptied);
    }

    fn memory_bytes(&self) -> usize {
        Table::memory_bytes(self)
    }

    fn idle_bytes(&self, free_keys: usize) -> usize {
        Table::idle_bytes(self, free_keys)
    }

    fn entries(&self) -> usize {
        self.entries
    }
}

/// A state: its rows, and the functions or defaults that the program gave.
pub(crate) struct State<R: StateRows, L: Send + 'static> {
    pub(super) rows: R,
    pub(super) logic: L,
}

/// A state of any type, from which its handle gets the typed one back.
pub trait AnyState: Any + Send {
    #[doc(hidden)]
    fn rows(&self) -> &dyn StateRows;
    #[doc(hidden)]
    fn rows_mut(&mut self) -> &mut dyn StateRows;
}

impl<R: StateRows, L: Send + 'static> AnyState for State<R, L> {
    fn rows(&self) -> &dyn StateRows {
        &self.rows
    }

    fn rows_mut(&mut self) -> &mut dyn StateRows {
        &mut self.rows
    }
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// The namespaces in which the current key has an entry that has not expired, ascending.
    pub(super) fn namespaces(&mut self, at: &At) -> Vec<Namespace> {
        let mut namespaces = Vec::new();
        let mut next = self.index.first(at.key);
        while let Some(row) = next {
            next = self.index.next(row);
            if self.row(row).is_some() && !self.is_expired(at, row) {
                namespaces.extend(self.index.namespace(row));
            }
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }

    /// Counts reading the current key's entries as touching them, where that is asked for.
    pub(super) fn touch_all(&mut self, at: &At) {
        if self.stamps.is_some() {
            let mut next = self.first_of(at);
            while let Some(row) = next {
                next = self.next_of(at, row);
                self.read_stamped(at, row);
            }
        }
    }

    /// The current key's entries that have not expired, in its namespace.
    pub(super) fn entries_of(&self, at: &At) -> impl Iterator<Item = (&I::MapKey, &C)> {
        let at = *at;
        let rows = std::iter::successors(self.first_of(&at), move |row| self.next_of(&at, *row));
        let living = rows.filter(move |row| !self.has_expired(&at, *row));
        living.filter_map(|row| Some((self.index.map_key(row), self.row(row)?)))
    }

    /// Calls `visit` with each entry that has not expired, of all keys and namespaces.
    pub(super) fn each(&mut self, at: &At, mut visit: impl FnMut(u32, Option<Namespace>, &I::MapKey, &C)) {
        for row in 0..self.cells.len() as u32 {
            if self.row(row).is_some() && !self.is_expired(at, row) {
                visit(self.index.key(row), self.index.namespace(row), self.index.map_key(row), &self.cells[row as usize]);
            }
        }
    }
}
