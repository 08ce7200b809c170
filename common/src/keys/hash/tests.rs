//! Golden vectors of key bytes and hashes, and the fast ways against the plain one.

use std::sync::Arc;

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array,
    StringArray, TimestampMillisecondArray, UInt64Array,
};
use proptest::prelude::*;

use super::*;

/// Column, its key's bytes in hex, its hash. Never to be changed: add below.
fn golden() -> Vec<(&'static str, Vec<ArrayRef>, &'static str, u32)> {
    let decimal = Decimal128Array::from(vec![-12_345]).with_precision_and_scale(10, 2).expect("fits");
    vec![
        ("null int64", vec![Arc::new(Int64Array::from(vec![None]))], "00", 0xc44bdff4),
        ("int64 0", vec![Arc::new(Int64Array::from(vec![0]))], "010000000000000000", 0x313c2dd2),
        ("int64 -1", vec![Arc::new(Int64Array::from(vec![-1]))], "01ffffffffffffffff", 0x53a5f4bc),
        ("int8 42", vec![Arc::new(Int8Array::from(vec![42]))], "012a00000000000000", 0x3d8e917a),
        ("int32 1000", vec![Arc::new(Int32Array::from(vec![1000]))], "01e803000000000000", 0x3de52e69),
        ("uint64 max", vec![Arc::new(UInt64Array::from(vec![u64::MAX]))], "01ffffffffffffffff", 0x53a5f4bc),
        ("date 1", vec![Arc::new(Date32Array::from(vec![1]))], "010100000000000000", 0xa048b5cb),
        ("timestamp", vec![Arc::new(TimestampMillisecondArray::from(vec![1_600_000_000_000]))], "0100806e8774010000", 0x5f5aeda8),
        ("boolean", vec![Arc::new(BooleanArray::from(vec![true]))], "0101", 0x070d80d6),
        ("float64 -0.0", vec![Arc::new(Float64Array::from(vec![-0.0]))], "010000000000000000", 0x313c2dd2),
        ("float64 NaN", vec![Arc::new(Float64Array::from(vec![f64::NAN]))], "01000000000000f87f", 0x6a33929c),
        ("float32 1.5", vec![Arc::new(Float32Array::from(vec![1.5]))], "01000000000000f83f", 0x2b68e3d9),
        ("decimal", vec![Arc::new(decimal)], "01c7cfffffffffffffffffffffffffffff", 0xd4566e24),
        ("empty string", vec![Arc::new(StringArray::from(vec![""]))], "0100000000", 0xd1dd927e),
        ("string", vec![Arc::new(StringArray::from(vec!["zürich"]))], "01070000007ac3bc72696368", 0xa34fc267),
        ("binary", vec![Arc::new(BinaryArray::from(vec![&[0u8, 255][..]]))], "010200000000ff", 0xb1406027),
        (
            "two columns",
            vec![Arc::new(Int64Array::from(vec![7])), Arc::new(StringArray::from(vec!["a"]))],
            "010700000000000000010100000061",
            0x76f9118d,
        ),
    ]
}

#[test]
fn bytes_and_hashes_are_the_golden_ones() {
    for (name, columns, bytes, hash) in golden() {
        let mut encoder = KeyEncoder::new();
        encoder.encode(&columns, 1);
        let hex: String = encoder.key(0).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, bytes, "{name}");
        let mut hashes = Vec::new();
        hash_keys(&columns, &mut hashes);
        assert_eq!(hashes, [hash], "{name}: {:#010x}", hashes[0]);
    }
}

#[test]
fn a_long_string_has_its_golden_hash() {
    let long: ArrayRef = Arc::new(StringArray::from(vec!["levada ".repeat(100)]));
    let mut hashes = Vec::new();
    hash_keys(&[long], &mut hashes);
    assert_eq!(hashes, [0x9b3198d4], "{:#010x}", hashes[0]);
}

fn plain_hashes(columns: &[ArrayRef]) -> Vec<u32> {
    let mut encoder = KeyEncoder::new();
    encoder.encode(columns, columns[0].len());
    (0..columns[0].len()).map(|row| key_hash(encoder.key(row))).collect()
}

proptest! {
    #[test]
    fn fast_ways_hash_as_the_plain_one(
        integers in prop::collection::vec(any::<Option<i64>>(), 1..50),
        strings in prop::collection::vec(any::<Option<String>>(), 1..50),
    ) {
        let unsigned: UInt64Array = integers.iter().map(|value| value.map(|value| value as u64)).collect();
        let columns: [ArrayRef; 3] =
            [Arc::new(Int64Array::from(integers)), Arc::new(StringArray::from(strings)), Arc::new(unsigned)];
        for column in columns {
            let column = column.slice(column.len() / 3, column.len() - column.len() / 3);
            let columns = [column];
            let mut hashes = Vec::new();
            hash_keys(&columns, &mut hashes);
            prop_assert_eq!(&hashes, &plain_hashes(&columns));
            let mut groups = Vec::new();
            key_groups(&columns, 200, &mut groups);
            prop_assert!(groups.iter().zip(&hashes).all(|(group, hash)| *group == key_group(*hash, 200)));
        }
    }
}
