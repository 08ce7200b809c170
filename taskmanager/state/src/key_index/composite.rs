//! The index over several key columns, or one of a wide type: by the canonical bytes of `levada_common::keys`.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Decimal128Array, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use levada_common::keys::KeyEncoder;

use super::bytes::ByteKeys;
use super::free::FreeIds;
use crate::fixed;
use crate::rows::Rows;

/// Keys as canonical bytes, decoded again when they are read.
#[derive(Debug)]
pub(super) struct CompositeKeys {
    data_types: Vec<DataType>,
    keys: ByteKeys,
    encoder: KeyEncoder,
}

impl CompositeKeys {
    pub(super) fn new(data_types: Vec<DataType>) -> Self {
        Self { data_types, keys: ByteKeys::new(), encoder: KeyEncoder::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn intern(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        let (offsets, data) = self.encoder.encode(columns, rows);
        self.keys.intern(data, rows, |row| (offsets[row], offsets[row + 1]), ids);
    }

    pub(super) fn find(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        let (offsets, data) = self.encoder.encode(columns, rows);
        self.keys.find(data, rows, |row| (offsets[row], offsets[row + 1]), ids);
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.keys.remove(id);
    }

    pub(super) fn free(&mut self) -> &mut FreeIds {
        self.keys.free()
    }

    pub(super) fn live(&self) -> usize {
        self.keys.live()
    }

    pub(super) fn keys(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let mut data = Vec::new();
        let mut cursors = Vec::with_capacity(rows.len());
        rows.each(|id| {
            cursors.push(data.len());
            self.keys.append(id, &mut data);
        });
        let mut reader = Reader { data: &data, cursors };
        self.data_types.iter().map(|data_type| reader.column(data_type)).collect()
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }
}

/// Reads canonical bytes column by column, each row from where its last column ended.
struct Reader<'a> {
    data: &'a [u8],
    cursors: Vec<usize>,
}

impl Reader<'_> {
    fn column(&mut self, data_type: &DataType) -> ArrayRef {
        match data_type {
            DataType::Utf8 | DataType::Binary => self.text(data_type),
            DataType::Decimal128(_, _) => {
                let (values, nulls) = self.values(0, i128::from_le_bytes);
                Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(data_type.clone()))
            }
            DataType::Boolean => {
                let (words, nulls) = self.values(0, |[byte]: [u8; 1]| i64::from(byte));
                fixed::from_ordered(words, nulls, data_type)
            }
            _ => {
                let (words, nulls) = self.values(0, |bytes| ordered_word(i64::from_le_bytes(bytes), data_type));
                fixed::from_ordered(words, nulls, data_type)
            }
        }
    }

    fn values<const N: usize, T: Copy>(&mut self, null: T, value: impl Fn([u8; N]) -> T) -> (Vec<T>, Option<NullBuffer>) {
        let mut valid = Vec::with_capacity(self.cursors.len());
        let values = self.cursors.iter_mut().map(|cursor| {
            let is_valid = self.data[*cursor] != 0;
            valid.push(is_valid);
            *cursor += 1;
            if !is_valid {
                return null;
            }
            let bytes = &self.data[*cursor..*cursor + N];
            *cursor += N;
            value(bytes.try_into().expect("the slice has the value's size"))
        });
        let values = values.collect();
        (values, nulls_of(valid))
    }

    fn text(&mut self, data_type: &DataType) -> ArrayRef {
        let mut valid = Vec::with_capacity(self.cursors.len());
        let mut bytes = Vec::new();
        let mut offsets = vec![0];
        for cursor in &mut self.cursors {
            let is_valid = self.data[*cursor] != 0;
            valid.push(is_valid);
            *cursor += 1;
            if is_valid {
                let head = self.data[*cursor..*cursor + 4].try_into().expect("a length has four bytes");
                let len = u32::from_le_bytes(head) as usize;
                bytes.extend_from_slice(&self.data[*cursor + 4..*cursor + 4 + len]);
                *cursor += 4 + len;
            }
            offsets.push(i32::try_from(bytes.len()).expect("the keys of a batch have fewer than 2^31 bytes"));
        }
        let offsets = OffsetBuffer::new(offsets.into());
        match data_type {
            DataType::Utf8 => Arc::new(StringArray::new(offsets, bytes.into(), nulls_of(valid))),
            _ => Arc::new(BinaryArray::new(offsets, bytes.into(), nulls_of(valid))),
        }
    }
}

fn nulls_of(valid: Vec<bool>) -> Option<NullBuffer> {
    valid.contains(&false).then(|| NullBuffer::from(valid))
}

/// Turns the eight bytes of a canonical value into the word of `fixed`.
#[inline]
fn ordered_word(word: i64, data_type: &DataType) -> i64 {
    match data_type {
        DataType::UInt64 => word ^ i64::MIN,
        DataType::Float64 => fixed::order_f64(word),
        DataType::Float32 => i64::from(fixed::order_f32((f64::from_bits(word as u64) as f32).to_bits() as i32)),
        _ => word,
    }
}
