//! Windows against a naive model, and their edges by name.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use levada_common::plan::{AggregateFunction, WindowSpec};
use levada_common::time::Watermark;
use proptest::prelude::*;

use super::rig::{BATCH_ROWS_MAX, Rig, Row, call, calls, spec, tumbling};

/// What a test does to a window.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Rows(Vec<Row>),
    Advance(i64),
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let row = (0i64..12, -60i64..60, -9i64..9);
    let step = prop_oneof![
        3 => prop::collection::vec(row, 1..40).prop_map(Step::Rows),
        1 => (-70i64..50).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..25)
}

/// The rows of tumbling windows as the operator gives them, and the times and keys of late rows: every window is a list.
fn naive(steps: &[Step], size: i64, keyed: bool) -> (Vec<String>, Vec<(i64, i64)>) {
    let mut open = BTreeMap::<(i64, i64), Vec<Row>>::new();
    let (mut out, mut late, mut watermark) = (Vec::new(), Vec::new(), i64::MIN);
    for step in steps.iter().chain([&Step::Advance(i64::MAX)]) {
        match step {
            Step::Rows(rows) => {
                for row in rows {
                    let start = row.1.div_euclid(size) * size;
                    match start + size - 1 <= watermark {
                        true => late.push((row.1, row.0)),
                        false => open.entry((start, if keyed { row.0 } else { 0 })).or_default().push(*row),
                    }
                }
            }
            Step::Advance(to) => {
                watermark = watermark.max(*to);
                open.retain(|(start, key), rows| {
                    let end = start + size;
                    if end - 1 <= watermark {
                        let key = if keyed { format!("{key},") } else { String::new() };
                        let sum: i64 = rows.iter().map(|row| row.2).sum();
                        out.push(format!("{key}{start},{end},{},{},{sum}", end - 1, rows.len()));
                    }
                    end - 1 > watermark
                });
            }
        }
    }
    (out, late)
}

pub(super) fn run(rig: &mut Rig, steps: &[Step]) {
    let mut watermark = i64::MIN;
    for step in steps {
        match step {
            Step::Rows(rows) => rig.process(rows),
            Step::Advance(to) => {
                watermark = watermark.max(*to);
                rig.advance(watermark);
            }
        }
    }
}

pub(super) fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort();
    rows
}

proptest! {
    #[test]
    fn windows_are_those_of_the_model(steps in steps(), size in 1i64..30, keyed in any::<bool>()) {
        let calls = vec![call("n", AggregateFunction::Count), call("total", AggregateFunction::Sum)];
        let mut rig = Rig::new(&spec(if keyed { &["k"] } else { &[] }, tumbling(size), calls));
        run(&mut rig, &steps);
        rig.finish();
        let (expected, late) = naive(&steps, size, keyed);
        prop_assert_eq!(sorted(rig.take_rows()), sorted(expected));
        prop_assert_eq!(rig.late_rows(), late.len() as u64);
        prop_assert_eq!(sorted(rig.take_late()), sorted(late));
        prop_assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 0);
        prop_assert_eq!(rig.metrics.state_bytes.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn windows_fire_in_the_order_of_their_ends_and_share_batches() {
    let mut rig = Rig::new(&spec(&["k"], tumbling(10), vec![call("n", AggregateFunction::Count)]));
    let rows: Vec<Row> = (0..30).rev().map(|n| (n % 3, n * 10, 0)).collect();
    rig.process(&rows);
    rig.advance(300);
    assert_eq!(rig.out.iter().map(arrow::record_batch::RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS_MAX, 7, 7, 7, 2]);
    let expected: Vec<String> = (0..30).map(|n| format!("{},{},{},{},1", n % 3, n * 10, n * 10 + 10, n * 10 + 9)).collect();
    assert_eq!(rig.take_rows(), expected);
}

#[test]
fn a_window_fires_when_the_watermark_reaches_its_last_millisecond() {
    let mut rig = Rig::new(&spec(&["k"], tumbling(10), vec![call("n", AggregateFunction::Count)]));
    rig.process(&[(1, 9, 0)]);
    rig.advance(8);
    assert!(rig.take_rows().is_empty());
    rig.process(&[(1, 0, 0)]);
    rig.advance(9);
    assert_eq!(rig.take_rows(), ["1,0,10,9,2"]);
    rig.process(&[(1, 9, 0), (1, 10, 0)]);
    assert_eq!(rig.late_rows(), 1);
    rig.advance(Watermark::MAX.0);
    assert_eq!(rig.take_rows(), ["1,10,20,19,1"]);
}

#[test]
fn empty_windows_give_nothing_and_the_global_one_a_row() {
    let mut tumbling = Rig::new(&spec(&[], tumbling(10), calls()));
    tumbling.finish();
    assert!(tumbling.take_rows().is_empty());
    let mut global = Rig::new(&spec(&[], WindowSpec::Global, calls()));
    global.finish();
    assert_eq!(global.take_rows(), ["0,null,null,null,null"]);
    let mut keyed = Rig::new(&spec(&["k"], WindowSpec::Global, calls()));
    keyed.finish();
    assert!(keyed.take_rows().is_empty());
}

#[test]
fn the_global_window_fires_once_at_the_end() {
    let mut rig = Rig::new(&spec(&["k"], WindowSpec::Global, calls()));
    rig.process(&[(1, 5, 2), (2, 6, 3), (1, 7, 4)]);
    rig.advance(1000);
    rig.process(&[(2, 0, 3), (1, 1, 4)]);
    assert!(rig.take_rows().is_empty());
    rig.finish();
    assert_eq!(rig.take_rows(), ["1,3,10,4,7,key 1", "2,2,6,3,6,key 2"]);
}

#[test]
fn many_keys_fire_through_a_cursor() {
    let mut rig = Rig::new(&spec(&["k"], tumbling(10), vec![call("n", AggregateFunction::Count)]));
    let rows: Vec<Row> = (0..20_000).map(|n| (n, 3, 0)).collect();
    rig.process(&rows);
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 20_000);
    assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) > 20_000 * 16);
    rig.finish();
    assert_eq!(rig.take_rows().len(), 20_000);
}
