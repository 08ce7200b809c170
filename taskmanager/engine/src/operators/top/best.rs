//! The best rows of each key: an index of keys, a heap of rows, and for each key a list of its rows, the worst one first.
//!
//! A row that is no better than the worst of a full list is turned away by one comparison. Must never know what becomes of rows.

mod before_store;
mod windows;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;
use levada_state::key_index::KeyIndex;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operators::rows::{HeapsByKey, KeyedRowStore, NO_ROW, RowHeap, RowLists, StoredRows};
use crate::operators::window::Window;
use windows::KeysByWindow;

pub(super) use before_store::BestOf;

/// The rows.
pub(super) struct Best {
    index: KeyIndex,
    pub(super) heap: RowHeap,
    /// Of each key its rows, the worst first.
    pub(super) lists: RowLists,
    /// Of each window its keys that have rows, where keys are of windows.
    pub(super) windows: KeysByWindow,
    /// Keys that may have no row any more.
    emptied: Vec<u32>,
    /// The keys of the rows that came last.
    pub(super) ids: Vec<u32>,
    /// The number of the row that arrives next: greater than that of any row of a key in memory.
    arrivals: i64,
    /// What the store has of the rows, where there is one.
    stored: Option<StoredRows>,
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

/// When rows arrived, and since when they stand where that matters.
pub(super) struct Stamps {
    pub(super) arrivals: ArrayRef,
    pub(super) since: Option<ArrayRef>,
}

impl Best {
    pub(super) fn new(shape: &Shape) -> Self {
        let (heap, lists) = (RowHeap::default(), RowLists::default());
        let (index, emptied, ids) = (KeyIndex::new(&shape.key_types), Vec::new(), Vec::new());
        Self { index, heap, lists, windows: KeysByWindow::default(), emptied, ids, arrivals: 0, stored: None }
    }

    /// The numbers under which further rows arrive.
    pub(super) fn arrive(&mut self, rows: usize) -> ArrayRef {
        let arrivals = self.arrivals..self.arrivals + rows as i64;
        self.arrivals = arrivals.end;
        Arc::new(Int64Array::from_iter_values(arrivals))
    }

    /// Rows that arrived under these numbers are there.
    pub(super) fn note_arrivals(&mut self, arrivals: &ArrayRef) {
        let last = arrivals.as_primitive::<Int64Type>().values().iter().max();
        self.arrivals = self.arrivals.max(last.map_or(0, |last| last + 1));
    }

    /// Appends the number of each of these keys, `ABSENT` where it is not there.
    pub(super) fn find(&mut self, of: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.index.find(of, rows, ids);
    }

    /// Number of keys that were made.
    pub(super) fn keys(&self) -> usize {
        self.index.len()
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let stored = self.stored.as_ref().map_or(0, StoredRows::memory_bytes);
        let keys = self.index.memory_bytes() + self.windows.memory_bytes();
        self.heap.memory_bytes() + self.lists.memory_bytes() + keys + stored
    }

    /// Of rows of these keys, with these columns, those that may enter.
    ///
    /// Contract: `enter` follows for each of them, in this order.
    pub(super) fn candidates(
        &mut self,
        shape: &Shape,
        of: &[ArrayRef],
        columns: &[ArrayRef],
        stamps: &Stamps,
    ) -> Result<Option<Candidates>, EngineError> {
        let orders = shape.orders(columns, &stamps.arrivals)?;
        self.ids.clear();
        self.index.intern(of, orders.len(), &mut self.ids);
        self.index.drain_reused(&mut Vec::new());
        self.lists.resize(self.index.len(), self.heap.numbers());
        let may_enter = |row: &u32| self.may_enter(shape, self.ids[*row as usize], orders.value(*row as usize));
        let rows: Vec<u32> = (0..orders.len() as u32).filter(may_enter).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let keys = rows.iter().map(|row| self.ids[*row as usize]).collect();
        let orders: ArrayRef = Arc::new(orders);
        let pushed = self.push(shape, (of, columns), orders, stamps, &rows);
        let (numbers, orders) = pushed.map_err(|source| shape.kernel(source))?;
        Ok(Some(Candidates { rows, keys, numbers, orders }))
    }

