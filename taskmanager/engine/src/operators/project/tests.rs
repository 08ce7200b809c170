//! Columns computed, lists unrolled.

use arrow::array::{Int8Array, Int64Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type};
use levada_common::ids::Uid;
use levada_common::plan::{BadRecordPolicy, OperatorKind};
use levada_common::types::{Column, StreamSchema};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::function::Functions;
use crate::testing::{Closures, column, context, ints, numbers, schema};

fn spec(columns: &[(&str, LogicalType)], unnest: Option<usize>, changelog: bool) -> OperatorSpec {
    let output: Vec<Column> = columns.iter().map(|(name, ty)| column(name, ty.clone())).collect();
    let expressions = columns.iter().map(|(name, _)| (name.to_string(), name.to_string())).collect();
    OperatorSpec {
        uid: Uid::new("p"),
        clause: "select".into(),
        kind: OperatorKind::Project { columns: expressions, unnest },
        input: StreamSchema { changelog, ..schema() },
        output: StreamSchema { changelog, ..StreamSchema::append(output) },
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    }
}

fn opened(spec: &OperatorSpec, closures: Closures, rows_max: usize) -> Box<dyn Operator> {
    let mut operator = crate::operators::build(spec, &closures, &Functions::default()).unwrap();
    operator.open(&context("p", rows_max), Vec::new()).unwrap();
    operator
}

fn int_column(batch: &RecordBatch, place: usize) -> Vec<Option<i64>> {
    batch.column(place).as_primitive::<Int64Type>().iter().collect()
}

/// A list for each row; a `None` may hide elements, as a null list may.
fn lists(rows: &[Option<Vec<i64>>], hidden: usize) -> ListArray {
    let (mut values, mut offsets, mut valid) = (vec![-1], vec![1_i32], Vec::new());
    for row in rows {
        match row {
            Some(elements) => values.extend(elements),
            None => values.extend(std::iter::repeat_n(-1, hidden)),
        }
        offsets.push(values.len() as i32);
        valid.push(row.is_some());
    }
    let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
    let field = Arc::new(Field::new("item", DataType::Int64, true));
    ListArray::new(field, OffsetBuffer::new(offsets.into()), Arc::new(Int64Array::from(values)), nulls)
}

#[test]
fn columns_are_computed_in_order() {
    let spec = spec(&[("double", LogicalType::Int64), ("n", LogicalType::Int64)], None, false);
    let double =
        |batch: &RecordBatch| Ok(Arc::new(Int64Array::from_iter_values(numbers(batch).iter().map(|n| n * 2))) as ArrayRef);
    let mut operator = opened(&spec, Closures::default().with("double", double), 8);
    operator.process(0, ints([1, 2])).unwrap();
    let batch = operator.poll().unwrap().unwrap();
    assert_eq!(batch.schema(), spec.output.to_arrow());
    assert_eq!((int_column(&batch, 0), int_column(&batch, 1)), (vec![Some(2), Some(4)], vec![Some(1), Some(2)]));
    assert!(operator.poll().unwrap().is_none());
}

#[test]
fn the_row_kind_is_carried_along() {
    let spec = spec(&[("m", LogicalType::Int64)], None, true);
    let m = |batch: &RecordBatch| Ok(batch.column(1).clone());
    let mut operator = opened(&spec, Closures::default().with("m", m), 8);
    let ops = Arc::new(Int8Array::from(vec![0, 2]));
    let input = RecordBatch::try_new(spec.input.to_arrow(), vec![ops, ints([7, 8]).column(0).clone()]).unwrap();
    operator.process(0, input).unwrap();
    let batch = operator.poll().unwrap().unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int8Type>().values(), &[0, 2]);
    assert_eq!(int_column(&batch, 1), [Some(7), Some(8)]);
}

/// Against rows unrolled one by one: nulls, empty lists, hidden elements, lists longer than a batch.
#[test]
fn lists_are_unrolled_as_row_by_row() {
    let mut cuts = 0;
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let rows: Vec<Option<Vec<i64>>> = (0..rng.random_range(1..12))
            .map(|_| rng.random_bool(0.8).then(|| (0..rng.random_range(0..9)).map(|_| rng.random_range(0..99)).collect()))
            .collect();
        let (hidden, rows_max) = (rng.random_range(0..3), rng.random_range(1..20));
        let list = lists(&rows, hidden);
        let spec = spec(&[("n", LogicalType::Int64), ("element", LogicalType::Int64)], Some(1), false);
        let element = move |batch: &RecordBatch| {
            assert_eq!(batch.num_rows(), list.len());
            Ok(Arc::new(list.clone()) as ArrayRef)
        };
        let mut operator = opened(&spec, Closures::default().with("element", element), rows_max);
        operator.process(0, ints(0..rows.len() as i64)).unwrap();
        let mut got = Vec::new();
        while let Some(batch) = operator.poll().unwrap() {
            assert!((1..=rows_max).contains(&batch.num_rows()), "seed {seed}");
            got.extend(int_column(&batch, 0).into_iter().flatten().zip(int_column(&batch, 1).into_iter().flatten()));
            cuts += 1;
        }
        let unrolled = |(row, list): (usize, &Option<Vec<i64>>)| {
            let elements = list.clone().unwrap_or_default();
            elements.into_iter().map(move |element| (row as i64, element)).collect::<Vec<_>>()
        };
        let expected: Vec<(i64, i64)> = rows.iter().enumerate().flat_map(unrolled).collect();
        assert_eq!(got, expected, "seed {seed}");
    }
    assert!(cuts > 1_000, "the run is empty: {cuts} batches");
}

#[test]
fn a_lone_list_is_unrolled_without_a_copy() {
    let spec = spec(&[("element", LogicalType::Int64)], Some(0), false);
    let list = lists(&[Some(vec![1, 2]), Some(vec![]), Some(vec![3])], 0);
    let values = list.values().to_data().buffers()[0].as_ptr() as usize;
    let element = move |_: &RecordBatch| Ok(Arc::new(list.clone()) as ArrayRef);
    let mut operator = opened(&spec, Closures::default().with("element", element), 8);
    operator.process(0, ints([0, 0, 0])).unwrap();
    let batch = operator.poll().unwrap().unwrap();
    assert_eq!(int_column(&batch, 0), [Some(1), Some(2), Some(3)]);
    let given = batch.column(0).as_primitive::<Int64Type>().values().as_ptr() as usize;
    assert_eq!(given, values + 8, "the element hidden before the first is skipped, nothing is moved");
}
