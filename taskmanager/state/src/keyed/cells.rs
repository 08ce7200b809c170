//! The rows of states that are no maps, by key alone or by key and window, under one roof.

use crate::bits::Bits;
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
use super::list_ends::ListBehind;
use super::restore::RestoredRows;
use super::row_index::{ByEntry, ByKey};
use super::rows::StateRows;
use super::table::{Table, TableInfo};

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

    /// See `Table::fetch_end`.
    #[inline]
    pub(super) fn fetch_end(&mut self, here: &mut Here<'_>) -> Result<(), Box<StateError>> {
        either!(self, table => table.fetch_end(here, &()))
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

    fn unknown_windows(&self, keys: &[u32], windows: &[Namespace], at: &At) -> Vec<u32> {
        either!(self, table => table.unknown_windows(keys, windows, at))
    }

    fn take_windows(&mut self, keys: &[u32], windows: &[Namespace], loaded: &Loaded, at: &At) -> Result<(), Box<StateError>> {
        either!(self, table => table.take_windows(keys, windows, loaded, at))
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

    fn forget_known(&mut self, keys: &[u32]) {
        either!(self, table => table.forget_known(keys));
    }

    fn entries_at_once(&self) -> usize {
        either!(self, table => table.entries_at_once())
    }

    fn holds_lists(&self) -> bool {
        C::IS_LIST
    }

    fn ends_are_enough(&mut self) -> bool {
        either!(self, table => table.ends_are_enough())
    }

    fn take_ends(&mut self, keys: &[u32], loaded: &Loaded) -> Result<(), Box<StateError>> {
        either!(self, table => table.take_ends(keys, loaded))
    }

    fn lists_behind(&self, keys: Option<&[u32]>, windows: &[Namespace], at: &At) -> Vec<ListBehind> {
        either!(self, table => table.lists_behind(keys, windows, at))
    }

    fn take_heads(&mut self, lists: &[ListBehind], loaded: &Loaded) -> Result<(), Box<StateError>> {
        either!(self, table => table.take_heads(lists, loaded))
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

    fn clear(&mut self, at: &At) {
        either!(self, table => StateRows::clear(table, at));
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
