//! Round trips, limits, golden files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StringArray, StructArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, UInt16Type};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::keys::{KeyGroupRange, key_groups};

use super::*;
use crate::snapshot::{PieceReader, pieces, ready};

const NO_LIMIT: SizeLimit = SizeLimit { bytes_max: None };

fn meta(kind: StateKind) -> StateMeta {
    StateMeta { uid: Uid::new("counts"), name: "panes".into(), kind, schema: Arc::default() }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), column.is_nullable())).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, column)| column).collect())
        .expect("columns match the schema")
}

/// One column of every type, `rows` long, with nulls.
fn every_type(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let some = |row: usize| (!row.is_multiple_of(5)).then_some(row as i64 - 3);
    let ints = || (0..rows).map(some);
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values((0..rows as i64).map(|row| row - 2)));
    let bound = |name| Arc::new(Field::new(name, times.data_type().clone(), false));
    let window = StructArray::from(vec![(bound("start"), Arc::clone(&times)), (bound("end"), Arc::clone(&times))]);
    vec![
        ("key.id", Arc::new(ints().collect::<Int64Array>())),
        ("key.name", Arc::new(ints().map(|n| n.map(|n| format!("name {n}"))).collect::<StringArray>())),
        ("namespace", Arc::new(window)),
        ("bool", Arc::new(ints().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>())),
        ("i8", Arc::new(ints().map(|n| n.map(|n| n as i8)).collect::<Int8Array>())),
        ("i16", Arc::new(ints().map(|n| n.map(|n| n as i16)).collect::<Int16Array>())),
        ("i32", Arc::new(ints().map(|n| n.map(|n| n as i32)).collect::<Int32Array>())),
        ("u64", Arc::new(ints().map(|n| n.map(|n| n as u64)).collect::<UInt64Array>())),
        ("f32", Arc::new(ints().map(|n| n.map(|n| n as f32 / 2.0)).collect::<Float32Array>())),
        ("f64", Arc::new(ints().map(|n| n.map(|n| n as f64 / 3.0)).collect::<Float64Array>())),
        ("date", Arc::new(ints().map(|n| n.map(|n| n as i32)).collect::<Date32Array>())),
        ("decimal", Arc::new(ints().map(|n| n.map(i128::from)).collect::<Decimal128Array>())),
        ("binary", Arc::new(ints().map(|n| n.map(|n| vec![n as u8; 3])).collect::<BinaryArray>())),
    ]
}

fn encoded(state: &StateMeta, pieces: PieceReader, limit: SizeLimit) -> Result<(EncodedState, Bytes), EncodeError> {
    let mut out = Vec::new();
    let state = encode(state, 128, pieces, limit, &mut out)?;
    Ok((state, out.into()))
}

/// The rows without their group, as text, sorted.
fn rows_of(batches: &[RecordBatch], skip: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<usize> = (skip..batch.num_columns()).collect();
        let batch = batch.project(&columns).expect("columns exist");
        for row in 0..batch.num_rows() {
            rows.push(format!("{:?}", batch.slice(row, 1).columns()));
        }
    }
    rows.sort();
    rows
}

#[test]
fn every_type_comes_back_sorted_by_group() {
    let piece = batch(every_type(3000));
    let parts = [piece.slice(0, 1000), piece.slice(1000, 1), piece.slice(1001, 1999)];
    let (state, bytes) = encoded(&meta(StateKind::Keyed), ready(parts), NO_LIMIT).expect("it is encoded");
    assert_eq!((state.rows, state.bytes), (3000, bytes.len() as u64));
    FileBytes::from(bytes.clone()).verify(state.crc32c).expect("the bytes are those that were written");
    let back = decode(bytes.clone()).expect("it is decoded");
    assert_eq!((&back.meta, back.max_parallelism), (&meta(StateKind::Keyed), 128));
    assert_eq!(rows_of(&back.batches, 1), rows_of(&[piece], 0));

    let mut last = 0;
    let mut by_group = BTreeMap::<u16, usize>::new();
    for batch in &back.batches {
        let mut expected = Vec::new();
        key_groups(&batch.columns()[1..3], 128, &mut expected);
        assert_eq!(batch.column(0).as_primitive::<UInt16Type>().values(), &expected);
        for group in expected {
            assert!(group >= last, "sorted by group");
            last = group;
            *by_group.entry(group).or_default() += 1;
        }
    }
    let (least, greatest) = (*by_group.keys().next().expect("rows"), last);
    assert_eq!(state.key_groups, Some(KeyGroupRange { start: least, end: greatest }));
    for (start, end) in [(0, 127), (0, 0), (17, 40), (100, 127), (greatest, greatest)] {
        let part = decode_range(bytes.clone(), KeyGroupRange { start, end }).expect("it is decoded");
        let rows: usize = part.batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, by_group.range(start..=end).map(|(_, rows)| rows).sum::<usize>(), "{start}..={end}");
    }
}

