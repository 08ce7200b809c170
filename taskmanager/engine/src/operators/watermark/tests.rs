//! Steps, quiet, times that are none, what is read as a time, the future, and expressions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, StringArray, TimestampMillisecondArray, UInt64Array};
use arrow::datatypes::TimestampMillisecondType;
use levada_common::ids::Uid;
use levada_common::plan::{BadRecordPolicy, OperatorKind, TimeFormat, TimeUnit, WatermarkRule};
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS};
use levada_common::types::{LogicalType, StreamSchema};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::function::Functions;
use crate::testing::{Closures, column, context, ints, numbers};

fn watermark(disorder_ms: i64) -> WatermarkSpec {
    WatermarkSpec {
        column: "n".into(),
        format: TimeFormat::Time,
        rule: WatermarkRule::Disorder { ms: disorder_ms },
        step_ms: 100,
        idleness_ms: None,
        future: None,
        align: None,
    }
}

fn spec_of(ty: LogicalType, watermark: WatermarkSpec, bad_records: BadRecordPolicy) -> OperatorSpec {
    let input = StreamSchema::append(vec![column("n", ty)]);
    let output = watermark.output(&input);
    let kind = OperatorKind::Watermark(watermark);
    OperatorSpec { uid: Uid::new("w"), clause: "watermark".into(), kind, input, output, sides: Vec::new(), bad_records }
}

fn spec(ty: LogicalType, disorder_ms: i64, bad_records: BadRecordPolicy) -> OperatorSpec {
    spec_of(ty, watermark(disorder_ms), bad_records)
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
    assert!(error.to_string().contains("is Utf8, which is not read as Time"), "{error}");
}

/// The times read from `values`, the reason of the last bad record and how many there were.
fn read(format: TimeFormat, ty: LogicalType, values: ArrayRef) -> (Vec<i64>, Option<String>, u64) {
    let spec = spec_of(ty, WatermarkSpec { format, ..watermark(0) }, BadRecordPolicy::Drop);
    let (mut operator, context) = opened(&spec);
    let batch = RecordBatch::try_new(spec.input.to_arrow(), vec![values]).unwrap();
    let times = pass(operator.as_mut(), batch).map_or_else(Vec::new, |batch| {
        assert_eq!(batch.schema(), spec.output.to_arrow());
        batch.column(0).as_primitive::<TimestampMillisecondType>().values().to_vec()
    });
    (times, context.metrics.last_bad(), context.metrics.bad_records.load(Ordering::Relaxed))
}

/// G26 for finer units: what is before 1970 is cut off towards the past as what is after it.
#[test]
fn whole_numbers_of_every_unit_are_times() {
    let read =
        |unit, values: &[i64]| read(TimeFormat::Integer(unit), LogicalType::Int64, Arc::new(Int64Array::from(values.to_vec())));
    assert_eq!(read(TimeUnit::Seconds, &[-1, 2]), (vec![-1_000, 2_000], None, 0));
    assert_eq!(read(TimeUnit::Milliseconds, &[-1, 2]), (vec![-1, 2], None, 0));
    assert_eq!(read(TimeUnit::Microseconds, &[-1, -1_000, 1_999]), (vec![-1, -1, 1], None, 0));
    assert_eq!(read(TimeUnit::Nanoseconds, &[-1, -1_000_001, i64::MAX]), (vec![-1, -2, 9_223_372_036_854], None, 0));
    let (times, reason, bad) = read(TimeUnit::Seconds, &[i64::MIN, 253_402_300_799, 253_402_300_800, i64::MAX]);
    assert_eq!((times, bad), (vec![253_402_300_799_000], 3));
    let reason = reason.unwrap();
    assert!(reason.starts_with("{n: 9223372036854775807}: event time 9223372036854775807 is outside"), "{reason}");
}

#[test]
fn other_widths_of_whole_numbers_are_read() {
    let seconds = TimeFormat::Integer(TimeUnit::Seconds);
    let narrow = Arc::new(Int32Array::from(vec![Some(i32::MAX), None]));
    let (times, reason, bad) = read(seconds.clone(), LogicalType::Int32, narrow);
    assert_eq!((times, bad), (vec![i64::from(i32::MAX) * 1_000], 1));
    assert!(reason.unwrap().contains("the event time is null"));
    let (times, _, bad) = read(seconds, LogicalType::UInt64, Arc::new(UInt64Array::from(vec![7, u64::MAX])));
    assert_eq!((times, bad), (vec![7_000], 1));
}

