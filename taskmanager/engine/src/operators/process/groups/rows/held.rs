//! The rows of groups, of one input: in a heap, linked by group in the order in which they came.
//!
//! That order is the heap's, and so what it was when a snapshot has been restored; in front of a store it is that of the rows' numbers.
//! There a group's older rows may have left memory, and the newer ones not. Must never know what a group is.

use std::collections::HashSet;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;

use crate::operators::rows::{self, EntryPlaces, Marks, NO_ROW, Part, RowHeap, RowLists, Saving, StoredRows, Taken};

/// The rows.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) heap: RowHeap,
    lists: RowLists,
    /// Of each group: its last row.
    lasts: Vec<u32>,
    /// Groups made of several, whose rows do not stand in the order in which they came.
    mixed: Marks,
    pub(super) saving: Saving,
    /// What a store has of them, where they stand in front of one.
    pub(super) stored: Option<StoredRows>,
}

/// Columns that rows have behind those that are kept, in front of a store: start and end of what the window is there, and their numbers.
pub(super) const BESIDE_KEPT: usize = 3;

impl Held {
    /// Takes rows in, which belong to no group yet, and appends their numbers; there are so many groups.
    pub(super) fn push(&mut self, columns: &[ArrayRef], groups: usize, numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        self.heap.push(columns, numbers)?;
        self.make_room(groups);
        Ok(())
    }

    fn make_room(&mut self, groups: usize) {
        self.lists.resize(groups, self.heap.numbers());
        self.lasts.resize(groups.max(self.lasts.len()), NO_ROW);
        self.mixed.resize(groups);
    }

    /// Makes a row the last one of a group.
    #[inline]
    pub(super) fn append(&mut self, group: u32, row: u32) {
        let last = std::mem::replace(&mut self.lasts[group as usize], row);
        self.lists.insert(group, last, row);
    }

    /// Number of a group's rows.
    pub(super) fn len(&self, group: u32) -> usize {
        if (group as usize) < self.lasts.len() { self.lists.len(group) as usize } else { 0 }
    }

    /// Rows stand in front of a store from now on.
    pub(super) fn stand_before(&mut self, stored: StoredRows) {
        self.heap.stand_before_store();
        self.stored = Some(stored);
    }

    /// Takes rows in, which belong to no group yet, with columns beside those that are kept, and appends their numbers.
    ///
    /// Contract: they stand in front of a store, which does not have them there.
    pub(super) fn push_stored(&mut self, columns: &[ArrayRef], groups: usize, numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        let first = numbers.len();
        self.push(columns, groups, numbers)?;
        if let Some(stored) = &mut self.stored {
            stored.came(&numbers[first..]);
        }
        Ok(())
    }

    /// Puts a row into a group, some of whose rows may have come later.
    pub(super) fn join(&mut self, group: u32, row: u32) {
        if self.lasts[group as usize] != NO_ROW {
            self.mixed.set(group);
        }
        self.append(group, row);
    }

    /// What is less for the row that came earlier.
    fn came(&self, row: u32) -> (u64, usize) {
        if self.stored.is_none() {
            return self.heap.came(row);
        }
        let number = self.number(row);
        ((number as u64) ^ (1 << 63), 0)
    }

    /// A row's number, in front of a store.
    fn number(&self, row: u32) -> i64 {
        let (columns, place) = self.heap.at(row);
        columns[columns.len() - 1].as_primitive::<Int64Type>().value(place)
    }

    /// Appends a group's rows, in the order in which they came.
    pub(super) fn rows_of(&self, group: u32, rows: &mut Vec<u32>) {
        if self.len(group) == 0 {
            return;
        }
        let (start, mut at) = (rows.len(), self.lists.first(group));
        while at != NO_ROW {
            rows.push(at);
            at = self.lists.after(at);
        }
        if self.mixed.has(group) {
            // A few runs, each in order: a sort that keeps them goes over them once.
            rows[start..].sort_by_cached_key(|row| self.came(*row));
        }
    }

    /// Removes a row, if it is there; it can be read until `tidy`.
    pub(super) fn remove(&mut self, row: u32) {
        if !self.heap.has(row) {
            return;
        }
        let group = self.lists.key(row);
        if self.lasts[group as usize] == row {
            self.lasts[group as usize] = self.lists.before(row);
        }
        self.lists.remove(row);
        self.heap.remove(row);
        if let Some(stored) = &mut self.stored {
            stored.went(row);
        }
    }

    /// Removes all rows of a group.
    pub(super) fn clear(&mut self, group: u32) {
        let mut rows = Vec::with_capacity(self.len(group));
        self.rows_of(group, &mut rows);
        rows.into_iter().for_each(|row| self.remove(row));
        self.mixed.clear(group);
    }

    /// Whether a group has rows here that the store has too.
    pub(super) fn has_stored(&self, group: u32) -> bool {
        let Some(stored) = self.stored.as_ref().filter(|_| self.len(group) > 0) else { return false };
        let first = self.lists.first(group);
        // The oldest ones were sent first, where rows stand as they came.
        stored.is_stored(first) || (self.mixed.has(group) && self.links(group).any(|row| stored.is_stored(row)))
    }

