use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, StringArray, StructArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use arrow::record_batch::RecordBatchOptions;

use super::*;

/// A column of every type of a graph, with nulls.
fn every_type(rows: usize) -> RecordBatch {
    fn column<T>(rows: usize, value: impl Fn(usize) -> T) -> Vec<Option<T>> {
        (0..rows).map(|row| (row % 7 != 3).then(|| value(row))).collect()
    }
    let text = |row: usize| "x".repeat(row % 40) + "ä";
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(column(rows, |row| vec![Some(row as i64), None]));
    let inner: ArrayRef = Arc::new(StringArray::from(column(rows, text)));
    let fields = Fields::from(vec![Field::new("s", DataType::Utf8, true)]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("boolean", Arc::new(BooleanArray::from(column(rows, |row| row % 2 == 0)))),
        ("int8", Arc::new(Int8Array::from(column(rows, |row| row as i8)))),
        ("int16", Arc::new(Int16Array::from(column(rows, |row| row as i16)))),
        ("int32", Arc::new(Int32Array::from(column(rows, |row| row as i32)))),
        ("int64", Arc::new(Int64Array::from(column(rows, |row| -(row as i64))))),
        ("uint64", Arc::new(UInt64Array::from(column(rows, |row| u64::MAX - row as u64)))),
        ("float32", Arc::new(Float32Array::from(column(rows, |row| row as f32)))),
        ("float64", Arc::new(Float64Array::from(column(rows, |row| row as f64 / 3.0)))),
        ("decimal", Arc::new(Decimal128Array::from(column(rows, |row| row as i128)).with_precision_and_scale(38, 4).unwrap())),
        ("string", Arc::new(StringArray::from(column(rows, text)))),
        ("binary", Arc::new(BinaryArray::from_iter(column(rows, |row| vec![row as u8; row % 5])))),
        ("date", Arc::new(Date32Array::from(column(rows, |row| row as i32)))),
        ("timestamp", Arc::new(TimestampMillisecondArray::from(column(rows, |row| row as i64)))),
        ("list", Arc::new(list)),
        ("struct", Arc::new(StructArray::new(fields, vec![inner], None))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn frames(element: Element, schema: &SchemaRef) -> Vec<Bytes> {
    let mut encoder = FrameEncoder::new(schema).unwrap();
    let mut frames = Vec::new();
    encoder.encode(element, &mut |frame| frames.push(frame.to_bytes())).unwrap();
    frames
}

fn batches(frames: Vec<Bytes>, schema: &SchemaRef) -> Vec<RecordBatch> {
    let decoded = frames.into_iter().map(|frame| decode(frame, schema).unwrap());
    decoded
        .map(|element| match element {
            Element::Batch(batch) => batch,
            other => panic!("not a batch: {other:?}"),
        })
        .collect()
}

#[test]
fn every_type_survives_whole_and_sliced() {
    let batch = every_type(1000);
    let schema = batch.schema();
    for (start, rows) in [(0, 1000), (0, 1), (999, 1), (3, 501), (17, 64)] {
        let slice = batch.slice(start, rows);
        let got = batches(frames(Element::Batch(slice.clone()), &schema), &schema);
        assert_eq!(got, [slice], "rows {start} to {}", start + rows);
    }
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let schema: SchemaRef = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(8192));
    let batch = RecordBatch::try_new_with_options(schema.clone(), Vec::new(), &options).unwrap();
    let got = batches(frames(Element::Batch(batch), &schema), &schema);
    assert_eq!(got.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [8192]);
}

#[test]
fn a_large_batch_is_cut_between_rows() {
    let batch = every_type(30_000);
    let schema = batch.schema();
    let frames = frames(Element::Batch(batch.clone()), &schema);
    assert!(frames.len() > 10, "{} frames", frames.len());
    for frame in &frames {
        assert!(frame.len() <= FRAME_BYTES_TARGET, "a frame of {} bytes", frame.len());
    }
    let smallest = frames.iter().map(Bytes::len).min().unwrap();
    assert!(smallest > FRAME_BYTES_TARGET / 8, "cut too fine: {smallest} bytes");
    assert_eq!(concat_batches(&schema, &batches(frames, &schema)).unwrap(), batch);
}

#[test]
fn a_large_row_among_small_ones_travels_alone() {
    let large = "y".repeat(4 * 1024 * 1024);
    let texts: Vec<&str> = (0..100).map(|row| if row == 50 { large.as_str() } else { "small" }).collect();
    let column: ArrayRef = Arc::new(StringArray::from(texts));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let schema = batch.schema();
    let frames = frames(Element::Batch(batch.clone()), &schema);
    let over: Vec<usize> = frames.iter().map(Bytes::len).filter(|bytes| *bytes > FRAME_BYTES_TARGET).collect();
    assert!(matches!(over[..], [bytes] if bytes < FRAME_BYTES_MAX), "{over:?}");
    assert_eq!(concat_batches(&schema, &batches(frames, &schema)).unwrap(), batch);
}

#[test]
fn a_row_above_the_frame_is_the_users_fault() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["z".repeat(FRAME_BYTES_MAX)]));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let error = FrameEncoder::new(&batch.schema()).unwrap().encode(Element::Batch(batch), &mut |_| {}).unwrap_err();
    assert_eq!((error.fault(), error.retry()), (Fault::User, Retry::Never));
}

#[test]
fn signals_survive() {
    let schema: SchemaRef = Arc::new(Schema::empty());
    let barrier = Barrier::checkpoint(CheckpointId(u64::MAX));
    let elements = [Element::Watermark(Watermark::MIN), Element::Idle, Element::Barrier(barrier), Element::EndOfData];
    for element in elements {
        let ends = matches!(element, Element::EndOfData);
        let text = format!("{element:?}");
        let mut frames = frames(element, &schema);
        let frame = frames.pop().unwrap();
        assert_eq!(is_end_of_data(&frame), ends);
        assert_eq!(format!("{:?}", decode(frame, &schema).unwrap()), text);
    }
}

#[test]
fn broken_frames_are_errors() {
    let batch = every_type(10);
    let schema = batch.schema();
    let good = frames(Element::Batch(batch), &schema).remove(0);
    for bad in [
        Bytes::new(),
        Bytes::from_static(&[9]),
        Bytes::from_static(&[1, 0]),
        good.slice(..5),
        good.slice(..100),
        good.slice(..good.len() - 1),
    ] {
        assert_eq!(decode(bad, &schema).unwrap_err().fault(), Fault::External);
    }
}