#[test]
fn large_groups_are_cut_and_small_ones_share_a_batch() {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..40).map(|n| format!("{n}").repeat(50_000))));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..40).map(|n| n / 30)));
    let (state, bytes) =
        encoded(&meta(StateKind::Keyed), ready([batch(vec![("key.id", keys), ("text", texts)])]), NO_LIMIT).expect("encoded");
    let back = decode(bytes.clone()).expect("decoded");
    assert!(back.batches.len() > 3, "{} bytes are one batch", bytes.len());
    assert_eq!(back.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), state.rows as usize);
    let mut groups = Vec::new();
    key_groups(&[Arc::new(Int64Array::from(vec![0])) as ArrayRef], 128, &mut groups);
    let part = decode_range(bytes, KeyGroupRange { start: groups[0], end: groups[0] }).expect("decoded");
    assert_eq!(part.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 30);
    let (_, small) = encoded(&meta(StateKind::Keyed), ready([batch(every_type(200))]), NO_LIMIT).expect("encoded");
    assert_eq!(decode(small).expect("decoded").batches.len(), 1);
}

#[test]
fn no_rows_and_no_key_are_states_too() {
    let (state, bytes) = encoded(&meta(StateKind::Keyed), ready([]), NO_LIMIT).expect("encoded");
    assert_eq!((state.rows, state.key_groups), (0, None));
    assert!(decode(bytes.clone()).expect("decoded").batches.is_empty());
    assert!(decode_range(bytes, KeyGroupRange { start: 0, end: 127 }).expect("decoded").batches.is_empty());

    let one: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let (state, bytes) = encoded(&meta(StateKind::Keyed), ready([batch(vec![("n", one)])]), NO_LIMIT).expect("encoded");
    let group = state.key_groups.expect("a group").start;
    assert_eq!(decode(bytes).expect("decoded").batches[0].column(0).as_primitive::<UInt16Type>().value(0), group);
}

#[test]
fn operator_state_keeps_its_order() {
    let entries = |texts: Vec<&str>| batch(vec![(ENTRY_COLUMN, Arc::new(StringArray::from(texts)) as ArrayRef)]);
    let list = meta(StateKind::OperatorList);
    let (state, bytes) = encoded(&list, ready([entries(vec!["b", "a"]), entries(vec!["c", "ä"])]), NO_LIMIT).expect("encoded");
    assert_eq!((state.rows, state.key_groups), (4, None));
    for back in [decode(bytes.clone()), decode_range(bytes, KeyGroupRange { start: 3, end: 4 })] {
        let back = back.expect("decoded");
        let texts =
            back.batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().map(|text| text.map(String::from)));
        assert_eq!(texts.flatten().collect::<Vec<_>>(), ["b", "a", "c", "ä"]);
        assert_eq!(back.meta, list);
    }
}

