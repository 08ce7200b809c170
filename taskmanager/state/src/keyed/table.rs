//! The rows of one state: found by an index, changed one by one, saved before they change while a snapshot runs.
//!
//! One table serves every type of state: what differs is how rows are found (`RowIndex`) and what stands in them (`Cell`). An
//! empty cell is an absent entry. Must never know what an operator does, nor where its snapshots go.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use levada_common::state_schema::StateSchema;

use crate::chunked::Chunked;
use crate::descriptor::{Ttl, TtlUpdate};
use crate::row_codec::RowLayout;
use crate::types::{StateType, TypeError};

use super::at::{At, Namespace};
use super::cell::{Cell, List};
use super::cold_rows::ColdRows;
use super::error::{StateError, StateName};
use super::frozen::Frozen;
use super::piece::UNTOUCHED;
use super::row_index::RowIndex;

/// What a table is of.
#[derive(Debug, Clone)]
pub struct TableInfo {
    pub(super) name: StateName,
    pub(super) schema: Arc<StateSchema>,
    pub(super) pieces: SchemaRef,
    pub(super) ttl: Option<Ttl>,
}

impl TableInfo {
    pub(super) fn new(name: StateName, schema: StateSchema, ttl: Option<Ttl>, max_parallelism: u32) -> Self {
        let schema = Arc::new(schema);
        let layout = RowLayout::new(Arc::clone(&schema), max_parallelism);
        Self { name, pieces: Arc::clone(layout.columns()), schema, ttl }
    }
}

impl TableInfo {
    /// What a type's writer or reader said, with the state's name.
    pub(super) fn of_type(&self, source: TypeError) -> Box<StateError> {
        Box::new(StateError::Type { name: self.name.clone(), source })
    }
}

/// The rows of a state.
pub(crate) struct Table<I: RowIndex, C: Cell> {
    pub(super) info: TableInfo,
    pub(super) index: I,
    pub(super) cells: Chunked<C>,
    /// When each row was touched last; only where the state has a TTL.
    pub(super) stamps: Option<Chunked<i64>>,
    pub(super) frozen: Frozen<I::MapKey, C>,
    /// Bytes behind pointers of cells.
    pub(super) heap_bytes: usize,
    /// Rows that are not empty.
    pub(super) entries: usize,
    /// Keys of rows that became empty since they were asked for.
    pub(super) emptied: Vec<u32>,
    /// Where the search for what has expired goes on.
    pub(super) cleaned: usize,
    /// What is known of the cold store behind the table; `None` where the table has everything.
    pub(super) cold: Option<ColdRows>,
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    pub(super) fn new(info: TableInfo, index: I) -> Self {
        let stamps = info.ttl.map(|_| Chunked::default());
        Self {
            info,
            index,
            cells: Chunked::default(),
            stamps,
            frozen: Frozen::default(),
            heap_bytes: 0,
            entries: 0,
            emptied: Vec::new(),
            cleaned: 0,
            cold: None,
        }
    }

    /// The entry's cell, if it has one that is not empty and has not expired.
    #[inline]
    pub(super) fn read(&mut self, at: &At, map_key: &I::MapKey) -> Option<&C> {
        let row = self.index.find(at, map_key)?;
        if self.stamps.is_some() {
            return self.read_stamped(at, row);
        }
        self.cells.get(row as usize).filter(|cell| !cell.is_empty())
    }

    /// The row's cell as it was when it was last looked at, whatever the time.
    #[inline]
    pub(super) fn row(&self, row: u32) -> Option<&C> {
        self.cells.get(row as usize).filter(|cell| !cell.is_empty())
    }

