//! Sliding and cumulating windows against a naive model: every window is a list of rows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateCall, AggregateFunction, WindowSpec};
use levada_common::time::Watermark;
use proptest::prelude::*;

use super::rig::{BATCH_ROWS_MAX, MAX_PARALLELISM, Rig, Row, call, calls, spec, store};
use super::windows::{Step, run, sorted, steps};

pub(super) fn sliding(size_ms: i64, slide_ms: i64, offset_ms: i64) -> WindowSpec {
    WindowSpec::Sliding { size_ms, slide_ms, offset_ms }
}

pub(super) fn cumulate(size_ms: i64, step_ms: i64, offset_ms: i64) -> WindowSpec {
    WindowSpec::Cumulate { size_ms, step_ms, offset_ms }
}

/// Windows that overlap, some of them only by a slice that is smaller than both size and slide.
pub(super) fn windows() -> impl Strategy<Value = WindowSpec> {
    let sliding = (1i64..15, 0i64..40, 0i64..15).prop_map(|(slide, more, offset)| sliding(slide + more, slide, offset % slide));
    let cumulate =
        (1i64..12, 1i64..6, 0i64..72).prop_map(|(step, steps, offset)| cumulate(step * steps, step, offset % (step * steps)));
    prop_oneof![3 => sliding, 1 => cumulate]
}

/// The windows that a time is in.
pub(super) fn windows_of(window: &WindowSpec, time: i64) -> Vec<(i64, i64)> {
    match *window {
        WindowSpec::Sliding { size_ms, slide_ms, offset_ms } => {
            let last = (time - offset_ms).div_euclid(slide_ms) * slide_ms + offset_ms;
            (0..)
                .map(|n| last - n * slide_ms)
                .take_while(|start| start + size_ms > time)
                .map(|start| (start, start + size_ms))
                .collect()
        }
        WindowSpec::Cumulate { size_ms, step_ms, offset_ms } => {
            let start = (time - offset_ms).div_euclid(size_ms) * size_ms + offset_ms;
            (1..=size_ms / step_ms).map(|n| (start, start + n * step_ms)).filter(|(_, end)| time < *end).collect()
        }
        _ => panic!("{window:?} does not overlap"),
    }
}

/// The rows of windows as the operator gives them, and time and key of late rows: `windows_of` gives start and end of each that a
/// time is in, and a window is a list.
pub(super) fn naive(steps: &[Step], windows_of: impl Fn(i64) -> Vec<(i64, i64)>, keyed: bool) -> (Vec<String>, Vec<(i64, i64)>) {
    let mut open = BTreeMap::<(i64, i64, i64), Vec<Row>>::new();
    let (mut out, mut late, mut watermark) = (Vec::new(), Vec::new(), i64::MIN);
    for step in steps.iter().chain([&Step::Advance(i64::MAX)]) {
        match step {
            Step::Rows(rows) => {
                for row in rows {
                    let mut windows = windows_of(row.1);
                    windows.retain(|(_, end)| end - 1 > watermark);
                    if windows.is_empty() {
                        late.push((row.1, row.0));
                    }
                    for (start, end) in windows {
                        open.entry((end, start, if keyed { row.0 } else { 0 })).or_default().push(*row);
                    }
                }
            }
            Step::Advance(to) => {
                watermark = watermark.max(*to);
                open.retain(|(end, start, key), rows| {
                    if end - 1 <= watermark {
                        let key = if keyed { format!("{key},") } else { String::new() };
                        let sum: i64 = rows.iter().map(|row| row.2).sum();
                        let most = rows.iter().map(|row| row.2).max().expect("a window has a row");
                        out.push(format!("{key}{start},{end},{},{},{sum},{most}", end - 1, rows.len()));
                    }
                    end - 1 > watermark
                });
            }
        }
    }
    (out, late)
}

/// What `naive` computes of a window's rows.
pub(super) fn naive_calls() -> Vec<AggregateCall> {
    vec![call("n", AggregateFunction::Count), call("total", AggregateFunction::Sum), call("most", AggregateFunction::Max)]
}

