//! What a filter keeps.

use arrow::array::{ArrayRef, BooleanArray, Int8Array};

use super::*;
use crate::testing::{Closures, context, filter, ints, numbers};

/// A filter of `n` by `predicate`, opened.
fn opened(predicate: fn(i64) -> Option<bool>) -> Box<dyn Operator> {
    let evaluate = move |batch: &RecordBatch| {
        let mask: BooleanArray = numbers(batch).into_iter().map(predicate).collect();
        Ok(Arc::new(mask) as ArrayRef)
    };
    let mut operator = build(&filter("f", "p"), "p", false, &Closures::default().with("p", evaluate)).unwrap();
    operator.open(&context("f", 8), Vec::new()).unwrap();
    operator
}

fn kept(operator: &mut dyn Operator, batch: RecordBatch) -> Option<RecordBatch> {
    operator.process(0, batch).unwrap();
    let kept = operator.poll().unwrap();
    assert!(operator.poll().unwrap().is_none());
    kept
}

#[test]
fn true_is_kept_and_null_is_false() {
    let mut operator = opened(|n| (n % 3 != 0).then_some(n % 2 == 0));
    assert_eq!(numbers(&kept(operator.as_mut(), ints(0..10)).unwrap()), [2, 4, 8]);
}

#[test]
fn a_batch_that_passes_whole_is_the_same_batch() {
    let mut operator = opened(|_| Some(true));
    let batch = ints(0..10);
    assert!(Arc::ptr_eq(kept(operator.as_mut(), batch.clone()).unwrap().column(0), batch.column(0)));
}

#[test]
fn nothing_kept_is_no_batch() {
    let mut operator = opened(|_| Some(false));
    assert!(kept(operator.as_mut(), ints(0..10)).is_none());
}

#[test]
fn a_predicate_that_does_not_compile_is_named() {
    let error = build(&filter("f", "nope"), "nope", false, &Closures::default()).err().unwrap();
    assert!(error.to_string().contains("\"nope\" does not compile"), "{error}");
}

#[test]
fn of_an_update_the_row_that_passes_alone_comes_or_goes() {
    let is_even = |batch: &RecordBatch| {
        let numbers = batch.column(1).as_primitive::<arrow::datatypes::Int64Type>();
        Ok(Arc::new(numbers.iter().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>()) as ArrayRef)
    };
    let mut spec = filter("f", "p");
    spec.input.changelog = true;
    let mut operator = build(&spec, "p", true, &Closures::default().with("p", is_even)).unwrap();
    operator.open(&context("f", 8), Vec::new()).unwrap();
    let (insert, before, after, delete) = (0, 1, 2, 3);
    // The last rows are an update that goes on in the next batch.
    let rows = [
        (before, 2),
        (after, 4),
        (before, 1),
        (after, 3),
        (before, 6),
        (after, 7),
        (before, 5),
        (after, 8),
        (insert, 10),
        (delete, 12),
        (before, 14),
    ];
    let changelog = |rows: &[(i8, i64)]| {
        let ops: ArrayRef = Arc::new(Int8Array::from_iter_values(rows.iter().map(|row| row.0)));
        let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
        RecordBatch::try_from_iter([("_op", ops), ("n", numbers)]).unwrap()
    };
    let out = kept(operator.as_mut(), changelog(&rows)).unwrap();
    let expected = [(before, 2), (after, 4), (delete, 6), (insert, 8), (insert, 10), (delete, 12), (delete, 14)];
    assert_eq!(out, changelog(&expected));
    let rest = kept(operator.as_mut(), changelog(&[(after, 16), (insert, 1)])).unwrap();
    assert_eq!(rest, changelog(&[(insert, 16)]));
}