    /// Puts a cell in the place of what the entry has.
    ///
    /// Contract: `cell` is not empty.
    #[inline]
    pub(super) fn replace(&mut self, at: &At, map_key: &I::MapKey, cell: C) {
        let row = self.index.insert(at, map_key);
        self.cover(row);
        let bytes = cell.heap_bytes();
        let old = std::mem::replace(&mut self.cells[row as usize], cell);
        self.heap_bytes += bytes;
        self.heap_bytes -= old.heap_bytes();
        self.entries += usize::from(old.is_empty());
        if self.frozen.is_running() {
            self.save_old(row, old);
        }
        if self.stamps.is_some() {
            self.stamp(at, row);
        }
        self.changed(row);
    }

    /// Changes the entry's cell in place; it is empty where the entry is absent or has expired.
    #[inline]
    pub(super) fn update<R>(&mut self, at: &At, map_key: &I::MapKey, change: impl FnOnce(&mut C) -> R) -> R {
        let row = self.index.insert(at, map_key);
        self.cover(row);
        if self.stamps.is_some() {
            self.expire(at, row);
        }
        if self.frozen.is_running() {
            self.save_copy(row);
        }
        let cell = &mut self.cells[row as usize];
        let (was_empty, bytes) = (cell.is_empty(), cell.heap_bytes());
        let result = change(cell);
        self.heap_bytes += cell.heap_bytes();
        self.heap_bytes -= bytes;
        let is_empty = cell.is_empty();
        self.entries += usize::from(was_empty);
        if is_empty {
            self.vacate(row);
        } else if self.stamps.is_some() {
            self.stamp(at, row);
        }
        self.changed(row);
        result
    }

    /// Makes the entry absent.
    pub(super) fn remove(&mut self, at: &At, map_key: &I::MapKey) {
        let Some(row) = self.index.find(at, map_key) else { return };
        self.remove_row(row);
    }

    /// Makes the row's entry absent.
    pub(super) fn remove_row(&mut self, row: u32) {
        let Some(cell) = self.cells.get_mut(row as usize).filter(|cell| !cell.is_empty()) else { return };
        let old = std::mem::replace(cell, C::empty());
        self.heap_bytes -= old.heap_bytes();
        if self.frozen.is_running() {
            self.save_old(row, old);
        }
        self.vacate(row);
    }

    /// Makes the entries of the current key and namespace absent, with any map key.
    pub(super) fn clear(&mut self, at: &At) {
        let mut next = self.first_of(at);
        while let Some(row) = next {
            next = self.next_of(at, row);
            self.remove_row(row);
        }
    }

    /// The first row of the current key and namespace.
    pub(super) fn first_of(&self, at: &At) -> Option<u32> {
        self.seek(self.index.first(at.key), at.namespace)
    }

    /// The next row of the current key and namespace.
    pub(super) fn next_of(&self, at: &At, row: u32) -> Option<u32> {
        self.seek(self.index.next(row), at.namespace)
    }

    fn seek(&self, mut row: Option<u32>, namespace: Option<Namespace>) -> Option<u32> {
        if self.index.is_windowed() {
            while row.is_some_and(|row| self.index.namespace(row) != namespace) {
                row = row.and_then(|row| self.index.next(row));
            }
        }
        row
    }

    /// Whether the key has an entry.
    pub(super) fn has(&self, key: u32) -> bool {
        let mut row = self.index.first(key);
        while let Some(at) = row {
            if self.row(at).is_some() {
                return true;
            }
            row = self.index.next(at);
        }
        false
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
            + self.stamps.as_ref().map_or(0, Chunked::memory_bytes)
            + self.index.memory_bytes()
            + self.heap_bytes
            + self.frozen.memory_bytes()
            + self.emptied.capacity() * size_of::<u32>()
            + self.cold.as_ref().map_or(0, ColdRows::memory_bytes)
    }

    /// Bytes of rows that wait for other entries, where `free_keys` keys have been forgotten.
    pub(super) fn idle_bytes(&self, free_keys: usize) -> usize {
        let stamp = self.stamps.as_ref().map_or(0, |_| size_of::<i64>());
        self.index.free_rows(free_keys).min(self.cells.len()) * (size_of::<C>() + I::ROW_BYTES + stamp)
    }

