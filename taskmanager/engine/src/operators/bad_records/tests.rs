//! Finding bad rows, counting them once, keeping the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Int64Array, StringArray};
use levada_common::types::{LogicalType, StreamSchema};

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
