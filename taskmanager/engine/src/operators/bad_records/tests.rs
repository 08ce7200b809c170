//! Finding bad rows, counting them once, keeping the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use levada_common::types::{LogicalType, StreamSchema};
use proptest::prelude::*;

use super::*;
use crate::testing::{column, context, filter, ints, numbers};

/// Doubles `n`; cannot do it for multiples of `bad`.
struct FailsOn {
    bad: i64,
    calls: AtomicUsize,
}

impl Expression for FailsOn {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match numbers(batch).iter().find(|n| *n % self.bad == 0) {
            Some(n) => Err(format!("{n} is a multiple of {}", self.bad)),
            None => Ok(Arc::new(Int64Array::from_iter_values(numbers(batch).iter().map(|n| n * 2)))),
        }
    }
}

fn fails_on(bad: i64) -> Arc<dyn Expression> {
    Arc::new(FailsOn { bad, calls: AtomicUsize::new(0) })
}

fn bad_records(policy: BadRecordPolicy) -> (BadRecords, Arc<NodeMetrics>) {
    let spec = OperatorSpec { bad_records: policy, ..filter("node", "p") };
    let metrics = context("node", 8).metrics;
    let mut bad = BadRecords::new(&spec);
    bad.open(&metrics);
    (bad, metrics)
}

#[test]
fn bad_rows_are_dropped_and_counted_once() {
    let (bad, metrics) = bad_records(BadRecordPolicy::Drop);
    let (batch, columns) = bad.evaluate(ints(1..=100), &[fails_on(7), fails_on(14)]).unwrap();
    let good: Vec<i64> = (1..=100).filter(|n| n % 7 != 0).collect();
    assert_eq!(numbers(&batch), good);
    assert_eq!(columns.len(), 2);
    assert_eq!(columns[1].len(), good.len());
    assert_eq!(metrics.bad_records.load(Ordering::Relaxed), 14);
    assert_eq!(metrics.last_bad().unwrap(), "{n: 98}: 98 is a multiple of 7");
}

/// Ten by `n`, but zero of 0, as `case` would give it, computed of whole columns: 0 fails beside others. Cannot do it for negatives.
struct Guarded;

impl Expression for Guarded {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String> {
        let numbers = numbers(batch);
        let zeros = numbers.iter().filter(|n| **n == 0).count();
        if numbers.iter().any(|n| *n < 0) {
            return Err("negative".into());
        }
        if zeros > 0 && zeros < numbers.len() {
            return Err("division by zero".into());
        }
        Ok(Arc::new(Int64Array::from_iter_values(numbers.iter().map(|n| 10i64.checked_div(*n).unwrap_or(0)))))
    }
}

#[test]
fn rows_that_fail_only_beside_others_are_good() {
    let (bad, metrics) = bad_records(BadRecordPolicy::Fail);
    let numbers_of = |column: &ArrayRef| column.as_primitive::<Int64Type>().values().to_vec();
    for of in [vec![0, 1, 2, 3], vec![5, 0], vec![1, 0, 0, 2, 0, 5, 0], (0..100).collect()] {
        let whole = ints(of.clone());
        let Marked { rows, columns, good } = bad.evaluate_marked(whole.clone(), &[Arc::new(Guarded), Arc::new(Guarded)]).unwrap();
        assert_eq!((&rows, good), (&whole, None), "the batch goes on as it is");
        let tenths: Vec<i64> = of.iter().map(|n| 10i64.checked_div(*n).unwrap_or(0)).collect();
        assert_eq!(columns.iter().map(numbers_of).collect::<Vec<_>>(), [tenths.clone(), tenths]);
    }
    assert_eq!(metrics.bad_records.load(Ordering::Relaxed), 0);
}

proptest! {
    /// Whatever fails beside what: rows that can be computed by themselves come to what they come to by themselves.
    #[test]
    fn rows_come_to_what_each_comes_to_by_itself(of in proptest::collection::vec(-2i64..4, 1..40)) {
        let (bad, metrics) = bad_records(BadRecordPolicy::Drop);
        let Marked { rows, columns, good } = bad.evaluate_marked(ints(of.clone()), &[Arc::new(Guarded)]).unwrap();
        let expected: Vec<i64> = of.iter().copied().filter(|n| *n >= 0).collect();
        prop_assert_eq!(&numbers(&rows), &expected);
        let tenths: Vec<i64> = expected.iter().map(|n| 10i64.checked_div(*n).unwrap_or(0)).collect();
        prop_assert_eq!(columns[0].as_primitive::<Int64Type>().values(), &tenths);
        let marks = (expected.len() < of.len()).then(|| of.iter().map(|n| *n >= 0).collect::<Vec<_>>());
        prop_assert_eq!(good, marks);
        prop_assert_eq!(metrics.bad_records.load(Ordering::Relaxed) as usize, of.len() - expected.len());
    }
}

#[test]
fn a_batch_of_bad_rows_becomes_empty() {
    let (bad, metrics) = bad_records(BadRecordPolicy::Drop);
    let (batch, columns) = bad.evaluate(ints([7, 14, 21]), &[fails_on(7)]).unwrap();
    assert_eq!((batch.num_rows(), columns[0].len()), (0, 0));
    assert_eq!(metrics.bad_records.load(Ordering::Relaxed), 3);
}

#[test]
fn the_first_bad_row_fails_the_task_where_the_policy_says_so() {
    let (bad, metrics) = bad_records(BadRecordPolicy::Fail);
    let error = bad.evaluate(ints(1..=100), &[fails_on(7)]).unwrap_err();
    let EngineError::BadRecord { clause, position, reason, .. } = error else { panic!("{error}") };
    assert_eq!((clause.as_str(), position.as_str(), reason.as_str()), ("where", "{n: 7}", "7 is a multiple of 7"));
    assert_eq!(metrics.bad_records.load(Ordering::Relaxed), 0);
}

#[test]
fn one_bad_row_is_found_in_few_steps() {
    let (bad, _) = bad_records(BadRecordPolicy::Drop);
    let expression = Arc::new(FailsOn { bad: 5_000, calls: AtomicUsize::new(0) });
    let expressions: [Arc<dyn Expression>; 1] = [expression.clone()];
    bad.evaluate(ints(1..=8_192), &expressions).unwrap();
    let calls = expression.calls.load(Ordering::Relaxed);
    assert!(calls <= 2 * 13 + 2, "{calls} evaluations for one bad row of 8192");
}

#[test]
fn a_long_row_is_cut() {
    let names: Vec<String> = (0..50).map(|index| format!("c{index}")).collect();
    let schema = StreamSchema::append(names.iter().map(|name| column(name, LogicalType::String)).collect());
    let long: ArrayRef = Arc::new(StringArray::from(vec!["ä".repeat(500)]));
    let batch = RecordBatch::try_new(schema.to_arrow(), vec![long; 50]).unwrap();
    let text = row_text(&batch, 0);
    assert!(text.starts_with("{c0: \"ää") && text.ends_with("…}"), "{text}");
    assert!(text.len() < ROW_TEXT_BYTES_MAX + VALUE_TEXT_BYTES_MAX + 30, "{} bytes", text.len());
}
