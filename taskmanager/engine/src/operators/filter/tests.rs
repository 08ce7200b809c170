//! What a filter keeps.

use arrow::array::{ArrayRef, BooleanArray};

use super::*;
use crate::testing::{Closures, context, filter, ints, numbers};

/// A filter of `n` by `predicate`, opened.
fn opened(predicate: fn(i64) -> Option<bool>) -> Box<dyn Operator> {
    let evaluate = move |batch: &RecordBatch| {
        let mask: BooleanArray = numbers(batch).into_iter().map(predicate).collect();
        Ok(Arc::new(mask) as ArrayRef)
    };
    let mut operator = build(&filter("f", "p"), "p", &Closures::default().with("p", evaluate)).unwrap();
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
    let error = build(&filter("f", "nope"), "nope", &Closures::default()).err().unwrap();
    assert!(error.to_string().contains("\"nope\" does not compile"), "{error}");
}
