//! Rows by key in front of a store: heaps whose rows leave memory key by key, all rows of a key or none.
//!
//! So a key that memory has is never looked for, and the keys of a batch that it does not have are found by one sorted read of each
//! heap's state. A row of the store is an entry below its key, by a number that it keeps. Must never know what a column means, nor
//! what becomes of rows.

mod evict;
mod saving;
mod store;
mod table;
mod warm;
mod windows;

use arrow::array::{ArrayRef, BooleanArray};
use levada_state::key_index::KeyIndex;

use super::{Marks, RowHeap};
use crate::error::EngineError;

pub(in crate::operators) use store::KeyedRowStore;
pub(in crate::operators) use table::{EntryPlaces, StoredRows};

/// Heaps of rows that share their keys, as a store sees them.
///
/// Contract: what `StoredRows` says of who tells it what.
pub(in crate::operators) trait ByKey {
    /// The keys.
    fn index(&mut self) -> &mut KeyIndex;

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
    fn held(&self) -> Held;

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

/// Bytes held, and those among them that are free for rows and keys to come.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::operators) struct Held {
    pub(in crate::operators) bytes: usize,
    pub(in crate::operators) idle_bytes: usize,
}