#[test]
fn the_limit_is_exact() {
    let piece = batch(every_type(500));
    let size = encoded(&meta(StateKind::Keyed), ready([piece.clone()]), NO_LIMIT).expect("encoded").0.bytes;
    let at = |bytes_max| encoded(&meta(StateKind::Keyed), ready([piece.clone()]), SizeLimit { bytes_max: Some(bytes_max) });
    for fits in [size, size + 1] {
        assert_eq!(at(fits).expect("it fits").0.bytes, size);
    }
    match at(size - 1) {
        Err(EncodeError::TooLarge { counted, limit }) => assert_eq!((counted, limit), (size, size - 1)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(at(10), Err(EncodeError::TooLarge { limit: 10, .. })));
}

#[test]
fn an_abandoned_snapshot_is_no_state() {
    let (sender, reader) = pieces();
    sender.send(batch(every_type(3)));
    drop(sender);
    assert!(matches!(encoded(&meta(StateKind::Keyed), reader, NO_LIMIT), Err(EncodeError::Abandoned(_))));
}

#[test]
fn every_flipped_bit_is_seen() {
    let (state, bytes) = encoded(&meta(StateKind::Keyed), ready([batch(every_type(2))]), NO_LIMIT).expect("encoded");
    let mut damaged = bytes.to_vec();
    let verify = |bytes: &[u8]| FileBytes::from(Bytes::copy_from_slice(bytes)).verify(state.crc32c);
    for at in 0..damaged.len() {
        damaged[at] ^= 1 << (at % 8);
        assert!(verify(&damaged).is_err(), "byte {at}");
        damaged[at] ^= 1 << (at % 8);
    }
    verify(&damaged).expect("they are whole again");
}

#[test]
fn what_is_no_state_is_refused() {
    assert!(matches!(decode(Bytes::from_static(b"no arrow")), Err(DecodeError::Arrow { bytes: 8, .. })));
    let mut plain = Vec::new();
    let rows = batch(every_type(1));
    let mut writer = arrow::ipc::writer::FileWriter::try_new(&mut plain, &rows.schema()).expect("a file");
    writer.write(&rows).expect("rows");
    writer.finish().expect("an end");
    drop(writer);
    assert!(matches!(decode(plain.into()), Err(DecodeError::Metadata { field: VERSION_FIELD, .. })));
    let mut metadata = to_metadata(&meta(StateKind::Keyed), 128);
    metadata.insert(VERSION_FIELD.into(), "2".into());
    assert!(matches!(from_metadata(&metadata), Err(DecodeError::Version { found: 2 })));
}

/// The states whose files are kept for ever.
fn golden_states() -> Vec<(&'static str, StateMeta, Vec<RecordBatch>)> {
    let entries: ArrayRef = Arc::new(StringArray::from(vec!["{\"file\":\"a\",\"at\":17}", ""]));
    vec![
        ("keyed-v1.arrow", meta(StateKind::Keyed), vec![batch(every_type(12))]),
        ("operator-list-v1.arrow", meta(StateKind::OperatorList), vec![batch(vec![(ENTRY_COLUMN, entries)])]),
    ]
}

/// Write a new golden file with `LEVADA_WRITE_GOLDEN=1`, under a new version's name; the old ones stay and are read.
#[test]
fn golden_files_are_read_and_written_alike() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, state, rows) in golden_states() {
        let path = folder.join(name);
        let (_, bytes) = encoded(&state, ready(rows.clone()), NO_LIMIT).expect("encoded");
        if std::env::var_os("LEVADA_WRITE_GOLDEN").is_some() && !path.exists() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &bytes).expect("a file");
        }
        let golden = Bytes::from(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        let back = decode(golden.clone()).expect("it is read");
        let skip = usize::from(state.kind == StateKind::Keyed);
        assert_eq!(rows_of(&back.batches, skip), rows_of(&rows, 0), "{name}");
        assert_eq!(back.meta, state);
        assert!(bytes == golden, "{name}: the format has changed; raise FORMAT_VERSION and keep reading the old one");
    }
}

#[test]
fn the_window_of_a_pane_is_a_struct_of_two_times() {
    let (_, bytes) = encoded(&meta(StateKind::Keyed), ready([batch(every_type(4))]), NO_LIMIT).expect("encoded");
    let back = decode(bytes).expect("decoded");
    let schema = back.batches[0].schema();
    let DataType::Struct(fields) = schema.field_with_name("namespace").expect("it is there").data_type() else {
        panic!("a struct");
    };
    assert_eq!(fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["start", "end"]);
}
