//! Rows by key: heaps whose rows a store has below their key, each by a number that it keeps.
//!
//! Must never know what a column means, nor what becomes of rows.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::record_batch::RecordBatch;
use levada_state::cold::{Addresses, Change, ColdStateId};
use levada_state::key_index::KeyIndex;
use levada_state::snapshot::StateMeta;

use super::{ByKey, Found, Held, KeyedRowStore, Marks, RowHeap, StoredRows};
use crate::error::EngineError;

/// Heaps of rows that share their keys.
///
/// Contract: what `StoredRows` says of who tells it what.
pub(in crate::operators) trait HeapsByKey {
    /// The keys.
    fn index(&mut self) -> &mut KeyIndex;

    /// Likewise, to be read.
    fn known_keys(&self) -> &KeyIndex;

    /// Keys were made: makes room for them.
    fn resize(&mut self);

    /// Number of heaps.
    fn heaps(&self) -> usize;

    /// One of the heaps.
    ///
    /// Contract: its state was opened.
    fn heap(&mut self, at: usize) -> HeapParts<'_>;

    /// Puts rows that the store has into a heap; those whose time to live is over are left out.
    fn take_in(&mut self, at: usize, taken: Taken) -> Result<(), EngineError>;

    /// Whether the key has rows.
    fn has_rows(&self, key: u32) -> bool;

    /// Takes all rows of a key out of memory; the store has them.
    fn forget_rows(&mut self, key: u32);

    /// What all of it holds.
    fn held_bytes(&self) -> Held;

    /// An Arrow kernel failed.
    fn kernel(&self, source: arrow::error::ArrowError) -> EngineError;

    /// Gives those of these keys back that have no rows; a store takes care of that by itself.
    fn forget_emptied(&mut self, mut emptied: Vec<u32>, store: Option<&mut KeyedRowStore>) {
        if let Some(store) = store {
            return store.note_emptied(emptied);
        }
        emptied.sort_unstable();
        emptied.dedup();
        for key in emptied {
            if !self.has_rows(key) {
                self.index().remove(key);
            }
        }
    }
}

/// A heap, and what the store has of it.
pub(in crate::operators) struct HeapParts<'a> {
    pub(in crate::operators) stored: &'a mut StoredRows,
    pub(in crate::operators) heap: &'a RowHeap,
    /// Marks that are saved with its rows.
    pub(in crate::operators) marks: Option<&'a Marks>,
}

/// Rows out of a store.
pub(in crate::operators) struct Taken {
    /// Of each: its key.
    pub(in crate::operators) keys: Vec<u32>,
    /// The columns of the heap; none where the store does not have it.
    pub(in crate::operators) columns: Vec<Option<ArrayRef>>,
    /// Their marks, where they are saved.
    pub(in crate::operators) marks: Option<BooleanArray>,
}

impl<T: HeapsByKey> ByKey for T {
    fn has_one_key(&self) -> bool {
        self.known_keys().is_unit()
    }

    fn key_count(&self) -> usize {
        self.known_keys().len()
    }

    fn find_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.index().find(columns, rows, ids);
    }

    fn make_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.index().intern(columns, rows, ids);
        self.index().drain_reused(&mut Vec::new());
        self.resize();
    }

    fn forget_key(&mut self, key: u32) {
        self.index().remove(key);
    }

    fn states(&self) -> usize {
        self.heaps()
    }

    fn state(&mut self, at: usize) -> (ColdStateId, &StateMeta) {
        let stored = self.heap(at).stored;
        (stored.state, &stored.meta)
    }

    fn addresses(&mut self, at: usize, keys: &[ArrayRef], rows: usize) -> Addresses {
        self.heap(at).stored.addresses(keys, rows)
    }

    fn key_columns(&mut self, at: usize, entries: &RecordBatch) -> Vec<ArrayRef> {
        self.heap(at).stored.key_columns(entries)
    }

    fn take_found(&mut self, at: usize, found: Found<'_>) -> Result<bool, EngineError> {
        let taken = self.heap(at).stored.taken(found.keys, found.ids, found.loaded);
        self.take_in(at, taken.map_err(|source| self.kernel(source))?)?;
        // Two rows had one unique key, since one of them had expired by another clock.
        Ok(self.heap(at).stored.has_gone())
    }

    fn has_entries(&self, key: u32) -> bool {
        self.has_rows(key)
    }

    fn forget_entries(&mut self, key: u32) {
        self.forget_rows(key);
    }

    fn has_gone(&mut self) -> bool {
        (0..self.heaps()).any(|at| self.heap(at).stored.has_gone())
    }

    fn freeze(&mut self) -> Result<(), EngineError> {
        for at in 0..self.heaps() {
            let HeapParts { stored, heap, marks } = self.heap(at);
            stored.freeze(heap, marks).map_err(|source| self.kernel(source))?;
        }
        Ok(())
    }

    fn next_change(&mut self, at: usize, _rows_max: usize) -> Result<Option<(usize, Change)>, EngineError> {
        let change = self.heap(at).stored.next_change();
        change.map_err(|source| self.kernel(source))
    }

    fn is_sent(&mut self, at: usize) -> bool {
        self.heap(at).stored.is_sent()
    }

    fn held(&self) -> Held {
        self.held_bytes()
    }
}
