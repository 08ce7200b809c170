//! The rows of groups, of one input: in a heap, linked by group in the order in which they came.
//!
//! That order is the heap's, and so what it was when a snapshot has been restored. Must never know what a group is.

use arrow::array::ArrayRef;
use arrow::error::ArrowError;

use crate::operators::rows::{Marks, NO_ROW, RowHeap, RowLists, Saving};

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
}

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
            rows[start..].sort_by_key(|row| self.heap.came(*row));
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
    }

    /// Removes all rows of a group.
    pub(super) fn clear(&mut self, group: u32) {
        let mut rows = Vec::with_capacity(self.len(group));
        self.rows_of(group, &mut rows);
        rows.into_iter().for_each(|row| self.remove(row));
        self.mixed.clear(group);
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
        if let Some(moved) = self.heap.tidy()? {
            self.lists.resize(0, self.heap.numbers());
            for (before, now) in moved.before.into_iter().zip(moved.now) {
                self.lists.renumber(before, now);
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
        self.heap.memory_bytes()
            + self.lists.memory_bytes()
            + self.lasts.capacity() * size_of::<u32>()
            + self.mixed.memory_bytes()
    }
}