/// G27: texts that are no times are bad records, each once.
#[test]
fn texts_are_times_with_their_zone_or_the_given_one() {
    let read = |zone: Option<&str>, texts: &[&str]| {
        let format = TimeFormat::Text { zone: zone.map(str::to_owned) };
        read(format, LogicalType::String, Arc::new(StringArray::from(texts.to_vec())))
    };
    let texts = ["1970-01-01T02:00:00.5", "1970-01-01T02:00:00+01:00", "1970-01-01 02:00Z"];
    assert_eq!(read(None, &texts), (vec![7_200_500, 3_600_000, 7_200_000], None, 0));
    assert_eq!(read(Some("Europe/Berlin"), &texts), (vec![3_600_500, 3_600_000, 7_200_000], None, 0));
    assert_eq!(read(Some("-02:30"), &texts[..1]), (vec![16_200_500], None, 0));
    let (times, reason, bad) = read(None, &["25:61:61", "1970-01-01T00:00:00Z", "2026-02-30T00:00:00Z", ""]);
    assert_eq!((times, bad), (vec![0], 3));
    assert!(reason.unwrap().contains("\"\" is no time as ISO 8601 has it"));
    let (_, reason, bad) = read(Some("Europe/Berlin"), &["2026-03-29T02:30:00"]);
    assert!(bad == 1 && reason.unwrap().contains("no clock of its zone shows"));
    let (_, reason, bad) = read(Some("Europe/Berlin"), &["+123456-01-01T00:00:00"]);
    assert!(bad == 1 && reason.unwrap().contains("is outside"));
}

fn bounded(max_ms: u64, rows: FutureRows, policy: BadRecordPolicy) -> OperatorSpec {
    let future = Some(FutureBound { max_ms, rows });
    spec_of(LogicalType::Int64, WatermarkSpec { future, ..watermark(0) }, policy)
}

#[test]
fn rows_from_the_future_pass_and_move_no_time() {
    let (mut operator, context) = opened(&bounded(1_000, FutureRows::Pass, BadRecordPolicy::Fail));
    assert!(operator.keeps_time());
    assert_eq!(operator.tick(10_000).unwrap(), None);
    let batch = pass(operator.as_mut(), ints([5_000, 11_000, 11_001, EVENT_TIME_MAX_MS])).unwrap();
    assert_eq!(numbers(&batch), [5_000, 11_000, 11_001, EVENT_TIME_MAX_MS]);
    assert_eq!(operator.due_watermark(true), Some(Watermark(10_999)));
    assert_eq!(context.metrics.future_rows.load(Ordering::Relaxed), 2);
    operator.tick(20_000).unwrap();
    pass(operator.as_mut(), ints([11_001]));
    assert_eq!(operator.due_watermark(true), Some(Watermark(11_000)), "the future comes");
    assert_eq!(context.metrics.future_rows.load(Ordering::Relaxed), 2);
}

#[test]
fn rows_from_the_future_are_bad_records_where_it_says_so() {
    let (mut operator, context) = opened(&bounded(0, FutureRows::BadRecord, BadRecordPolicy::Drop));
    operator.tick(100).unwrap();
    assert_eq!(numbers(&pass(operator.as_mut(), ints([100, 101, 99])).unwrap()), [100, 99]);
    let counted = [&context.metrics.future_rows, &context.metrics.bad_records].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [1, 1]);
    assert!(context.metrics.last_bad().unwrap().contains("{n: 101}: event time 101 is more than 0 ms (max_future) ahead"));
    let (mut operator, _) = opened(&bounded(0, FutureRows::BadRecord, BadRecordPolicy::Fail));
    operator.tick(100).unwrap();
    assert!(matches!(operator.process(0, ints([101])), Err(EngineError::BadRecord { .. })));
}

