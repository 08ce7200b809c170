//! What a batch did to the best rows of its keys, on its way out.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array, Int64Array};
use arrow::record_batch::RecordBatch;
use levada_common::types::RowKind;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operators::pending::Pending;
use crate::operators::rows::{Marks, NO_ROW, Part, RowHeap, RowLists};

/// A key that a batch touched: where its rows before the batch stand among `before`.
#[derive(Debug)]
struct Touched {
    key: u32,
    start: usize,
    rows: usize,
}

/// The changes of a batch.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Rows that go out as they came.
    pub(super) rows: Pending,
    touched: Vec<Touched>,
    /// Rows of touched keys before the batch, the worst of each first.
    before: Vec<u32>,
    /// Keys among the touched.
    is_touched: Marks,
    /// Rows that came with this batch.
    is_new: Marks,
    new: Vec<u32>,
    next: usize,
    /// Made of the touched keys before `next`, and not out yet.
    made: Made,
}

/// Changes as columns: what happened, to which row, at which place.
#[derive(Debug, Default)]
struct Made {
    ops: Vec<i8>,
    rows: Vec<u32>,
    places: Vec<i64>,
    out: usize,
}

impl Made {
    fn push(&mut self, op: RowKind, row: u32, place: i64) {
        self.ops.push(op as i8);
        self.rows.push(row);
        self.places.push(place);
    }
}

impl Changes {
    /// A row with this number is about to enter the rows of a key, which are still as `lists` has them.
    pub(super) fn touch(&mut self, key: u32, row: u32, lists: &RowLists) {
        self.is_touched.resize(key as usize + 1);
        self.is_new.resize(row as usize + 1);
        if self.is_touched.set(key) {
            let start = self.before.len();
            let mut at = lists.first(key);
            while at != NO_ROW {
                self.before.push(at);
                at = lists.after(at);
            }
            self.touched.push(Touched { key, start, rows: self.before.len() - start });
        }
        self.is_new.set(row);
        self.new.push(row);
    }

    /// The next changes, at most `rows_max`; `None` at the end, and the batch is forgotten.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        heap: &RowHeap,
        lists: &RowLists,
        rows_max: usize,
    ) -> Result<Option<RecordBatch>, EngineError> {
        if self.made.out == self.made.ops.len() {
            self.made = Made::default();
        }
        while self.made.ops.len() < rows_max && self.next < self.touched.len() {
            self.make(shape, heap, lists);
            self.next += 1;
        }
        let (start, end) = (self.made.out, self.made.ops.len().min(self.made.out + rows_max));
        if start == end {
            self.forget();
            return Ok(None);
        }
        self.made.out = end;
        let ops: ArrayRef = Arc::new(Int8Array::from(self.made.ops[start..end].to_vec()));
        let places: ArrayRef = Arc::new(Int64Array::from(self.made.places[start..end].to_vec()));
        shape.changes(ops, &Part::in_heap(heap, &self.made.rows[start..end]), places).map(Some)
    }

    /// Makes the changes of the next touched key.
    fn make(&mut self, shape: &Shape, heap: &RowHeap, lists: &RowLists) {
        let Touched { key, start, rows } = self.touched[self.next];
        let before = &self.before[start..start + rows];
        if !shape.has_places() && shape.limit > 1 {
            before.iter().filter(|row| !heap.has(**row)).for_each(|row| self.made.push(RowKind::Delete, *row, 0));
            let mut at = lists.first(key);
            while at != NO_ROW {
                if self.is_new.has(at) {
                    self.made.push(RowKind::Insert, at, 0);
                }
                at = lists.after(at);
            }
            return;
        }
        // The lists are the worst first, and a row only ever pushes others down: the first place is the last of each.
        let (now, mut at) = (lists.len(key) as usize, lists.first(key));
        for place in (0..now).rev() {
            let was = before.len().checked_sub(place + 1).map(|at| before[at]);
            let place = place as i64 + 1;
            match was {
                None => self.made.push(RowKind::Insert, at, place),
                Some(was) if was == at => {}
                Some(was) => {
                    if shape.changelog_full {
                        self.made.push(RowKind::UpdateBefore, was, place);
                    }
                    self.made.push(RowKind::UpdateAfter, at, place);
                }
            }
            at = lists.after(at);
        }
    }

    fn forget(&mut self) {
        self.touched.iter().for_each(|touched| self.is_touched.clear(touched.key));
        self.new.iter().for_each(|row| self.is_new.clear(*row));
        self.touched.clear();
        self.before.clear();
        self.new.clear();
        self.next = 0;
    }
}
