//! What is kept by key in front of a store: it leaves memory key by key, all entries of a key or none.
//!
//! So a key that memory has is never looked for, and the keys of a batch that it does not have are found by one sorted read of each
//! state. Must never know what an entry is: rows of heaps (`heaps.rs`), or whatever else its owner keeps by key.

mod entries;
mod evict;
mod heaps;
mod held;
mod saving;
mod store;
mod table;
mod warm;
mod windows;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_state::cold::{Addresses, Change, ColdStateId, Loaded};
use levada_state::snapshot::StateMeta;

use super::{Marks, RowHeap};
use crate::error::EngineError;

pub(in crate::operators) use entries::StoredEntries;
pub(in crate::operators) use heaps::{HeapParts, HeapsByKey, Taken};
pub(in crate::operators) use held::{EntryBytes, Held};
pub(in crate::operators) use store::KeyedRowStore;
pub(in crate::operators) use table::{EntryPlaces, StoredRows};

/// States that share their keys, as a store sees them.
///
/// Contract: the store is told which keys are used and which may change, before they do. An entry that is being sent and changes, or
/// goes, is sent first as it was.
pub(in crate::operators) trait ByKey {
    /// Whether the key has no column, so that there is one.
    fn has_one_key(&self) -> bool;

    /// Number of keys that were made.
    fn key_count(&self) -> usize;

    /// Appends the number of each row's key, `ABSENT` where memory does not have it.
    fn find_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>);

    /// Appends the number of each row's key; keys that are not there are made, without entries. Without columns one number may do for
    /// all rows.
    fn make_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>);

    /// Forgets a key without entries.
    fn forget_key(&mut self, key: u32);

    /// Number of states.
    fn states(&self) -> usize;

    /// One of the states.
    ///
    /// Contract: it was opened.
    fn state(&mut self, at: usize) -> (ColdStateId, &StateMeta);

    /// Where the entries of these keys are in a state.
    fn addresses(&mut self, at: usize, keys: &[ArrayRef], rows: usize) -> Addresses;

    /// The key's columns of entries of a state.
    fn key_columns(&mut self, at: usize, entries: &RecordBatch) -> Vec<ArrayRef>;

    /// Puts what the store has of a state into memory. Answers whether the store has to hear of something by that.
    fn take_found(&mut self, at: usize, found: Found<'_>) -> Result<bool, EngineError>;

    /// Whether the key has entries.
    fn has_entries(&self, key: u32) -> bool;

    /// Takes all entries of a key out of memory; the store has them.
    fn forget_entries(&mut self, key: u32);

    /// Whether a key has entries that the store does not have, which stay where the others go.
    fn has_unsent(&self, _key: u32) -> bool {
        false
    }

    /// Everything that was sent is written: forgets entries that are gone and stood for that only.
    fn forget_written(&mut self) {}

    /// Whether entries are gone of which the store has not heard, though nothing is left of their keys.
    fn has_gone(&mut self) -> bool {
        false
    }

    /// Begins a generation of what has changed, with what is left of one that is being sent.
    fn freeze(&mut self) -> Result<(), EngineError>;

    /// Takes the next of what is being sent of a state, about `rows_max` rows, with the number of its rows.
    fn next_change(&mut self, at: usize, rows_max: usize) -> Result<Option<(usize, Change)>, EngineError>;

    /// Whether everything of a state was sent.
    fn is_sent(&mut self, at: usize) -> bool;

    /// What all of it holds.
    fn held(&self) -> Held;
}

/// What a store has of some keys.
pub(in crate::operators) struct Found<'a> {
    /// The columns of the keys that were looked for.
    pub(in crate::operators) keys: &'a [ArrayRef],
    /// Their numbers.
    pub(in crate::operators) ids: &'a [u32],
    /// Their entries, by place among these.
    pub(in crate::operators) loaded: &'a Loaded,
}
