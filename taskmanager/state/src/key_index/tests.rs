//! The index against a map from each row's canonical key bytes to an id.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    StringArray, TimestampMillisecondArray, UInt64Array, new_null_array,
};
use arrow::compute::{cast, concat};
use levada_common::keys::{KeyEncoder, normalise_key_column};
use proptest::prelude::*;

use super::*;

/// Interns `batches` and compares ids, order and keys with the naive model.
fn check(batches: &[Vec<ArrayRef>]) {
    let types: Vec<DataType> = batches[0].iter().map(|column| column.data_type().clone()).collect();
    let mut index = KeyIndex::new(&types);
    for round in 0..2 {
        let (mut model, mut first) = (HashMap::new(), Vec::new());
        let (mut encoder, mut seen) = (KeyEncoder::new(), 0);
        for columns in batches {
            let rows = columns[0].len();
            let (mut ids, mut found) = (Vec::new(), Vec::new());
            index.find(columns, rows, &mut found);
            index.intern(columns, rows, &mut ids);
            encoder.encode(columns, rows);
            let known = |row: usize| model.get(encoder.key(row)).copied().unwrap_or(ABSENT);
            assert_eq!(found, (0..rows).map(known).collect::<Vec<_>>(), "round {round}");
            for (row, id) in ids.iter().enumerate() {
                let next = model.len() as u32;
                let expected = *model.entry(encoder.key(row).to_vec()).or_insert(next);
                assert_eq!(*id, expected, "round {round}, row {}", seen + row);
                if expected == next {
                    first.push((seen + row) as u32);
                }
            }
            seen += rows;
        }
        assert_eq!(index.len(), model.len());
        let whole: Vec<ArrayRef> = (0..types.len())
            .map(|at| concat(&batches.iter().map(|columns| columns[at].as_ref()).collect::<Vec<_>>()).expect("one type"))
            .map(|column| {
                arrow::compute::take(&column, &arrow::array::UInt32Array::from(first.clone()), None).expect("rows exist")
            })
            .map(normalise_key_column)
            .collect();
        let keys = index.keys(Rows::first(index.len()));
        assert_eq!(format!("{keys:?}"), format!("{whole:?}"));
        let backwards: Vec<u32> = (0..index.len() as u32).rev().collect();
        for (all, some) in keys.iter().zip(index.keys(Rows::Ids(&backwards))) {
            let expected =
                arrow::compute::take(all, &arrow::array::UInt32Array::from(backwards.clone()), None).expect("rows exist");
            assert_eq!(format!("{some:?}"), format!("{expected:?}"));
        }
        index.clear();
        assert!(index.is_empty());
    }
}

fn words() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        4 => "[a-c]{0,3}".prop_map(Some),
        4 => "[a-b]{14,18}".prop_map(Some),
        2 => "[äß]{6,40}".prop_map(Some),
    ]
}

fn numbers() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![1 => Just(None), 6 => (-20i64..20).prop_map(Some), 2 => any::<i64>().prop_map(Some)]
}

proptest! {
    #[test]
    fn one_word_column(batches in prop::collection::vec(prop::collection::vec(numbers(), 0..700), 1..4)) {
        for target in [DataType::Int64, DataType::Int8, DataType::UInt64, DataType::Float64, DataType::Float32, DataType::Boolean] {
            let columns = batches.iter().map(|batch| {
                let column: ArrayRef = Arc::new(Int64Array::from(batch.clone()));
                vec![cast(&column, &target).expect("integers cast; what does not fit is null")]
            });
            check(&columns.collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_text_column(batches in prop::collection::vec(prop::collection::vec(words(), 0..600), 1..4)) {
        let strings: Vec<Vec<ArrayRef>> =
            batches.iter().map(|batch| vec![Arc::new(StringArray::from(batch.clone())) as ArrayRef]).collect();
        check(&strings);
        let bytes = strings.iter().map(|columns| vec![cast(&columns[0], &DataType::Binary).expect("a string has bytes")]);
        check(&bytes.collect::<Vec<_>>());
        let sliced = strings.iter().map(|columns| vec![columns[0].slice(columns[0].len() / 3, columns[0].len() / 2)]);
        check(&sliced.collect::<Vec<_>>());
    }

    #[test]
    fn several_columns(rows in prop::collection::vec((words(), numbers(), numbers()), 0..500)) {
        let texts: ArrayRef = Arc::new(rows.iter().map(|row| row.0.clone()).collect::<StringArray>());
        let numbers: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
        let others: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>());
        for target in [DataType::UInt64, DataType::Float32, DataType::Float64, DataType::Int16, DataType::Boolean] {
            let others = cast(&others, &target).expect("integers cast; what does not fit is null");
            check(&[vec![Arc::clone(&texts), Arc::clone(&numbers), others]]);
        }
    }
}

#[test]
fn every_type_is_a_key() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.0])),
        Arc::new(Float32Array::from(vec![0.0, -0.0, f32::NAN, -f32::NAN, 1.0])),
        Arc::new(UInt64Array::from(vec![0, u64::MAX, 1, u64::MAX, 0])),
        Arc::new(BooleanArray::from(vec![true, false, true, false, true])),
        Arc::new(Date32Array::from(vec![-1, 0, -1, 3, 0])),
        Arc::new(TimestampMillisecondArray::from(vec![-1, 0, -1, 3, 0])),
        Arc::new(Decimal128Array::from(vec![1, -1, 1, i128::MAX >> 2, 0]).with_precision_and_scale(38, 2).expect("it fits")),
        Arc::new(StringArray::from(vec!["", "a", "", "exactly sixteen!", "seventeen letters"])),
        Arc::new(BinaryArray::from(vec![&b""[..], &b"\0"[..], &b"\0\0"[..], &b"\0"[..], &b""[..]])),
    ];
    for column in &columns {
        let null = new_null_array(column.data_type(), 2);
        check(&[vec![Arc::clone(column)], vec![null], vec![Arc::clone(column)]]);
        check(&[vec![Arc::clone(column), Arc::clone(&columns[0])]]);
    }
    check(&[columns]);
}