    /// A group's rows as they are linked.
    fn links(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.lists.first(group)).filter(|first| *first != NO_ROW);
        std::iter::successors(first, |row| Some(self.lists.after(*row)).filter(|next| *next != NO_ROW))
    }

    /// Takes the rows of a group out of memory that the store has.
    pub(super) fn forget_stored(&mut self, group: u32) {
        if self.len(group) == 0 {
            return;
        }
        let Some(stored) = &self.stored else { return };
        let is_mixed = self.mixed.has(group);
        let rows = self.links(group).take_while(|row| is_mixed || stored.is_stored(*row));
        let rows: Vec<u32> = rows.filter(|row| stored.is_stored(*row)).collect();
        for row in rows {
            if self.lasts[group as usize] == row {
                self.lasts[group as usize] = self.lists.before(row);
            }
            self.lists.remove(row);
            self.heap.remove(row);
            if let Some(stored) = &mut self.stored {
                stored.forgot(row);
            }
        }
        if self.len(group) == 0 {
            self.mixed.clear(group);
        }
    }

    /// Takes rows in that the store has, each into its group; those that are here already are left out. There are so many groups.
    pub(super) fn take_back(&mut self, taken: Taken, groups: usize) -> Result<(), ArrowError> {
        let Taken { keys: of_groups, columns, .. } = taken;
        let mut columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
        let numbers = columns[columns.len() - 1].as_primitive::<Int64Type>().values().clone();
        let (mut rows, mut here, mut group) = (Vec::with_capacity(numbers.len()), HashSet::new(), NO_ROW);
        for (at, (of, number)) in of_groups.iter().zip(&numbers).enumerate() {
            if *of != group {
                group = *of;
                here.clear();
                if self.len(group) > 0 {
                    here.extend(self.links(group).map(|row| self.number(row)));
                }
            }
            if !here.contains(number) {
                rows.push(at as u32);
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        if rows.len() < numbers.len() {
            let part = Part::of(&columns, &rows);
            let kept = columns.iter().enumerate().map(|(at, column)| part.column(at, column.data_type(), rows.len()));
            columns = kept.collect::<Result<_, _>>()?;
        }
        let mut numbers = Vec::with_capacity(rows.len());
        self.push(&columns, groups, &mut numbers)?;
        if let Some(stored) = &mut self.stored {
            stored.is_there(&numbers);
        }
        rows.iter().zip(numbers).for_each(|(at, number)| self.join(of_groups[*at as usize], number));
        Ok(())
    }

    /// Puts all rows of a group among those of another, whose window is `window` in the store: they are others there.
    pub(super) fn merge_stored(&mut self, into: u32, from: u32, window: [ArrayRef; 2]) -> Result<(), ArrowError> {
        let mut rows = Vec::with_capacity(self.len(from));
        self.rows_of(from, &mut rows);
        if rows.is_empty() {
            return Ok(());
        }
        let part = Part::in_heap(&self.heap, &rows);
        let (first, _) = self.heap.at(rows[0]);
        let columns = first.iter().enumerate().map(|(at, column)| part.column(at, column.data_type(), rows.len()));
        let mut columns = columns.collect::<Result<Vec<_>, _>>()?;
        let at = columns.len() - BESIDE_KEPT;
        columns.splice(at..at + 2, window);
        self.clear(from);
        let mut numbers = Vec::with_capacity(rows.len());
        self.push_stored(&columns, into.max(from) as usize + 1, &mut numbers)?;
        numbers.into_iter().for_each(|row| self.join(into, row));
        Ok(())
    }

    /// Puts all rows of a group among those of another.
    pub(super) fn merge(&mut self, into: u32, from: u32) {
        self.make_room(into.max(from) as usize + 1);
        let mut rows = Vec::with_capacity(self.len(from));
        self.rows_of(from, &mut rows);
        let last = self.lasts[into as usize];
        if let Some(first) = rows.first().filter(|_| last != NO_ROW)
            && self.heap.came(*first) < self.heap.came(last)
        {
            self.mixed.set(into);
        }
        for row in rows {
            self.lists.remove(row);
            self.append(into, row);
        }
        self.lasts[from as usize] = NO_ROW;
        self.mixed.clear(from);
    }

    /// Gives blocks that are mostly empty back; rows that were removed cannot be read afterwards.
    pub(super) fn tidy(&mut self) -> Result<(), ArrowError> {
        if let Some(stored) = &mut self.stored {
            stored.collect(&self.heap)?;
        }
        if let Some(moved) = self.heap.tidy()? {
            self.lists.resize(0, self.heap.numbers());
            for (before, now) in moved.before.into_iter().zip(moved.now) {
                self.lists.renumber(before, now);
                if let Some(stored) = &mut self.stored {
                    stored.moved(before, now);
                }
                let last = &mut self.lasts[self.lists.key(now) as usize];
                if *last == before {
                    *last = now;
                }
            }
        }
        Ok(())
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.memory_bytes() + self.lists.link_bytes() + self.group_bytes()
    }

    /// Bytes that groups hold, whether they have rows here or not.
    pub(super) fn group_bytes(&self) -> usize {
        self.lists.memory_bytes() - self.lists.link_bytes() + self.lasts.capacity() * size_of::<u32>() + self.mixed.memory_bytes()
    }

    /// Bytes that rows hold in front of a store.
    pub(super) fn row_bytes(&self) -> rows::Held {
        let of_store = self.stored.as_ref().map_or(0, StoredRows::memory_bytes);
        rows::Held {
            bytes: self.heap.memory_bytes() + self.lists.link_bytes() + of_store,
            idle_bytes: self.heap.idle_bytes() + self.lists.idle_bytes(self.heap.len(), usize::MAX),
        }
    }
}

/// Where the columns of an entry of a store stand, where rows have these columns of the key among so many that are kept.
pub(super) fn entry_places(keys: Vec<usize>, kept: usize) -> EntryPlaces {
    let values = (0..kept).filter(|at| !keys.contains(at)).map(Some).collect();
    EntryPlaces { keys, window: Some([kept, kept + 1]), values, number: kept + 2, since: None, width: kept + BESIDE_KEPT }
}