/// An operator whose watermark is what `rule` makes of the rows.
fn by_expression(policy: BadRecordPolicy, rule: fn(i64) -> Option<i64>) -> (Box<dyn Operator>, OperatorContext) {
    let sql = "mark".to_string();
    let future = Some(FutureBound { max_ms: 0, rows: FutureRows::Pass });
    let spec = WatermarkSpec { rule: WatermarkRule::Expression { sql }, future, ..watermark(0) };
    let spec = spec_of(LogicalType::Int64, spec, policy);
    let closures = Closures::default().with("mark", move |batch| {
        Ok(Arc::new(TimestampMillisecondArray::from_iter(numbers(batch).into_iter().map(rule))) as ArrayRef)
    });
    let mut operator = crate::operators::build(&spec, &closures, &Functions::default()).unwrap();
    let context = context("w", 8);
    operator.open(&context, Vec::new()).unwrap();
    operator.tick(1_000).unwrap();
    (operator, context)
}

#[test]
fn an_expression_says_how_far_time_has_come() {
    let (mut operator, _) = by_expression(BadRecordPolicy::Fail, |n| (n % 2 == 0).then_some(n - 5));
    pass(operator.as_mut(), ints([101]));
    assert_eq!(operator.due_watermark(true), None, "null says nothing");
    pass(operator.as_mut(), ints([102, 50, 999]));
    assert_eq!(operator.due_watermark(true), Some(Watermark(97)));
    assert_eq!(pass(operator.as_mut(), ints([1_002, 104])).unwrap().num_rows(), 2);
    assert_eq!(operator.due_watermark(true), Some(Watermark(99)), "a row from the future moves no time");
    let (mut ahead, _) = by_expression(BadRecordPolicy::Fail, |n| Some(n * 100));
    pass(ahead.as_mut(), ints([9, 11]));
    assert_eq!(ahead.due_watermark(true), Some(Watermark(900)), "neither does a watermark in the future");
}

/// The end of all time cannot be said by a row.
#[test]
fn a_watermark_out_of_range_is_a_bad_record() {
    let (mut operator, context) = by_expression(BadRecordPolicy::Drop, |n| Some(if n == 2 { i64::MAX } else { n }));
    assert_eq!(numbers(&pass(operator.as_mut(), ints([1, 2, 3])).unwrap()), [1, 3]);
    assert_eq!(operator.due_watermark(true), Some(Watermark(3)));
    assert!(context.metrics.last_bad().unwrap().contains("the watermark 9223372036854775807 is outside"));
}

/// Whatever comes in whatever batches: the watermark is that of the greatest time so far that is not of the future.
#[test]
fn watermarks_are_as_the_model_says() {
    let mut given = 0;
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (disorder_ms, max_ms) = (rng.random_range(0..500), rng.random_range(0..2_000));
        let future = Some(FutureBound { max_ms, rows: FutureRows::Pass });
        let spec = WatermarkSpec { future, ..watermark(disorder_ms) };
        let (mut operator, context) = opened(&spec_of(LogicalType::Int64, spec, BadRecordPolicy::Fail));
        let (mut now_ms, mut greatest, mut futures, mut last) = (0, None, 0, None);
        for _ in 0..rng.random_range(1..40) {
            now_ms += rng.random_range(0..1_000);
            operator.tick(now_ms).unwrap();
            let rows: Vec<i64> = (0..rng.random_range(1..8)).map(|_| now_ms + rng.random_range(-5_000..3_000)).collect();
            let latest = now_ms + max_ms as i64;
            futures += rows.iter().filter(|time| **time > latest).count() as u64;
            greatest = rows.iter().copied().filter(|time| *time <= latest).max().max(greatest);
            pass(operator.as_mut(), ints(rows));
            let expected = greatest.map(|time: i64| time - disorder_ms - 1).filter(|reached| Some(*reached) > last);
            assert_eq!(operator.due_watermark(true), expected.map(Watermark), "seed {seed}");
            last = last.max(expected);
            given += usize::from(expected.is_some());
        }
        assert_eq!(context.metrics.future_rows.load(Ordering::Relaxed), futures, "seed {seed}");
    }
    assert!(given > 1_000, "the run is empty: {given} watermarks");
}
