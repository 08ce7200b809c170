//! The hash of a key and, from it, its group: the upper 32 bits of XXH3-64 with seed 0 over the key's canonical bytes.
//!
//! One integer column and one string column are hashed without laying out the batch's bytes; the tests hold both ways together.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMillisecondType, UInt64Type,
};
use xxhash_rust::xxh3::xxh3_64;

use super::encode::KeyEncoder;
use super::group::key_group;

/// The hash of a key with these canonical bytes.
#[inline]
pub fn key_hash(bytes: &[u8]) -> u32 {
    (xxh3_64(bytes) >> 32) as u32
}

/// Appends the hash of each row's key to `out`.
///
/// Contract: at least one column, all of one length, each of a type for which `is_key_type` holds.
pub fn hash_keys(columns: &[ArrayRef], out: &mut Vec<u32>) {
    each_hash(columns, out, |hash| hash);
}

/// Appends the key group of each row's key to `out`.
///
/// Contract: as `hash_keys`; `0 < max_parallelism <= MAX_PARALLELISM_LIMIT`.
pub fn key_groups(columns: &[ArrayRef], max_parallelism: u32, out: &mut Vec<u16>) {
    each_hash(columns, out, |hash| key_group(hash, max_parallelism));
}

/// As `key_groups`, for so many rows: without a column all of them have the one empty key.
pub fn key_groups_of_rows(columns: &[ArrayRef], rows: usize, max_parallelism: u32, out: &mut Vec<u16>) {
    match columns.is_empty() {
        true => out.resize(out.len() + rows, key_group(key_hash(&[]), max_parallelism)),
        false => key_groups(columns, max_parallelism, out),
    }
}

fn each_hash<T>(columns: &[ArrayRef], out: &mut Vec<T>, then: impl Fn(u32) -> T) {
    let rows = columns.first().expect("a key has at least one column").len();
    if let [column] = columns {
        macro_rules! integers {
            ($ty:ty) => {{
                let values = column.as_primitive::<$ty>().values();
                return integer_hashes(column, |row| i64::from(values[row]) as u64, out, then);
            }};
        }
        match column.data_type() {
            DataType::Int64 => integers!(Int64Type),
            DataType::Int32 => integers!(Int32Type),
            DataType::Int16 => integers!(Int16Type),
            DataType::Int8 => integers!(Int8Type),
            DataType::Date32 => integers!(Date32Type),
            DataType::Timestamp(TimeUnit::Millisecond, None) => integers!(TimestampMillisecondType),
            DataType::UInt64 => {
                let values = column.as_primitive::<UInt64Type>().values();
                return integer_hashes(column, |row| values[row], out, then);
            }
            DataType::Utf8 => return string_hashes(column, out, then),
            _ => {}
        }
    }
    let mut encoder = KeyEncoder::new();
    let (offsets, bytes) = encoder.encode(columns, rows);
    out.extend(offsets.windows(2).map(|bounds| then(key_hash(&bytes[bounds[0]..bounds[1]]))));
}

/// The hash of a null in a key of one column.
fn null_hash() -> u32 {
    key_hash(&[0])
}

fn integer_hashes<T>(column: &ArrayRef, value: impl Fn(usize) -> u64, out: &mut Vec<T>, then: impl Fn(u32) -> T) {
    let hash = |row| {
        let mut bytes = [1; 9];
        bytes[1..].copy_from_slice(&value(row).to_le_bytes());
        key_hash(&bytes)
    };
    match column.nulls() {
        None => out.extend((0..column.len()).map(|row| then(hash(row)))),
        Some(nulls) => {
            out.extend((0..column.len()).map(|row| then(if nulls.is_valid(row) { hash(row) } else { null_hash() })));
        }
    }
}

/// Keys up to this size are laid out on the stack.
const SHORT_BYTES_MAX: usize = 64;

fn string_hashes<T>(column: &ArrayRef, out: &mut Vec<T>, then: impl Fn(u32) -> T) {
    let strings = column.as_string::<i32>();
    let mut short = [1; SHORT_BYTES_MAX];
    let mut long = Vec::new();
    out.reserve(strings.len());
    for row in 0..strings.len() {
        if strings.is_null(row) {
            out.push(then(null_hash()));
            continue;
        }
        let value = strings.value(row).as_bytes();
        let size = 5 + value.len();
        let length = (value.len() as u32).to_le_bytes();
        let hash = if size <= SHORT_BYTES_MAX {
            short[1..5].copy_from_slice(&length);
            short[5..size].copy_from_slice(value);
            key_hash(&short[..size])
        } else {
            long.clear();
            long.push(1);
            long.extend_from_slice(&length);
            long.extend_from_slice(value);
            key_hash(&long)
        };
        out.push(then(hash));
    }
}

#[cfg(test)]
mod tests;
