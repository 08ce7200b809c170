//! What can be done with the rows of any state without knowing what is in them.

use std::any::Any;

use crate::cold::{Change, ColdStateId, Loaded};
use crate::key_index::KeyIndex;
use crate::snapshot::PieceSender;
use crate::types::{StateType, TypeError};

use super::at::{At, Namespace};
use super::cell::{Cell, List};
use super::clock::Clock;
use super::cold_rows::ColdRows;
use super::error::StateError;
use super::here::Here;
use super::restore::RestoredRows;
use super::row_index::{ByEntry, ByKey, RowIndex};
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
    /// See `Table::take_keys`.
    fn take_keys(&mut self, keys: &[u32], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>>;
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
        if self.frozen.saved_len() >= at_least.max(1) { Table::flush_saved(self, keys) } else { Ok(()) }
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

    fn take_keys(&mut self, keys: &[u32], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>> {
        Table::take_keys(self, keys, loaded, at)
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

/// The rows of a state that is no map: by key alone, or by key and window.
pub(crate) enum Cells<C: Cell> {
    Keyed(Table<ByKey, C>),
    Windowed(Table<ByEntry<()>, C>),
}

/// Does the same with both.
macro_rules! either {
    ($cells:expr, $table:ident => $does:expr) => {
        match $cells {
            Cells::Keyed($table) => $does,
            Cells::Windowed($table) => $does,
        }
    };
}

impl<C: Cell> Cells<C> {
    pub(super) fn new(info: TableInfo) -> Self {
        match info.schema.windowed {
            true => Self::Windowed(Table::new(info, ByEntry::new(true))),
            false => Self::Keyed(Table::new(info, ByKey)),
        }
    }

    /// See `Table::fetch`.
    #[inline]
    pub(super) fn fetch(&mut self, here: &mut Here<'_>) -> Result<(), Box<StateError>> {
        either!(self, table => table.fetch(here, &()))
    }

    /// See `Table::read`.
    #[inline]
    pub(super) fn read(&mut self, at: &At) -> Option<&C> {
        either!(self, table => table.read(at, &()))
    }

    /// See `Table::replace`.
    #[inline]
    pub(super) fn replace(&mut self, at: &At, cell: C) {
        either!(self, table => table.replace(at, &(), cell));
    }

    /// See `Table::update`.
    #[inline]
    pub(super) fn update<R>(&mut self, at: &At, change: impl FnOnce(&mut C) -> R) -> R {
        either!(self, table => table.update(at, &(), change))
    }

    /// See `Table::remove`.
    #[inline]
    pub(super) fn remove(&mut self, at: &At) {
        either!(self, table => table.remove(at, &()));
    }

    /// Takes the entry's cell out, unless it has expired.
    pub(super) fn take(&mut self, at: &At) -> Option<C> {
        let cell = self.read(at).cloned();
        self.remove(at);
        cell
    }

    /// The namespaces in which the current key has an entry, ascending.
    pub(super) fn namespaces(&mut self, at: &At) -> Vec<Namespace> {
        either!(self, table => table.namespaces(at))
    }

    /// Calls `visit` with each entry that has not expired: its key and namespace.
    pub(super) fn each(&mut self, at: &At, mut visit: impl FnMut(u32, Option<Namespace>, &C)) {
        either!(self, table => table.each(at, |key, namespace, _, cell| visit(key, namespace, cell)));
    }
}

impl<T: StateType> Cells<List<T>> {
    /// See `Table::append`.
    #[inline]
    pub(super) fn append(&mut self, at: &At, item: T) -> Result<(), Box<StateError>> {
        either!(self, table => table.append(at, &(), item))
    }

    /// See `Table::living`.
    #[inline]
    pub(super) fn living(&mut self, at: &At) -> &[T] {
        either!(self, table => table.living(at, &()))
    }

    /// Calls `visit` with the elements that have not expired of each key and namespace.
    pub(super) fn each_living(&mut self, at: &At, mut visit: impl FnMut(u32, Option<Namespace>, &[T])) {
        let clock = at.clock;
        let expired_up_to = self.info().ttl.and_then(|ttl| ttl.expired_up_to(clock.now(ttl.time)));
        self.each(at, |key, namespace, list| {
            visit(key, namespace, &list.items()[expired_up_to.map_or(0, |time| list.first_after(time))..]);
        });
    }
}

impl<C: Cell> StateRows for Cells<C> {
    fn info(&self) -> &TableInfo {
        either!(self, table => table.info())
    }

    fn has(&self, key: u32) -> bool {
        either!(self, table => table.has(key))
    }

    fn touch(&self, keys: &[u32]) {
        either!(self, table => table.touch(keys));
    }

    fn freeze(&mut self, keys: &KeyIndex, sender: PieceSender, clock: &Clock) -> Result<(), TypeError> {
        either!(self, table => StateRows::freeze(table, keys, sender, clock))
    }

    fn advance(&mut self, keys: &KeyIndex, items: usize) -> Result<bool, TypeError> {
        either!(self, table => table.advance(keys, items))
    }

    fn flush_saved(&mut self, keys: &KeyIndex, at_least: usize) -> Result<(), TypeError> {
        either!(self, table => StateRows::flush_saved(table, keys, at_least))
    }

    fn abandon(&mut self) {
        either!(self, table => table.abandon());
    }

    fn restore(&mut self, rows: &RestoredRows<'_>, clock: &Clock) -> Result<(), Box<StateError>> {
        either!(self, table => table.restore(rows, clock))
    }

    fn put_cold(&mut self, cold: ColdRows) {
        either!(self, table => table.put_cold(cold));
    }

    fn cold_state(&self) -> Option<ColdStateId> {
        either!(self, table => table.cold_state())
    }

    fn cold(&mut self) -> Option<&mut ColdRows> {
        either!(self, table => table.cold())
    }

    fn drain_unknown(&mut self, keys: &[u32], unknown: &mut Vec<u32>) {
        either!(self, table => table.drain_unknown(keys, unknown));
    }

    fn take_keys(&mut self, keys: &[u32], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>> {
        either!(self, table => table.take_keys(keys, loaded, at))
    }

    fn take_scanned(&mut self, rows: &RestoredRows<'_>, at: &At, absent: &mut Bits) -> Result<(), Box<StateError>> {
        either!(self, table => table.take_scanned(rows, at, absent))
    }

    fn freeze_dirty(&mut self, clock: &Clock) {
        either!(self, table => StateRows::freeze_dirty(table, clock));
    }

    fn take_changes(&mut self) -> Vec<Change> {
        either!(self, table => table.take_changes())
    }

    fn is_clean(&self, key: u32) -> bool {
        either!(self, table => table.is_clean(key))
    }

    fn evict(&mut self, key: u32) {
        either!(self, table => table.evict(key));
    }

    fn clean(&mut self, at: &At, rows: usize) {
        either!(self, table => table.clean(at, rows));
    }

    fn drain_emptied(&mut self, keys: &mut Vec<u32>) {
        either!(self, table => table.drain_emptied(keys));
    }

    fn memory_bytes(&self) -> usize {
        either!(self, table => table.memory_bytes())
    }

    fn idle_bytes(&self, free_keys: usize) -> usize {
        either!(self, table => table.idle_bytes(free_keys))
    }

    fn entries(&self) -> usize {
        either!(self, table => StateRows::entries(table))
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
