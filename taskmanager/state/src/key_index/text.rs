//! The index over one string or binary key column.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;

use super::ABSENT;
use super::bytes::ByteKeys;
use super::free::FreeIds;
use crate::rows::Rows;

/// Keys as bytes; null is a key of its own that no probe finds.
#[derive(Debug)]
pub(super) struct TextKeys {
    is_string: bool,
    keys: ByteKeys,
    null_id: Option<u32>,
}

impl TextKeys {
    pub(super) fn new(data_type: &DataType) -> Self {
        Self { is_string: *data_type == DataType::Utf8, keys: ByteKeys::new(), null_id: None }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn intern(&mut self, column: &ArrayRef, ids: &mut Vec<u32>) {
        let (offsets, data) = self.bytes(column);
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => self.keys.intern(data, column.len(), |row| (offsets[row] as usize, offsets[row + 1] as usize), ids),
            Some(nulls) => {
                for row in 0..column.len() {
                    let id = if nulls.is_valid(row) {
                        self.keys.intern_one(&data[offsets[row] as usize..offsets[row + 1] as usize])
                    } else {
                        *self.null_id.get_or_insert_with(|| self.keys.push_hidden())
                    };
                    ids.push(id);
                }
            }
        }
    }

    pub(super) fn find(&mut self, column: &ArrayRef, ids: &mut Vec<u32>) {
        let (offsets, data) = self.bytes(column);
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => self.keys.find(data, column.len(), |row| (offsets[row] as usize, offsets[row + 1] as usize), ids),
            Some(nulls) => ids.extend((0..column.len()).map(|row| match nulls.is_valid(row) {
                true => self.keys.find_one(&data[offsets[row] as usize..offsets[row + 1] as usize]),
                false => self.null_id.unwrap_or(ABSENT),
            })),
        }
    }

    fn bytes<'a>(&self, column: &'a ArrayRef) -> (&'a [i32], &'a [u8]) {
        match self.is_string {
            true => (column.as_string::<i32>().value_offsets(), column.as_string::<i32>().value_data()),
            false => (column.as_binary::<i32>().value_offsets(), column.as_binary::<i32>().value_data()),
        }
    }

    pub(super) fn remove(&mut self, id: u32) {
        if self.null_id == Some(id) {
            self.null_id = None;
            self.keys.remove_hidden(id);
        } else {
            self.keys.remove(id);
        }
    }

    pub(super) fn free(&mut self) -> &mut FreeIds {
        self.keys.free()
    }

    pub(super) fn live(&self) -> usize {
        self.keys.live()
    }

    pub(super) fn keys(&self, rows: Rows<'_>) -> ArrayRef {
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        offsets.push(0);
        let mut data = Vec::with_capacity(rows.len() * 16 + 16);
        rows.each(|id| {
            self.keys.append(id, &mut data);
            offsets.push(i32::try_from(data.len()).expect("the keys of a batch have fewer than 2^31 bytes"));
        });
        let nulls = self.null_id.and_then(|null_id| {
            let valid = rows.map(|id| id as u32 != null_id);
            valid.contains(&false).then(|| NullBuffer::from(valid))
        });
        let offsets = OffsetBuffer::new(offsets.into());
        match self.is_string {
            true => Arc::new(StringArray::new(offsets, data.into(), nulls)),
            false => Arc::new(BinaryArray::new(offsets, data.into(), nulls)),
        }
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.null_id = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }
}
