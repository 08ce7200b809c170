//! A row of columns for some groups, put in the place of the one before: what stands in no accumulator.
//!
//! Rows stand in a heap, so any type may be kept. Must never know what a column means.

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;

use crate::operators::rows::{NO_ROW, Part, RowHeap};

/// The rows, by group.
pub(super) struct GroupRows {
    types: Vec<DataType>,
    heap: RowHeap,
    /// By group: the row that it has.
    rows: Vec<u32>,
    /// By row: the group that it belongs to.
    owners: Vec<u32>,
}

impl GroupRows {
    /// Without groups; of columns of these types.
    pub(super) fn new(types: Vec<DataType>) -> Self {
        Self { types, heap: RowHeap::default(), rows: Vec::new(), owners: Vec::new() }
    }

    /// There are `groups` groups now; new ones have no row.
    pub(super) fn resize(&mut self, groups: usize) {
        self.rows.resize(groups, NO_ROW);
    }

    /// The number of a group's row; `NO_ROW` where it has none.
    pub(super) fn row(&self, group: u32) -> u32 {
        self.rows[group as usize]
    }

    /// The rows of these numbers; nulls where there is none.
    pub(super) fn columns(&self, rows: &[u32]) -> Vec<ArrayRef> {
        if rows.iter().all(|row| *row == NO_ROW) {
            return self.types.iter().map(|ty| new_null_array(ty, rows.len())).collect();
        }
        let part = Part::in_heap(&self.heap, rows);
        let columns = self.types.iter().enumerate();
        columns.map(|(at, ty)| part.column(at, ty, rows.len()).expect("rows of groups have one type")).collect()
    }

    /// Puts rows in the place of those that the groups have; each group once.
    pub(super) fn put(&mut self, groups: &[u32], columns: &[ArrayRef]) {
        if groups.is_empty() {
            return;
        }
        let mut numbers = Vec::with_capacity(groups.len());
        self.heap.push(columns, &mut numbers).expect("rows of groups have one type");
        for (group, number) in groups.iter().zip(numbers) {
            let before = std::mem::replace(&mut self.rows[*group as usize], number);
            if before != NO_ROW {
                self.heap.remove(before);
            }
            self.note_owner(number, *group);
        }
        self.tidy();
    }

    /// These groups have no row any more.
    pub(super) fn forget(&mut self, groups: impl Iterator<Item = u32>) {
        for group in groups {
            let before = std::mem::replace(&mut self.rows[group as usize], NO_ROW);
            if before != NO_ROW {
                self.heap.remove(before);
            }
        }
        self.tidy();
    }

    /// Numbers are given out from the least on: there is room for those that are, not for a whole block of a heap.
    fn note_owner(&mut self, row: u32, group: u32) {
        let place = row as usize;
        if place >= self.owners.len() {
            self.owners.resize(place + 1, NO_ROW);
        }
        self.owners[place] = group;
    }

    fn tidy(&mut self) {
        while let Some(moved) = self.heap.tidy().expect("rows of groups have one type") {
            for (before, now) in moved.before.into_iter().zip(moved.now) {
                let group = self.owners[before as usize];
                self.note_owner(now, group);
                self.rows[group as usize] = now;
            }
        }
    }

    /// Forgets every group.
    pub(super) fn clear(&mut self) {
        self.heap = RowHeap::default();
        self.rows.clear();
        self.owners.clear();
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.memory_bytes() + (self.rows.capacity() + self.owners.capacity()) * size_of::<u32>()
    }
}