#[test]
fn without_columns_there_is_one_row() {
    let mut index = KeyIndex::new(&[]);
    let mut ids = Vec::new();
    index.intern(&[], 0, &mut ids);
    assert!(index.is_empty());
    index.intern(&[], 3, &mut ids);
    assert_eq!((index.len(), ids), (1, vec![0, 0, 0]));
}

#[test]
fn a_table_grows_to_a_million_keys() {
    let mut index = KeyIndex::new(&[DataType::Int64]);
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values((0..1_000_000).map(|n| n * 1024)));
    let mut ids = Vec::new();
    index.intern(std::slice::from_ref(&column), column.len(), &mut ids);
    index.intern(&[column], 1_000_000, &mut ids);
    assert!(ids.iter().enumerate().all(|(row, id)| *id as usize == row % 1_000_000));
    assert!(index.memory_bytes() < 40 << 20, "{} bytes for a million keys", index.memory_bytes());
}

/// Keys that come and go: ids of removed keys are used again, and no key is ever found under two ids or by another's.
fn check_removal(batches: &[ArrayRef], removals: &[Vec<prop::sample::Index>]) {
    let types = [batches[0].data_type().clone()];
    let (mut index, mut model) = (KeyIndex::new(&types), HashMap::<Vec<u8>, u32>::new());
    let mut encoder = KeyEncoder::new();
    for (column, removed) in batches.iter().zip(removals) {
        let columns = [normalise_key_column(Arc::clone(column))];
        let (mut ids, mut reused, before) = (Vec::new(), Vec::new(), index.len() as u32);
        index.intern(&columns, column.len(), &mut ids);
        index.drain_reused(&mut reused);
        encoder.encode(&columns, column.len());
        for (row, id) in ids.iter().enumerate() {
            let known = model.get(encoder.key(row)).copied();
            let is_new = known.is_none() && (*id >= before || reused.contains(id));
            assert!(known == Some(*id) || is_new, "row {row} has id {id}, known {known:?}, reused {reused:?}");
            assert_eq!(model.iter().filter(|(key, of)| *of == id && *key != encoder.key(row)).count(), 0);
            model.insert(encoder.key(row).to_vec(), *id);
        }
        assert_eq!(index.live(), model.len());
        for at in removed {
            if model.is_empty() {
                break;
            }
            let mut keys: Vec<&Vec<u8>> = model.keys().collect();
            keys.sort();
            let key = keys[at.index(keys.len())].clone();
            index.remove(model.remove(&key).expect("it was among the keys"));
        }
        let mut live: Vec<u32> = model.values().copied().collect();
        live.sort();
        let keys = index.keys(Rows::Ids(&live));
        encoder.encode(&keys, live.len());
        for (row, id) in live.iter().enumerate() {
            assert_eq!(model.get(encoder.key(row)), Some(id));
        }
    }
}

fn removals() -> impl Strategy<Value = Vec<Vec<prop::sample::Index>>> {
    prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..60), 6)
}

proptest! {
    #[test]
    fn removed_words(batches in prop::collection::vec(prop::collection::vec(numbers(), 1..80), 1..6), removed in removals()) {
        let columns: Vec<ArrayRef> = batches.into_iter().map(|batch| Arc::new(Int64Array::from(batch)) as ArrayRef).collect();
        check_removal(&columns, &removed);
    }

    #[test]
    fn removed_texts(batches in prop::collection::vec(prop::collection::vec(words(), 1..80), 1..6), removed in removals()) {
        let columns: Vec<ArrayRef> = batches.into_iter().map(|batch| Arc::new(StringArray::from(batch)) as ArrayRef).collect();
        check_removal(&columns, &removed);
    }
}

#[test]
fn a_large_index_is_cut_into_segments_and_keeps_its_keys() {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300_000).map(|key| key * 7)));
    let mut index = KeyIndex::new(&[DataType::Int64]);
    for round in 0..2 {
        let mut ids = Vec::new();
        index.intern(std::slice::from_ref(&keys), keys.len(), &mut ids);
        assert!(ids.iter().copied().eq(0..300_000), "round {round}");
    }
    (0..300_000).filter(|id| id % 3 == 0).for_each(|id| index.remove(id));
    assert_eq!((index.live(), index.len()), (200_000, 300_000));
    let (mut ids, mut reused) = (Vec::new(), Vec::new());
    index.intern(std::slice::from_ref(&keys), keys.len(), &mut ids);
    index.drain_reused(&mut reused);
    assert!(ids.iter().enumerate().filter(|(row, _)| row % 3 > 0).all(|(row, id)| *id as usize == row));
    assert_eq!((index.live(), index.len(), reused.len()), (300_000, 300_000, 100_000));
}