    /// Puts these rows into the heap.
    fn push(
        &mut self,
        shape: &Shape,
        (of, columns): (&[ArrayRef], &[ArrayRef]),
        orders: ArrayRef,
        stamps: &Stamps,
        rows: &[u32],
    ) -> Result<(Vec<u32>, BinaryArray), ArrowError> {
        let places = UInt32Array::from(rows.to_vec());
        let orders = take(&orders, &places, None)?;
        let taken = |column: &ArrayRef| take(column, &places, None);
        let mut kept = shape.stored(columns).iter().map(taken).collect::<Result<Vec<_>, _>>()?;
        kept.push(Arc::clone(&orders));
        kept.push(taken(&stamps.arrivals)?);
        if let Some(stored) = &mut self.stored {
            kept.push(stored.numbers(rows.len()));
            // A store tells keys of different windows apart.
            kept.extend(shape.window_of_key(of).iter().map(taken).collect::<Result<Vec<_>, _>>()?);
        }
        kept.extend(stamps.since.as_ref().map(taken).transpose()?);
        let mut numbers = Vec::with_capacity(rows.len());
        self.heap.push(&kept, &mut numbers)?;
        if let Some(stored) = &mut self.stored {
            stored.came(&numbers);
        }
        self.lists.resize(0, self.heap.numbers());
        Ok((numbers, orders.as_binary::<i32>().clone()))
    }

    /// Puts those of these rows that are among the best of their keys there, which are of this window.
    pub(super) fn enter_all(&mut self, shape: &Shape, window: Window, candidates: Candidates) {
        let Candidates { keys, numbers, orders, .. } = candidates;
        for (at, (key, number)) in keys.into_iter().zip(numbers).enumerate() {
            if self.lists.len(key) == 0 {
                self.windows.add(window, key);
            }
            self.enter(shape, key, number, orders.value(at));
        }
    }

    /// Puts a row of the heap, of this order, among the key's best, or takes it out again.
    pub(super) fn enter(&mut self, shape: &Shape, key: u32, row: u32, order: &[u8]) {
        if !self.may_enter(shape, key, order) {
            return self.take_out(row);
        }
        self.insert(shape, key, row, order);
        // One more that is equal to the worst pushes none out.
        if self.lists.len(key) > shape.limit && !(shape.with_ties && self.are_equal(shape, row, self.lists.first(key))) {
            self.drop_worst(shape, key);
        }
    }

    /// Puts a row into the key's list, by its order.
    fn insert(&mut self, shape: &Shape, key: u32, row: u32, order: &[u8]) {
        let (mut behind, mut at) = (NO_ROW, self.lists.first(key));
        while at != NO_ROW && order < self.order_of(shape, at) {
            (behind, at) = (at, self.lists.after(at));
        }
        self.lists.insert(key, behind, row);
    }

    /// Takes a row out of the heap, of which the store is told.
    fn take_out(&mut self, row: u32) {
        self.heap.remove(row);
        if let Some(stored) = &mut self.stored {
            stored.went(row);
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
            self.take_out(row);
        }
    }

    /// Takes out a row that has gone out.
    pub(super) fn remove(&mut self, row: u32) {
        self.emptied.push(self.lists.key(row));
        self.lists.remove(row);
        self.take_out(row);
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

    /// Gives back what rows that are gone held, and keys without rows; a store takes care of those by itself.
    ///
    /// Contract: nothing of the rows that are gone is on its way out.
    pub(super) fn tidy(&mut self, shape: &Shape, store: Option<&mut KeyedRowStore>) -> Result<(), EngineError> {
        self.tidy_heap().map_err(|source| shape.kernel(source))?;
        let emptied = std::mem::take(&mut self.emptied);
        BestOf { shape, best: self, sweep: None }.forget_emptied(emptied, store);
        Ok(())
    }

    /// Likewise behind rows of a window that is over: its keys go with them, whatever the store has still to hear.
    pub(super) fn tidy_over(&mut self, shape: &Shape, store: Option<&mut KeyedRowStore>) -> Result<(), EngineError> {
        let Some(store) = store else { return self.tidy(shape, None) };
        self.tidy_heap().map_err(|source| shape.kernel(source))?;
        let over = std::mem::take(&mut self.emptied);
        store.forget_over(&mut BestOf { shape, best: self, sweep: None }, over);
        Ok(())
    }

    fn tidy_heap(&mut self) -> Result<(), ArrowError> {
        if let Some(stored) = self.stored.as_mut().filter(|_| self.heap.is_untidy()) {
            stored.collect(&self.heap)?;
        }
        let Some(moved) = self.heap.tidy()? else { return Ok(()) };
        self.lists.resize(0, self.heap.numbers());
        for (before, now) in moved.before.into_iter().zip(moved.now) {
            self.lists.renumber(before, now);
            if let Some(stored) = &mut self.stored {
                stored.moved(before, now);
            }
        }
        Ok(())
    }
}
