//! Steps, quiet, and times that are none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use levada_common::ids::Uid;
use levada_common::plan::{BadRecordPolicy, OperatorKind};
use levada_common::types::{LogicalType, StreamSchema};

use super::*;
use crate::function::Functions;
use crate::testing::{Closures, column, context, ints, numbers};

fn spec(ty: LogicalType, disorder_ms: i64, bad_records: BadRecordPolicy) -> OperatorSpec {
    let watermark = WatermarkSpec { column: "n".into(), disorder_ms, step_ms: 100, idleness_ms: None };
    let schema = StreamSchema::append(vec![column("n", ty)]);
    OperatorSpec {
        uid: Uid::new("w"),
        clause: "watermark".into(),
        kind: OperatorKind::Watermark(watermark),
        input: schema.clone(),
        output: schema,
        bad_records,
    }
}

fn opened(spec: &OperatorSpec) -> (Box<dyn Operator>, OperatorContext) {
    let mut operator = crate::operators::build(spec, &Closures::default(), &Functions::default()).unwrap();
    let context = context("w", 8);
    operator.open(&context, Vec::new()).unwrap();
    (operator, context)
}

fn pass(operator: &mut dyn Operator, batch: RecordBatch) -> Option<RecordBatch> {
    operator.process(0, batch).unwrap();
    operator.poll().unwrap()
}

#[test]
fn a_watermark_comes_with_each_step_and_the_rest_when_quiet() {
    let (mut operator, _) = opened(&spec(LogicalType::Int64, 10, BadRecordPolicy::Fail));
    assert_eq!(operator.due_watermark(true), None);
    pass(operator.as_mut(), ints([1_000, 500]));
    assert_eq!(operator.due_watermark(false), Some(Watermark(989)));
    assert_eq!(operator.due_watermark(false), None);
    pass(operator.as_mut(), ints([1_099]));
    assert_eq!(operator.due_watermark(false), None);
    assert_eq!(operator.due_watermark(true), Some(Watermark(1_088)));
    assert_eq!(operator.due_watermark(true), None);
    pass(operator.as_mut(), ints([1_199]));
    assert_eq!(operator.due_watermark(false), Some(Watermark(1_188)));
    pass(operator.as_mut(), ints([3]));
    assert_eq!(operator.due_watermark(true), None);
}

#[test]
fn only_the_end_of_time_passes() {
    let (mut operator, _) = opened(&spec(LogicalType::Int64, 0, BadRecordPolicy::Fail));
    assert_eq!(operator.advance(Watermark(5)).unwrap(), None);
    assert_eq!(operator.advance(Watermark::MAX).unwrap(), Some(Watermark::MAX));
}

/// G27: the ends of the integers are no times; the last moment of year 9999 is one.
#[test]
fn times_out_of_range_are_bad_records() {
    let (mut operator, context) = opened(&spec(LogicalType::Int64, 0, BadRecordPolicy::Drop));
    let input = ints([i64::MIN, 7, EVENT_TIME_MAX_MS, i64::MAX, EVENT_TIME_MIN_MS, EVENT_TIME_MIN_MS - 1]);
    let batch = pass(operator.as_mut(), input).unwrap();
    assert_eq!(numbers(&batch), [7, EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS]);
    assert_eq!(context.metrics.bad_records.load(Ordering::Relaxed), 3);
    assert_eq!(operator.due_watermark(false), Some(Watermark(EVENT_TIME_MAX_MS - 1)));
    assert!(pass(operator.as_mut(), ints([i64::MAX])).is_none());
}

#[test]
fn a_null_time_is_a_bad_record() {
    let spec = spec(LogicalType::Timestamp, 0, BadRecordPolicy::Drop);
    let (mut operator, context) = opened(&spec);
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![Some(5), None, Some(-5)]));
    let batch = RecordBatch::try_new(spec.input.to_arrow(), vec![times]).unwrap();
    assert_eq!(pass(operator.as_mut(), batch).unwrap().num_rows(), 2);
    assert!(context.metrics.last_bad().unwrap().contains("the event time is null"));
    assert_eq!(operator.due_watermark(false), Some(Watermark(4)));
}

#[test]
fn a_bad_time_fails_the_task_where_the_policy_says_so() {
    let (mut operator, _) = opened(&spec(LogicalType::Int64, 0, BadRecordPolicy::Fail));
    let error = operator.process(0, ints([1, i64::MAX])).unwrap_err();
    assert!(matches!(error, EngineError::BadRecord { .. }), "{error}");
}

/// No arithmetic on times can overflow, whatever the disorder.
#[test]
fn an_absurd_disorder_does_not_overflow() {
    let (mut operator, _) = opened(&spec(LogicalType::Int64, i64::MAX, BadRecordPolicy::Fail));
    pass(operator.as_mut(), ints([EVENT_TIME_MIN_MS]));
    operator.due_watermark(false);
    pass(operator.as_mut(), ints([EVENT_TIME_MAX_MS]));
    assert!(operator.due_watermark(true).is_some());
}

#[test]
fn a_column_of_another_type_is_refused() {
    let spec = spec(LogicalType::String, 0, BadRecordPolicy::Fail);
    let error = crate::operators::build(&spec, &Closures::default(), &Functions::default()).err().unwrap();
    assert!(error.to_string().contains("not INT64 or TIMESTAMP"), "{error}");
}
