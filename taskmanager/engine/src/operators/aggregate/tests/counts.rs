//! Count windows against a naive model: every group is a list of rows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateFunction, AggregateSpec, WindowSpec};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, call, calls, in_range, spec, store};
use crate::error::EngineError;

fn counts(keys: &[&str], size: u32, slide: u32) -> AggregateSpec {
    let calls =
        vec![call("n", AggregateFunction::Count), call("total", AggregateFunction::Sum), call("most", AggregateFunction::Max)];
    spec(keys, WindowSpec::Count { size, slide }, calls)
}

/// The windows of each key, in order.
fn naive(rows: &[Row], keyed: bool, size: usize, slide: usize) -> BTreeMap<i64, Vec<String>> {
    let mut groups = BTreeMap::<i64, Vec<i64>>::new();
    rows.iter().for_each(|row| groups.entry(if keyed { row.0 } else { 0 }).or_default().push(row.2));
    let window = |key: i64, values: &[i64]| {
        let key = if keyed { format!("{key},") } else { String::new() };
        let (sum, most) = (values.iter().sum::<i64>(), values.iter().max().expect("a window has rows"));
        format!("{key}{},{sum},{most}", values.len())
    };
    let windows = |(key, values): (i64, Vec<i64>)| {
        let windows = values.windows(size).step_by(slide).map(|values| window(key, values)).collect::<Vec<_>>();
        (!windows.is_empty()).then_some((key, windows))
    };
    groups.into_iter().filter_map(windows).collect()
}

fn by_key(rows: Vec<String>, keyed: bool) -> BTreeMap<i64, Vec<String>> {
    let mut groups = BTreeMap::<i64, Vec<String>>::new();
    for row in rows {
        let key = if keyed { row.split(',').next().expect("a key").parse().expect("a number") } else { 0 };
        groups.entry(key).or_default().push(row);
    }
    groups
}

proptest! {
    #[test]
    fn windows_are_those_of_the_model_across_restores(
        batches in prop::collection::vec((prop::collection::vec((0i64..6, 0i64..9, -9i64..9), 1..40), 0u32..8), 1..20),
        size in 1u32..20,
        slide in 1u32..20,
        keyed in any::<bool>(),
    ) {
        let slide = slide.min(size);
        let aggregate = counts(if keyed { &["k"] } else { &[] }, size, slide);
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let mut rigs = vec![(Rig::new(&aggregate), everything)];
        let (mut rows, mut given) = (Vec::new(), Vec::new());
        for (batch, parallelism) in batches {
            for (rig, range) in &mut rigs {
                let mine = if keyed { in_range(&batch, *range) } else { batch.clone() };
                if !mine.is_empty() {
                    rig.process(&mine);
                }
                given.extend(rig.take_rows());
            }
            rows.extend(batch);
            if (1..4).contains(&parallelism) {
                let mut restored = Vec::new();
                for (rig, _) in &mut rigs {
                    let parts = rig.barrier(1);
                    // Rows after the barrier are in no snapshot.
                    rig.process(&rows[rows.len().saturating_sub(13)..]);
                    restored.extend(store(parts, || rig.background()));
                }
                let parallelism = if keyed { parallelism } else { 1 };
                let range = |subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
                let rig = |range| (Rig::restored(&aggregate, restored.clone(), range), range);
                rigs = (0..parallelism).map(|subtask| rig(range(subtask))).collect();
            }
        }
        for (rig, _) in &mut rigs {
            rig.finish();
            given.extend(rig.take_rows());
        }
        prop_assert_eq!(by_key(given, keyed), naive(&rows, keyed, size as usize, slide as usize));
    }
}

#[test]
fn a_window_comes_when_its_last_row_arrives() {
    let mut rig = Rig::new(&counts(&["k"], 3, 3));
    rig.process(&[(1, 0, 1), (2, 0, 1), (1, 0, 2)]);
    assert!(rig.take_rows().is_empty());
    rig.process(&[(1, 0, 3), (1, 0, 4), (1, 0, 5), (1, 0, 6), (1, 0, 7)]);
    assert_eq!(rig.take_rows(), ["1,3,6,3", "1,3,15,6"]);
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 2, "a chunk of each key");
    rig.finish();
    assert!(rig.take_rows().is_empty(), "what fills no window is dropped");
}

#[test]
fn windows_that_overlap_share_their_rows() {
    let mut rig = Rig::new(&counts(&[], 4, 2));
    rig.process(&(1..=9).map(|value| (0, 0, value)).collect::<Vec<_>>());
    assert_eq!(rig.take_rows(), ["4,10,4", "4,18,6", "4,26,8"]);
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 2, "rows 7 and 8, and row 9");
}

#[test]
fn keys_without_rows_are_forgotten() {
    let mut rig = Rig::new(&counts(&["s"], 2, 2));
    for round in 0..50 {
        let rows: Vec<Row> = (0..100).map(|key| (round * 100 + key % 50, 0, key)).collect();
        rig.process(&rows);
        assert_eq!(rig.take_rows().len(), 50);
    }
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 0);
    assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) < 64 << 10);
}

#[test]
fn every_kind_of_aggregate_begins_anew_in_a_chunk_that_is_used_again() {
    let mut rig = Rig::new(&spec(&["k"], WindowSpec::Count { size: 2, slide: 1 }, calls()));
    rig.process(&[(1, 10, 5), (1, 11, 3)]);
    rig.process(&[(1, 12, 1)]);
    rig.process(&[(1, 13, 4)]);
    assert_eq!(rig.take_rows(), ["1,2,8,5,10,key 1", "1,2,4,3,11,key 1", "1,2,5,4,13,key 1"]);
}

#[test]
fn another_size_refuses_the_state() {
    let mut rig = Rig::new(&counts(&["k"], 6, 6));
    rig.process(&[(1, 0, 1), (1, 0, 2), (1, 0, 2), (1, 0, 2), (1, 0, 2)]);
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    for (size, slide, fits) in [(6, 6, true), (9, 9, true), (4, 4, false), (6, 3, false), (5, 5, false)] {
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        match (Rig::try_restored(&counts(&["k"], size, slide), restored.clone(), everything), fits) {
            (Ok(_), true) => {}
            (Err(EngineError::Restore { state, .. }), false) => assert_eq!(state, "chunks"),
            (result, _) => panic!("{size} by {slide}: {:?}", result.err()),
        }
    }
}

/// A part that begins amid a batch comes before the first one of another key.
#[test]
fn rows_are_chosen_in_windows_that_begin_amid_a_batch() {
    let mut rig = Rig::new(&spec(&["k"], WindowSpec::Count { size: 2, slide: 2 }, calls()));
    rig.process(&[(1, 10, 5), (1, 11, 3), (1, 12, 1), (2, 13, -4), (2, 14, -6), (1, 15, 2)]);
    let mut rows = rig.take_rows();
    rows.sort();
    assert_eq!(rows, ["1,2,3,2,15,key 1", "1,2,8,5,10,key 1", "2,2,-10,-4,13,key 2"]);
}
