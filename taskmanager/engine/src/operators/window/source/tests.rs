//! Window assignment against a naive model, and the edges by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, TimestampMillisecondArray};
use arrow::datatypes::{Int64Type, Schema};
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS};
use proptest::prelude::*;

use super::*;

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let fields = columns.iter().enumerate();
    let fields = fields.map(|(at, column)| arrow::datatypes::Field::new(format!("c{at}"), column.data_type().clone(), true));
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).expect("columns match the schema")
}

fn tumbling_source(size_ms: i64, offset_ms: i64) -> WindowSource {
    WindowSource::Times { time: 0, grid: Grid::new(size_ms, offset_ms, None) }
}

/// The rows of each window, in row order.
fn rows_by_window(source: &WindowSource, batch: &RecordBatch) -> BTreeMap<Window, Vec<i64>> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..batch.num_rows() as i64));
    let mut found = BTreeMap::<Window, Vec<i64>>::new();
    for (window, split) in source.split(batch).expect("times are in range") {
        let rows = split.columns(std::slice::from_ref(&numbers)).expect("rows exist");
        assert_eq!(rows[0].len(), split.rows(batch.num_rows()));
        found.entry(window).or_default().extend(rows[0].as_primitive::<Int64Type>().values());
    }
    found
}

/// Tries every window around zero until one holds the time.
fn naive(time: i64, size_ms: i64, offset_ms: i64) -> Window {
    let mut start = offset_ms;
    while start > time {
        start -= size_ms;
    }
    while start + size_ms <= time {
        start += size_ms;
    }
    Window { start, end: start + size_ms }
}

proptest! {
    #[test]
    fn every_row_is_in_its_window(
        mut times in prop::collection::vec(-300i64..300, 1..200),
        size_ms in 1i64..90,
        offset in 0i64..90,
        sorted in any::<bool>(),
    ) {
        if sorted {
            times.sort_unstable();
        }
        let mut expected = BTreeMap::<Window, Vec<i64>>::new();
        for (row, time) in times.iter().enumerate() {
            expected.entry(naive(*time, size_ms, offset % size_ms)).or_default().push(row as i64);
        }
        let as_ints = batch(vec![Arc::new(Int64Array::from(times.clone()))]);
        prop_assert_eq!(&rows_by_window(&tumbling_source(size_ms, offset % size_ms), &as_ints), &expected);
        let as_times = batch(vec![Arc::new(TimestampMillisecondArray::from(times))]);
        prop_assert_eq!(rows_by_window(&tumbling_source(size_ms, offset % size_ms), &as_times), expected);
    }

    #[test]
    fn given_windows_are_kept(bounds in prop::collection::vec((-3i64..3, 0i64..3), 1..200)) {
        let mut expected = BTreeMap::<Window, Vec<i64>>::new();
        for (row, (start, end)) in bounds.iter().enumerate() {
            expected.entry(Window { start: *start, end: *end }).or_default().push(row as i64);
        }
        let (starts, ends): (Vec<i64>, Vec<i64>) = bounds.into_iter().unzip();
        let rows = batch(vec![Arc::new(TimestampMillisecondArray::from(starts)), Arc::new(TimestampMillisecondArray::from(ends))]);
        prop_assert_eq!(rows_by_window(&WindowSource::Columns { start: 0, end: 1 }, &rows), expected);
    }
}

#[test]
fn times_before_1970_are_floored() {
    let times = batch(vec![Arc::new(Int64Array::from(vec![-5001, -5000, -4999, -1, 0]))]);
    let found = rows_by_window(&tumbling_source(5000, 0), &times);
    let found: Vec<(i64, i64, usize)> = found.iter().map(|(window, rows)| (window.start, window.end, rows.len())).collect();
    assert_eq!(found, [(-10_000, -5000, 1), (-5000, 0, 3), (0, 5000, 1)]);
}

#[test]
fn the_ends_of_time_have_windows_and_beyond_is_refused() {
    let at = |time: i64| tumbling_source(10_000, 0).split(&batch(vec![Arc::new(Int64Array::from(vec![0, time]))]));
    let last = at(EVENT_TIME_MAX_MS).expect("year 9999 is a time");
    assert_eq!(last[1].0, Window { start: 253_402_300_790_000, end: 253_402_300_800_000 });
    assert!(at(EVENT_TIME_MIN_MS).is_ok());
    for beyond in [i64::MIN, i64::MAX, EVENT_TIME_MAX_MS + 1, EVENT_TIME_MIN_MS - 1] {
        assert!(at(beyond).is_err(), "{beyond}");
    }
    let none = batch(vec![Arc::new(Int64Array::from(vec![Some(1), None]))]);
    assert!(tumbling_source(10, 0).split(&none).is_err());
    let huge = tumbling_source(i64::MAX, 5).split(&batch(vec![Arc::new(Int64Array::from(vec![EVENT_TIME_MIN_MS, 0]))]));
    assert!(huge.is_ok(), "no arithmetic overflows");
}
