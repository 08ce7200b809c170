//! The canonical bytes of a key, column by column.
//!
//! Per key column: 00 for null, else 01 and the value. Integers, dates and timestamps are a little-endian i64 whatever their
//! width, UINT64 a little-endian u64, decimals 16 bytes little-endian, floats the bits of an f64 (one zero, one NaN), booleans one
//! byte, strings and binary a little-endian u32 length and the bytes. Nothing here may change: stored keys are compared by it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMillisecondType, UInt64Type,
};

use crate::types::LogicalType;

/// Whether a column of this type can be part of a key: all but LIST and STRUCT.
pub fn is_key_type(ty: &LogicalType) -> bool {
    !matches!(ty, LogicalType::List(_) | LogicalType::Struct(_))
}

/// Makes values that are the same key the same value: −0.0 becomes 0.0 and every NaN one NaN.
///
/// Shape: same type, length and nulls; columns that are no floats, and floats already normal, come back as they are.
pub fn normalise_key_column(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            if values.values().iter().all(|value| value.to_bits() == normal_f64(*value).to_bits()) {
                return column;
            }
            let normal: Float64Array = values.unary(normal_f64);
            Arc::new(normal)
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            if values.values().iter().all(|value| value.to_bits() == normal_f32(*value).to_bits()) {
                return column;
            }
            let normal: Float32Array = values.unary(normal_f32);
            Arc::new(normal)
        }
        _ => column,
    }
}

#[inline]
fn normal_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

#[inline]
fn normal_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// Encodes keys of whole batches; keeps its buffers from one batch to the next.
///
/// Contract: key columns have types for which `is_key_type` holds (planning sees to it; another type panics) and one length.
#[derive(Debug, Default)]
pub struct KeyEncoder {
    offsets: Vec<usize>,
    cursors: Vec<usize>,
    bytes: Vec<u8>,
}

impl KeyEncoder {
    /// An encoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Encodes the rows of `columns`, the most significant column first; with no column every key is empty.
    ///
    /// Shape: `offsets` has `rows + 1` items; row i is `bytes[offsets[i]..offsets[i + 1]]`.
    pub fn encode(&mut self, columns: &[ArrayRef], rows: usize) -> (&[usize], &[u8]) {
        assert!(columns.iter().all(|column| column.len() == rows), "key columns have the batch's length");
        self.offsets.clear();
        self.offsets.resize(rows + 1, 0);
        for column in columns {
            add_lengths(column, &mut self.offsets[1..]);
        }
        let mut end = 0;
        for offset in &mut self.offsets {
            end += *offset;
            *offset = end;
        }
        self.bytes.clear();
        self.bytes.resize(end, 0);
        self.cursors.clear();
        self.cursors.extend_from_slice(&self.offsets[..rows]);
        for column in columns {
            let mut writer = Writer { cursors: &mut self.cursors, bytes: &mut self.bytes };
            writer.column(column);
        }
        (&self.offsets, &self.bytes)
    }

    /// The bytes of row `row` of the batch encoded last.
    pub fn key(&self, row: usize) -> &[u8] {
        &self.bytes[self.offsets[row]..self.offsets[row + 1]]
    }
}

/// Bytes of a value of a type whose values all have one size, without the mark before it; `None` for strings and binary.
///
/// Contract: as of [`KeyEncoder`].
pub fn fixed_key_size(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt64 => Some(8),
        DataType::Date32 | DataType::Timestamp(TimeUnit::Millisecond, None) => Some(8),
        DataType::Float32 | DataType::Float64 => Some(8),
        DataType::Decimal128(_, _) => Some(16),
        DataType::Utf8 | DataType::Binary => None,
        other => panic!("planning lets no key column of type {other} pass"),
    }
}

fn add_lengths(column: &ArrayRef, lengths: &mut [usize]) {
    if let Some(size) = fixed_key_size(column.data_type()) {
        match column.nulls() {
            None => lengths.iter_mut().for_each(|length| *length += 1 + size),
            Some(nulls) => {
                lengths.iter_mut().enumerate().for_each(|(row, length)| *length += 1 + usize::from(nulls.is_valid(row)) * size);
            }
        }
        return;
    }
    for (row, length) in lengths.iter_mut().enumerate() {
        *length += 1 + if column.is_null(row) { 0 } else { 4 + value_range(column, row).len() };
    }
}

/// Where the bytes of a string or binary value stand in the column's values.
fn value_range(column: &ArrayRef, row: usize) -> Range<usize> {
    let offsets = match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value_offsets(),
        _ => column.as_binary::<i32>().value_offsets(),
    };
    offsets[row] as usize..offsets[row + 1] as usize
}

/// Writes a column's values behind what stands in each row already.
struct Writer<'a> {
    cursors: &'a mut [usize],
    bytes: &'a mut [u8],
}

