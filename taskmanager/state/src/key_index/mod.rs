//! From key columns to dense row ids.
//!
//! A table, a pane, a partial: each has one index and beside it vectors by row id. Rows are numbered from 0 in the order in which
//! their keys first appeared and are never renumbered; the id of a removed key is used again. Null is a key of its own; floats are one zero and one NaN. Must never
//! know what stands in the rows, nor key groups, which only encoding needs.

mod arena;
mod bytes;
mod composite;
mod free;
pub(crate) mod hash;
pub(crate) mod slots;
mod text;
mod words;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use crate::fixed::is_fixed;
use crate::rows::Rows;
use composite::CompositeKeys;
use text::TextKeys;
use words::WordKeys;

/// What `KeyIndex::find` gives for a key that is not there; no row has this id.
pub const ABSENT: u32 = u32::MAX;

/// An index over the keys of a table.
#[derive(Debug)]
pub struct KeyIndex {
    keys: Keys,
}

/// The index by what the key is made of.
#[derive(Debug)]
enum Keys {
    /// No column: one row, once anything came.
    Unit(usize),
    Words(WordKeys),
    Text(TextKeys),
    Composite(CompositeKeys),
}

impl KeyIndex {
    /// An empty index over key columns of these types, for which `levada_common::keys::is_key_type` holds.
    pub fn new(data_types: &[DataType]) -> Self {
        let keys = match data_types {
            [] => Keys::Unit(0),
            [one] if is_fixed(one) => Keys::Words(WordKeys::new(one.clone())),
            [one @ (DataType::Utf8 | DataType::Binary)] => Keys::Text(TextKeys::new(one)),
            several => Keys::Composite(CompositeKeys::new(several.to_vec())),
        };
        Self { keys }
    }

    /// Appends the row id of each row's key to `ids`; new keys get the next ids, in order of first appearance.
    ///
    /// Shape: `columns` as in `new`, `rows` long each.
    pub fn intern(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        match &mut self.keys {
            Keys::Unit(len) => {
                *len = (*len).max(usize::from(rows > 0));
                ids.resize(ids.len() + rows, 0);
            }
            Keys::Words(keys) => keys.intern(&columns[0], ids),
            Keys::Text(keys) => keys.intern(&columns[0], ids),
            Keys::Composite(keys) => keys.intern(columns, rows, ids),
        }
    }

    /// Appends the row id of each row's key to `ids`, `ABSENT` where the index does not have it.
    ///
    /// Shape: as in `intern`.
    pub fn find(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        match &mut self.keys {
            Keys::Unit(len) => ids.resize(ids.len() + rows, if *len == 0 { ABSENT } else { 0 }),
            Keys::Words(keys) => keys.find(&columns[0], ids),
            Keys::Text(keys) => keys.find(&columns[0], ids),
            Keys::Composite(keys) => keys.find(columns, rows, ids),
        }
    }

    /// Whether the key has no column, so that there is only row 0.
    pub fn is_unit(&self) -> bool {
        matches!(self.keys, Keys::Unit(_))
    }

    /// Number of ids that were given out; those of removed keys are among them.
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::Unit(len) => *len,
            Keys::Words(keys) => keys.len(),
            Keys::Text(keys) => keys.len(),
            Keys::Composite(keys) => keys.len(),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that are there.
    pub fn live(&self) -> usize {
        match &self.keys {
            Keys::Unit(len) => *len,
            Keys::Words(keys) => keys.live(),
            Keys::Text(keys) => keys.live(),
            Keys::Composite(keys) => keys.live(),
        }
    }

    /// Forgets a key: its id is given to one of the next new keys. The key without columns stays.
    ///
    /// Contract: the key of this id is there; nothing refers to the id any more.
    pub fn remove(&mut self, id: u32) {
        match &mut self.keys {
            Keys::Unit(_) => {}
            Keys::Words(keys) => keys.remove(id),
            Keys::Text(keys) => keys.remove(id),
            Keys::Composite(keys) => keys.remove(id),
        }
    }

    /// Appends the ids that `intern` gave to new keys since the last call after they had belonged to others.
    pub fn drain_reused(&mut self, ids: &mut Vec<u32>) {
        match &mut self.keys {
            Keys::Unit(_) => {}
            Keys::Words(keys) => keys.free().drain_reused(ids),
            Keys::Text(keys) => keys.free().drain_reused(ids),
            Keys::Composite(keys) => keys.free().drain_reused(ids),
        }
    }

    /// The key columns of these rows.
    pub fn keys(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        match &self.keys {
            Keys::Unit(_) => Vec::new(),
            Keys::Words(keys) => vec![keys.keys(rows)],
            Keys::Text(keys) => vec![keys.keys(rows)],
            Keys::Composite(keys) => keys.keys(rows),
        }
    }

    /// Forgets every key and keeps the memory.
    pub fn clear(&mut self) {
        match &mut self.keys {
            Keys::Unit(len) => *len = 0,
            Keys::Words(keys) => keys.clear(),
            Keys::Text(keys) => keys.clear(),
            Keys::Composite(keys) => keys.clear(),
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        match &self.keys {
            Keys::Unit(_) => 0,
            Keys::Words(keys) => keys.memory_bytes(),
            Keys::Text(keys) => keys.memory_bytes(),
            Keys::Composite(keys) => keys.memory_bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