    /// Makes sure that the row is there.
    #[inline]
    pub(super) fn cover(&mut self, row: u32) {
        if row as usize >= self.cells.len() {
            self.cells.grow_to(row as usize + 1, C::empty);
            if let Some(stamps) = &mut self.stamps {
                stamps.grow_to(row as usize + 1, || UNTOUCHED);
            }
        }
    }

    /// A row that had something has nothing now.
    fn vacate(&mut self, row: u32) {
        self.entries -= 1;
        self.forget_stamp(row);
        self.forget_stored(row);
        if self.cold.is_some() {
            // The row says that the entry is gone, until the store knows it.
            self.changed(row);
        } else {
            self.emptied.push(self.index.key(row));
            self.index.release(row);
        }
    }

    /// The row's list has gone: what the store has of it is another's.
    fn forget_stored(&mut self, row: u32) {
        let is_sending = self.frozen.is_running();
        if let Some(cold) = self.cold.as_mut().filter(|_| C::IS_LIST) {
            let is_behind = cold.lists_behind.take(row);
            cold.list(row).emptied(is_sending || is_behind);
        }
    }

    /// The elements of the row's list from `first` on have other times now.
    fn touch_items(&mut self, row: u32, first: usize, now: i64) {
        self.cells[row as usize].touch_from(first, now);
        if let Some(cold) = self.cold.as_mut().filter(|_| C::IS_LIST) {
            cold.list(row).changed_from(first);
        }
    }

    /// The store has another value of this row, or none.
    #[inline]
    pub(super) fn changed(&mut self, row: u32) {
        if let Some(cold) = &mut self.cold {
            cold.dirty.set(row);
        }
    }
}

/// Time to live.
impl<I: RowIndex, C: Cell> Table<I, C> {
    #[cold]
    pub(super) fn read_stamped(&mut self, at: &At, row: u32) -> Option<&C> {
        self.cells.get(row as usize).filter(|cell| !cell.is_empty())?;
        if self.is_expired(at, row) {
            return None;
        }
        if let Some(ttl) = self.info.ttl.filter(|ttl| ttl.update == TtlUpdate::OnReadAndWrite) {
            if self.frozen.is_running() {
                self.save_copy(row);
            }
            self.stamp(at, row);
            let stamp = self.stamps.as_ref().map_or(UNTOUCHED, |stamps| stamps[row as usize]);
            let cell = &self.cells[row as usize];
            let living = ttl.expired_up_to(at.clock.now(ttl.time)).map_or(0, |time| cell.first_after(time));
            self.touch_items(row, living, stamp);
            self.changed(row);
        }
        self.row(row)
    }

    /// Whether the row has expired. One whose stamp is not known is touched now.
    pub(super) fn is_expired(&mut self, at: &At, row: u32) -> bool {
        let (Some(ttl), Some(stamps)) = (self.info.ttl, &mut self.stamps) else { return false };
        let Some(stamp) = stamps.get_mut(row as usize) else { return false };
        if *stamp == UNTOUCHED {
            *stamp = at.clock.now(ttl.time);
            let stamp = *stamp;
            self.touch_items(row, 0, stamp);
            // A store would say the next time that it is not known.
            self.changed(row);
            return false;
        }
        ttl.is_expired(*stamp, at.clock.now(ttl.time))
    }

    /// As `is_expired`, for one who only looks.
    pub(super) fn has_expired(&self, at: &At, row: u32) -> bool {
        let (Some(ttl), Some(stamps)) = (self.info.ttl, &self.stamps) else { return false };
        let stamp = stamps.get(row as usize).copied().filter(|stamp| *stamp != UNTOUCHED);
        stamp.is_some_and(|stamp| ttl.is_expired(stamp, at.clock.now(ttl.time)))
    }

