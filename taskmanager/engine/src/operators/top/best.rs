//! The best rows of each key: an index of keys, a heap of rows, and for each key a list of its rows, the worst one first.
//!
//! A row that is no better than the worst of a full list is turned away by one comparison. Must never know what becomes of rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array};
use arrow::compute::take;
use arrow::error::ArrowError;
use levada_state::key_index::KeyIndex;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operators::rows::{NO_ROW, RowHeap, RowLists};

/// The rows.
pub(super) struct Best {
    index: KeyIndex,
    pub(super) heap: RowHeap,
    /// Of each key its rows, the worst first.
    pub(super) lists: RowLists,
    /// Keys that may have no row any more.
    emptied: Vec<u32>,
    ids: Vec<u32>,
}

/// Rows that may be among the best of their keys: they are in the heap and in no list yet.
pub(super) struct Candidates {
    /// Their places among the rows that came.
    pub(super) rows: Vec<u32>,
    pub(super) keys: Vec<u32>,
    /// Their numbers in the heap.
    pub(super) numbers: Vec<u32>,
    pub(super) orders: BinaryArray,
}

impl Best {
    pub(super) fn new(shape: &Shape) -> Self {
        let (heap, lists) = (RowHeap::default(), RowLists::default());
        Self { index: KeyIndex::new(&shape.key_types), heap, lists, emptied: Vec::new(), ids: Vec::new() }
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.memory_bytes() + self.lists.memory_bytes() + self.index.memory_bytes()
    }

    /// Of rows with these keys, columns and orders, those that may enter. `stamps` stand behind the order: when they arrived, and
    /// since when they stand where that matters.
    ///
    /// Contract: `enter` follows for each of them, in this order.
    pub(super) fn candidates(
        &mut self,
        shape: &Shape,
        keys: &[ArrayRef],
        columns: &[ArrayRef],
        stamps: &[ArrayRef],
    ) -> Result<Option<Candidates>, EngineError> {
        let orders = shape.orders(columns, &stamps[0])?;
        self.ids.clear();
        self.index.intern(keys, orders.len(), &mut self.ids);
        self.index.drain_reused(&mut Vec::new());
        self.lists.resize(self.index.len(), self.heap.numbers());
        let may_enter = |row: &u32| self.may_enter(shape, self.ids[*row as usize], orders.value(*row as usize));
        let rows: Vec<u32> = (0..orders.len() as u32).filter(may_enter).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let keys = rows.iter().map(|row| self.ids[*row as usize]).collect();
        let orders: ArrayRef = Arc::new(orders);
        let (numbers, orders) = self.push(shape, columns, orders, stamps, &rows).map_err(|source| shape.kernel(source))?;
        Ok(Some(Candidates { rows, keys, numbers, orders }))
    }

    /// Puts these rows into the heap.
    fn push(
        &mut self,
        shape: &Shape,
        columns: &[ArrayRef],
        orders: ArrayRef,
        stamps: &[ArrayRef],
        rows: &[u32],
    ) -> Result<(Vec<u32>, BinaryArray), ArrowError> {
        let places = UInt32Array::from(rows.to_vec());
        let orders = take(&orders, &places, None)?;
        let taken = |column: &ArrayRef| take(column, &places, None);
        let mut kept = shape.stored(columns).iter().map(taken).collect::<Result<Vec<_>, _>>()?;
        kept.push(Arc::clone(&orders));
        kept.extend(stamps.iter().map(taken).collect::<Result<Vec<_>, _>>()?);
        let mut numbers = Vec::with_capacity(rows.len());
        self.heap.push(&kept, &mut numbers)?;
        self.lists.resize(0, self.heap.numbers());
        Ok((numbers, orders.as_binary::<i32>().clone()))
    }

    /// Puts a row of the heap, of this order, among the key's best, or takes it out again.
    pub(super) fn enter(&mut self, shape: &Shape, key: u32, row: u32, order: &[u8]) {
        if !self.may_enter(shape, key, order) {
            return self.heap.remove(row);
        }
        let (mut behind, mut at) = (NO_ROW, self.lists.first(key));
        while at != NO_ROW && order < self.order_of(shape, at) {
            (behind, at) = (at, self.lists.after(at));
        }
        self.lists.insert(key, behind, row);
        // One more that is equal to the worst pushes none out.
        if self.lists.len(key) > shape.limit && !(shape.with_ties && self.are_equal(shape, row, self.lists.first(key))) {
            self.drop_worst(shape, key);
        }
    }

    /// Lets the worst row of a list go that has one too many; with ties all that are equal to it, unless there would be too few.
    fn drop_worst(&mut self, shape: &Shape, key: u32) {
        let worst = self.lists.first(key);
        let mut count = 1;
        if shape.with_ties {
            let mut at = self.lists.after(worst);
            while at != NO_ROW && self.are_equal(shape, at, worst) {
                count += 1;
                at = self.lists.after(at);
            }
            if self.lists.len(key) - count < shape.limit {
                return;
            }
        }
        for _ in 0..count {
            let row = self.lists.first(key);
            self.lists.remove(row);
            self.heap.remove(row);
        }
    }

    /// Takes out a row whose time is over, or that has gone out.
    pub(super) fn remove(&mut self, row: u32) {
        self.emptied.push(self.lists.key(row));
        self.lists.remove(row);
        self.heap.remove(row);
    }

    /// Whether two rows of the heap are equal but for when they arrived.
    pub(super) fn are_equal(&self, shape: &Shape, one: u32, other: u32) -> bool {
        shape.without_arrival(self.order_of(shape, one)) == shape.without_arrival(self.order_of(shape, other))
    }

    /// What a row of the heap is ordered by.
    fn order_of(&self, shape: &Shape, row: u32) -> &[u8] {
        let (columns, place) = self.heap.at(row);
        columns[shape.order_place].as_binary::<i32>().value(place)
    }

    /// Whether a row would be among the key's best.
    fn may_enter(&self, shape: &Shape, key: u32, order: &[u8]) -> bool {
        if self.lists.len(key) < shape.limit {
            return true;
        }
        let worst = self.order_of(shape, self.lists.first(key));
        match shape.with_ties {
            true => shape.without_arrival(order) <= shape.without_arrival(worst),
            false => order < worst,
        }
    }

    /// Gives back what rows that are gone held, and keys without rows.
    ///
    /// Contract: nothing of the rows that are gone is on its way out.
    pub(super) fn tidy(&mut self, shape: &Shape) -> Result<(), EngineError> {
        if let Some(moved) = self.heap.tidy().map_err(|source| shape.kernel(source))? {
            self.lists.resize(0, self.heap.numbers());
            moved.before.into_iter().zip(moved.now).for_each(|(before, now)| self.lists.renumber(before, now));
        }
        self.emptied.sort_unstable();
        self.emptied.dedup();
        for key in std::mem::take(&mut self.emptied) {
            if self.lists.len(key) == 0 {
                self.index.remove(key);
            }
        }
        Ok(())
    }
}