proptest! {
    #[test]
    fn windows_are_those_of_the_model(steps in steps(), window in windows(), keyed in any::<bool>()) {
        let mut rig = Rig::new(&spec(if keyed { &["k"] } else { &[] }, window.clone(), naive_calls()));
        run(&mut rig, &steps);
        rig.finish();
        let (expected, late) = naive(&steps, |time| windows_of(&window, time), keyed);
        prop_assert_eq!(sorted(rig.take_rows()), sorted(expected));
        prop_assert_eq!(rig.late_rows(), late.len() as u64);
        prop_assert_eq!(sorted(rig.take_late()), sorted(late));
        prop_assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn windows_fire_in_the_order_of_their_ends_and_share_batches() {
    let mut rig = Rig::new(&spec(&["k"], sliding(10, 2, 0), vec![call("n", AggregateFunction::Count)]));
    rig.process(&[(1, 0, 0), (2, 3, 0), (1, 9, 0)]);
    rig.advance(100);
    let sizes: Vec<usize> = rig.out.iter().map(arrow::record_batch::RecordBatch::num_rows).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 14);
    assert!(sizes.iter().all(|rows| *rows == BATCH_ROWS_MAX), "{sizes:?}");
    let ends: Vec<i64> =
        rig.take_rows().iter().map(|row| row.split(',').nth(2).expect("an end").parse().expect("a time")).collect();
    assert!(ends.is_sorted(), "{ends:?}");
}

/// Case G28.
#[test]
fn rows_on_the_edges_are_in_the_windows_that_begin_there() {
    let mut rig = Rig::new(&spec(&[], sliding(10_000, 5_000, 0), vec![call("n", AggregateFunction::Count)]));
    rig.process(&[(1, 0, 0), (1, 4999, 0), (1, 5000, 0), (1, 9999, 0), (1, 10_000, 0)]);
    rig.finish();
    assert_eq!(rig.take_rows(), ["-5000,5000,4999,2", "0,10000,9999,4", "5000,15000,14999,3", "10000,20000,19999,1"]);
}

#[test]
fn a_row_behind_time_is_in_the_windows_that_have_not_fired() {
    let mut rig = Rig::new(&spec(&["k"], sliding(10, 5, 0), vec![call("n", AggregateFunction::Count)]));
    rig.process(&[(1, 3, 0), (1, 7, 0)]);
    rig.advance(9);
    assert_eq!(rig.take_rows(), ["1,-5,5,4,1", "1,0,10,9,2"]);
    rig.process(&[(1, 8, 0), (2, 6, 0), (1, 4, 0)]);
    assert_eq!(rig.late_rows(), 1, "both windows of the row at 4 have fired");
    rig.finish();
    assert_eq!(sorted(rig.take_rows()), ["1,5,15,14,2", "2,5,15,14,1"]);
}

#[test]
fn a_slice_is_kept_once_whatever_the_overlap() {
    let keys = |slide| {
        let mut rig = Rig::new(&spec(&["k"], sliding(10_000, slide, 0), calls()));
        rig.process(&(0..1000).map(|n| (n, 5, n)).collect::<Vec<_>>());
        rig.metrics.state_keys.load(Ordering::Relaxed)
    };
    assert_eq!([keys(10_000), keys(2_000), keys(100)], [1000; 3]);
}

#[test]
fn other_slices_are_refused() {
    let before = spec(&["k"], sliding(10, 4, 1), calls());
    let mut rig = Rig::new(&before);
    rig.process(&[(1, 2, 3)]);
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    let all = KeyGroupRange::all(MAX_PARALLELISM);
    for window in [sliding(20, 4, 1), sliding(6, 2, 1), cumulate(20, 2, 1)] {
        // All have slices of 2 ms.
        let restore = || Rig::try_restored(&spec(&["k"], window.clone(), calls()), restored.clone(), all);
        match (window.slices() == before.window.slices(), restore()) {
            (true, Ok(_)) => {}
            (false, Err(error)) => {
                let expected =
                    "state \"slices\" cannot be restored: it has a slice from 1 to 3 ms, and the slices of this window are";
                assert!(error.to_string().contains(expected), "{error}");
            }
            (fits, restored) => panic!("{window:?}: {fits}, {}", restored.is_ok()),
        }
    }
    let mut rig = Rig::try_restored(&before, restored, all).expect("it is restored");
    rig.advance(Watermark::MAX.0);
    assert!(!rig.take_rows().is_empty());
}