    /// The row was touched.
    #[inline]
    pub(super) fn stamp(&mut self, at: &At, row: u32) {
        if let (Some(ttl), Some(stamps)) = (self.info.ttl, &mut self.stamps) {
            let stamp = &mut stamps[row as usize];
            *stamp = (*stamp).max(at.clock.stamp(ttl.time));
        }
    }

    /// Empties the row's cell if it has expired; the row stays for what comes into it.
    pub(super) fn expire(&mut self, at: &At, row: u32) {
        if self.row(row).is_some() && self.is_expired(at, row) {
            let old = std::mem::replace(&mut self.cells[row as usize], C::empty());
            self.heap_bytes -= old.heap_bytes();
            self.entries -= 1;
            if self.frozen.is_running() {
                self.save_old(row, old);
            }
            self.forget_stamp(row);
            self.forget_stored(row);
            self.changed(row);
        }
    }

    /// The row belongs to a new entry, whose life begins with its first touch.
    pub(super) fn forget_stamp(&mut self, row: u32) {
        if let Some(stamps) = &mut self.stamps {
            stamps[row as usize] = UNTOUCHED;
        }
    }

    /// Removes what has expired among the next `rows` rows.
    pub(super) fn clean(&mut self, at: &At, rows: usize) {
        for _ in 0..rows.min(self.cells.len()) {
            if self.cleaned >= self.cells.len() {
                self.cleaned = 0;
            }
            let row = self.cleaned as u32;
            self.cleaned += 1;
            if self.row(row).is_some() && self.is_expired(at, row) {
                self.remove_row(row);
            }
        }
    }
}

/// Lists.
impl<I: RowIndex, T: StateType> Table<I, List<T>> {
    /// Adds an element behind the others.
    #[inline]
    pub(super) fn append(&mut self, at: &At, map_key: &I::MapKey, item: T) -> Result<(), Box<StateError>> {
        let row = self.index.insert(at, map_key);
        self.cover(row);
        if self.stamps.is_some() {
            self.expire(at, row);
            self.drop_expired(at, row);
        }
        let epoch = self.frozen.epoch();
        if self.frozen.must_save(row) {
            self.cells[row as usize].note_barrier(epoch);
        }
        if self.stamps.is_some() {
            self.stamp(at, row);
        }
        let stamp = self.stamps.as_ref().map(|stamps| stamps[row as usize]);
        let list = &mut self.cells[row as usize];
        if list.items().len() >= List::<T>::LEN_MAX {
            let (name, len, max) = (self.info.name.clone(), list.items().len(), List::<T>::LEN_MAX);
            return Err(Box::new(StateError::ListTooLong { name, len, max }));
        }
        self.entries += usize::from(list.is_empty());
        self.heap_bytes += list.push(item, stamp);
        self.changed(row);
        Ok(())
    }

    /// The elements that have not expired.
    pub(super) fn living(&mut self, at: &At, map_key: &I::MapKey) -> &[T] {
        let expired_up_to = self.info.ttl.and_then(|ttl| ttl.expired_up_to(at.clock.now(ttl.time)));
        match self.read(at, map_key) {
            None => &[],
            Some(list) => &list.items()[expired_up_to.map_or(0, |time| list.first_after(time))..],
        }
    }

    /// Drops a list's expired elements once they are the larger half, and no snapshot still needs them.
    fn drop_expired(&mut self, at: &At, row: u32) {
        let Some(time) = self.info.ttl.and_then(|ttl| ttl.expired_up_to(at.clock.now(ttl.time))) else { return };
        let expired = self.cells[row as usize].first_after(time);
        if expired == 0 || expired * 2 < self.cells[row as usize].items().len() || self.frozen.needs(row) {
            return;
        }
        let list = &mut self.cells[row as usize];
        let bytes: usize = if T::ON_HEAP { list.items()[..expired].iter().map(T::heap_bytes).sum() } else { 0 };
        list.drop_first(expired);
        self.heap_bytes -= bytes + expired * size_of::<i64>();
        if let Some(cold) = &mut self.cold {
            cold.list(row).dropped(expired);
        }
    }
}