impl Writer<'_> {
    fn column(&mut self, column: &ArrayRef) {
        macro_rules! integers {
            ($ty:ty) => {{
                let values = column.as_primitive::<$ty>().values();
                self.fixed(column, |row| i64::from(values[row]).to_le_bytes())
            }};
        }
        match column.data_type() {
            DataType::Boolean => {
                let values = column.as_boolean().values();
                self.fixed(column, |row| [u8::from(values.value(row))]);
            }
            DataType::Int8 => integers!(Int8Type),
            DataType::Int16 => integers!(Int16Type),
            DataType::Int32 => integers!(Int32Type),
            DataType::Int64 => integers!(Int64Type),
            DataType::Date32 => integers!(Date32Type),
            DataType::Timestamp(TimeUnit::Millisecond, None) => integers!(TimestampMillisecondType),
            DataType::UInt64 => {
                let values = column.as_primitive::<UInt64Type>().values();
                self.fixed(column, |row| values[row].to_le_bytes());
            }
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>().values();
                self.fixed(column, |row| normal_f64(f64::from(values[row])).to_bits().to_le_bytes());
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                self.fixed(column, |row| normal_f64(values[row]).to_bits().to_le_bytes());
            }
            DataType::Decimal128(_, _) => {
                let values = column.as_primitive::<Decimal128Type>().values();
                self.fixed(column, |row| values[row].to_le_bytes());
            }
            DataType::Utf8 => self.variable(column, column.as_string::<i32>().value_data()),
            DataType::Binary => self.variable(column, column.as_binary::<i32>().value_data()),
            other => panic!("planning lets no key column of type {other} pass"),
        }
    }

    fn fixed<const N: usize>(&mut self, column: &ArrayRef, value: impl Fn(usize) -> [u8; N]) {
        let nulls = column.nulls();
        for (row, cursor) in self.cursors.iter_mut().enumerate() {
            let at = *cursor;
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                *cursor = at + 1;
                continue;
            }
            self.bytes[at] = 1;
            self.bytes[at + 1..at + 1 + N].copy_from_slice(&value(row));
            *cursor = at + 1 + N;
        }
    }

    fn variable(&mut self, column: &ArrayRef, data: &[u8]) {
        for (row, cursor) in self.cursors.iter_mut().enumerate() {
            let at = *cursor;
            if column.is_null(row) {
                *cursor = at + 1;
                continue;
            }
            let value = &data[value_range(column, row)];
            self.bytes[at] = 1;
            self.bytes[at + 1..at + 5].copy_from_slice(&(value.len() as u32).to_le_bytes());
            self.bytes[at + 5..at + 5 + value.len()].copy_from_slice(value);
            *cursor = at + 5 + value.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Float64Array, Int16Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn values_that_are_one_key_have_the_same_bytes() {
        let other_nan = f64::from_bits(0xfff8_0000_0000_0001);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, other_nan]));
        let mut encoder = KeyEncoder::new();
        encoder.encode(std::slice::from_ref(&floats), 4);
        assert_eq!(encoder.key(0), encoder.key(1));
        assert_eq!(encoder.key(2), encoder.key(3));
        let normal = normalise_key_column(floats);
        assert_eq!(normal.as_primitive::<Float64Type>().value(1).to_bits(), 0);
        assert_eq!(normal.as_primitive::<Float64Type>().value(3).to_bits(), f64::NAN.to_bits());

        let narrow: ArrayRef = Arc::new(Int16Array::from(vec![-7]));
        let wide: ArrayRef = Arc::new(Int64Array::from(vec![-7]));
        let narrow = encoder.encode(&[narrow], 1).1.to_vec();
        assert_eq!(encoder.encode(&[wide], 1).1, narrow);
    }

    #[test]
    fn normal_columns_are_not_copied() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 0.0, f64::NAN]));
        assert!(Arc::ptr_eq(&normalise_key_column(Arc::clone(&floats)), &floats));
        let mixed: ArrayRef = Arc::new(Float64Array::from(vec![Some(-0.0), None]));
        let normal = normalise_key_column(mixed);
        assert!(normal.is_null(1) && normal.is_valid(0));
    }

    #[test]
    fn null_is_a_key_of_its_own_and_columns_do_not_run_together() {
        let left: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"), Some("a"), Some(""), None]));
        let right: ArrayRef = Arc::new(StringArray::from(vec![Some("c"), Some("bc"), None, Some("")]));
        let mut encoder = KeyEncoder::new();
        let (offsets, _) = encoder.encode(&[left, right], 4);
        assert_eq!(offsets, &[0, 7 + 6, 7 + 6 + 6 + 7, 26 + 6, 32 + 6]);
        let keys: std::collections::BTreeSet<&[u8]> = (0..4).map(|row| encoder.key(row)).collect();
        assert_eq!(keys.len(), 4);
        assert_eq!(encoder.key(3), [0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn slices_are_encoded_from_their_own_start() {
        let bools: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]));
        let words: ArrayRef = Arc::new(StringArray::from(vec!["long one", "x", "yy", "zzz"]));
        let mut encoder = KeyEncoder::new();
        encoder.encode(&[bools.slice(1, 3), words.slice(1, 3)], 3);
        assert_eq!(encoder.key(0), [0, 1, 1, 0, 0, 0, b'x']);
        assert_eq!(encoder.key(1), [1, 0, 1, 2, 0, 0, 0, b'y', b'y']);
    }
}
