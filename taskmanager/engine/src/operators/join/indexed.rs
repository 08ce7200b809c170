//! Rows that are found by their key: an index, and from each row a link to the one of its key before it.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use levada_state::key_index::{ABSENT, KeyIndex};

use crate::operators::rows::{NO_ROW, RowBuffer};

/// Rows of a pane, by key.
#[derive(Debug)]
pub(super) struct IndexedRows {
    pub(super) rows: RowBuffer,
    index: KeyIndex,
    /// Of each key: its newest row.
    newest: Vec<u32>,
    /// Of each row: the one of its key before it.
    before: Vec<u32>,
    ids: Vec<u32>,
}

impl IndexedRows {
    /// Without rows, for keys of these types.
    pub(super) fn new(key_types: &[DataType]) -> Self {
        let rows = RowBuffer::default();
        Self { rows, index: KeyIndex::new(key_types), newest: Vec::new(), before: Vec::new(), ids: Vec::new() }
    }

    /// Appends rows, at least one.
    pub(super) fn push(&mut self, keys: &[ArrayRef], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        self.rows.push(columns)?;
        self.ids.clear();
        self.index.intern(keys, columns[0].len(), &mut self.ids);
        self.newest.resize(self.index.len(), NO_ROW);
        self.before.reserve(self.ids.len());
        for id in &self.ids {
            let newest = &mut self.newest[*id as usize];
            let row = self.before.len() as u32;
            self.before.push(std::mem::replace(newest, row));
        }
        Ok(())
    }

    /// Appends, of rows whose keys are new, the first of each.
    pub(super) fn push_new_keys(&mut self, keys: &[ArrayRef], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        self.ids.clear();
        self.index.intern(keys, columns[0].len(), &mut self.ids);
        let mut known = self.newest.len() as u32;
        let mut new = Vec::new();
        for (row, id) in self.ids.iter().enumerate() {
            if *id == known {
                new.push(row as u32);
                known += 1;
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        for _ in &new {
            self.newest.push(self.before.len() as u32);
            self.before.push(NO_ROW);
        }
        let new = UInt32Array::from(new);
        let columns = columns.iter().map(|column| take(column, &new, None)).collect::<Result<Vec<_>, _>>()?;
        self.rows.push(&columns)
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> usize {
        self.newest.len()
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
        self.newest[key as usize]
    }

    /// The row of the same key before this one, or `NO_ROW`.
    #[inline]
    pub(super) fn before(&self, row: u32) -> u32 {
        self.before[row as usize]
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let links = (self.newest.capacity() + self.before.capacity()) * size_of::<u32>();
        self.rows.memory_bytes() + self.index.memory_bytes() + links
    }
}
