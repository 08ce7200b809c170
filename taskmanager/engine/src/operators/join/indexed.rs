//! Rows that are found by their key: an index, and from each row a link to the one of its key before it.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use levada_state::key_index::{ABSENT, KeyIndex};

use crate::operators::rows::{Grouped, RowBuffer};

/// Keys, and the numbers of the rows that each has.
#[derive(Debug)]
pub(super) struct RowsByKey {
    index: KeyIndex,
    grouped: Grouped,
    ids: Vec<u32>,
}

impl RowsByKey {
    /// Without rows, for keys of these types.
    pub(super) fn new(key_types: &[DataType]) -> Self {
        Self { index: KeyIndex::new(key_types), grouped: Grouped::default(), ids: Vec::new() }
    }

    /// The next rows have these keys.
    pub(super) fn push(&mut self, keys: &[ArrayRef], rows: usize) {
        self.grouped.push(&mut self.index, keys, rows, &mut self.ids);
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> usize {
        self.grouped.keys()
    }

    /// Fills `ids` with the number of each row's key, `ABSENT` where it is not here or has a null.
    pub(super) fn find(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        ids.clear();
        self.index.find(keys, rows, ids);
        for nulls in keys.iter().filter_map(|key| key.nulls()) {
            ids.iter_mut().zip(nulls).filter(|(_, valid)| !valid).for_each(|(id, _)| *id = ABSENT);
        }
    }

    /// The newest row of a key.
    #[inline]
    pub(super) fn newest(&self, key: u32) -> u32 {
        self.grouped.last(key)
    }

    /// The row of the same key before this one, or `NO_ROW`.
    #[inline]
    pub(super) fn before(&self, row: u32) -> u32 {
        self.grouped.before(row)
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.grouped.memory_bytes()
    }
}

/// Rows of a pane, by key.
#[derive(Debug)]
pub(super) struct IndexedRows {
    pub(super) rows: RowBuffer,
    pub(super) by_key: RowsByKey,
}

impl IndexedRows {
    /// Without rows, for keys of these types.
    pub(super) fn new(key_types: &[DataType]) -> Self {
        Self { rows: RowBuffer::default(), by_key: RowsByKey::new(key_types) }
    }

    /// Appends rows, at least one.
    pub(super) fn push(&mut self, keys: &[ArrayRef], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        self.rows.push(columns)?;
        self.by_key.push(keys, columns[0].len());
        Ok(())
    }

    /// Appends, of rows whose keys are new, the first of each.
    pub(super) fn push_new_keys(&mut self, keys: &[ArrayRef], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let RowsByKey { index, grouped, ids } = &mut self.by_key;
        let new = grouped.push_first(index, keys, columns[0].len(), ids);
        if new.is_empty() {
            return Ok(());
        }
        let new = UInt32Array::from(new);
        let columns = columns.iter().map(|column| take(column, &new, None)).collect::<Result<Vec<_>, _>>()?;
        self.rows.push(&columns)
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes() + self.by_key.memory_bytes()
    }
}
