//! Count windows against a naive model: every group is a list of rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateFunction, AggregateSpec, WindowSpec};
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{ColdStores, OverlayBudget};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, batch, call, calls, in_range, spec, store};
use super::store::{Databases, as_part, before, everything, memory, split_parts};
use crate::error::EngineError;
use crate::operator::RestoredState;

/// Bytes of the overlay and how lazy the store is; none on the heap.
type Place = Option<(usize, u32)>;

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

/// Rows of few keys and many, and what happens between them.
fn rounds() -> impl Strategy<Value = Vec<(Vec<Row>, u8)>> {
    let rows = |keys| prop::collection::vec((0i64..keys, 0i64..9, -9i64..9), 1..60);
    prop::collection::vec((prop_oneof![rows(4), rows(300)], 0u8..12), 1..24)
}

proptest! {
    /// On the heap and behind overlays of any size, from one to the other and at other widths.
    #[test]
    fn windows_that_overlap_are_those_of_the_model_wherever_their_chunks_are(
        rounds in rounds(),
        places in prop::collection::vec((prop_oneof![1 => Just(None), 3 => memory().prop_map(Some)], any::<bool>()), 8),
        size in 2u32..12,
        slide in 1u32..12,
        keyed in prop_oneof![1 => Just(false), 3 => Just(true)],
    ) {
        let slide = slide.min(size - 1);
        let aggregate = counts(if keyed { &["k"] } else { &[] }, size, slide);
        let rig = |place: Place, range, databases: &Databases, restored: Vec<RestoredState>| match place {
            None => Rig::restored(&aggregate, restored, range),
            Some(memory) => before(&aggregate, memory, range, databases, restored),
        };
        let mut place = places[0].0;
        let mut rigs = vec![(rig(place, everything(), &Vec::new(), Vec::new()), everything())];
        let (mut rows, mut given) = (Vec::new(), Vec::new());
        for (at, (batch, deed)) in rounds.into_iter().enumerate() {
            for (rig, range) in &mut rigs {
                let mine = if keyed { in_range(&batch, *range) } else { batch.clone() };
                if !mine.is_empty() {
                    rig.process(&mine);
                }
                given.extend(rig.take_rows());
                match deed {
                    0..5 => drop(rig.background()),
                    5 => {
                        drop(rig.barrier(at as u64));
                        rig.background();
                        rig.give_up(at as u64);
                    }
                    _ => {}
                }
            }
            rows.extend(batch);
            if deed < 9 {
                continue;
            }
            let (next, as_rows) = places[at % places.len()];
            let (mut databases, mut restored) = (Databases::new(), Vec::new());
            for (rig, _) in &mut rigs {
                let (in_databases, pieces) = split_parts(rig.barrier(at as u64));
                // Rows after the barrier are in no snapshot.
                rig.process(&rows[rows.len().saturating_sub(33)..]);
                restored.extend(store(pieces, || rig.background()));
                while rig.background() {}
                match as_rows || next.is_none() {
                    true => restored.extend(store(in_databases.into_iter().map(|(meta, part)| as_part(meta, part)).collect(), || false)),
                    false => databases.extend(in_databases.into_iter().map(|(_, database)| database)),
                }
            }
            place = next;
            let parallelism = if keyed { u32::from(deed) - 8 } else { 1 };
            let range = |subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let rig = |range| (rig(place, range, &databases, restored.clone()), range);
            rigs = (0..parallelism).map(|subtask| rig(range(subtask))).collect();
        }
        for (rig, _) in &mut rigs {
            rig.finish();
            given.extend(rig.take_rows());
        }
        prop_assert_eq!(by_key(given, keyed), naive(&rows, keyed, size as usize, slide as usize));
    }
}

/// The store has them in the order of their numbers' bytes, in which 256 is before 255.
#[test]
fn chunks_come_back_in_the_order_of_their_rows() {
    let aggregate = counts(&["k"], 4, 1);
    for rows in 250..262 {
        let mut rig = before(&aggregate, (1 << 20, 1), everything(), &Vec::new(), Vec::new());
        rig.process(&(0..rows).map(|row| (1, 0, row)).collect::<Vec<_>>());
        let (in_databases, pieces) = split_parts(rig.barrier(1));
        while rig.background() {}
        assert!(store(pieces, || false).is_empty(), "all of it is in the database");
        let databases: Databases = in_databases.into_iter().map(|(_, database)| database).collect();
        let mut rig = before(&aggregate, (1 << 20, 1), everything(), &databases, Vec::new());
        rig.process(&[(1, 0, rows)]);
        assert_eq!(rig.take_rows(), [format!("1,4,{},{rows}", 4 * rows - 6)]);
    }
}

#[test]
fn a_database_of_other_windows_is_refused_before_rows_come() {
    let mut rig = before(&counts(&["k"], 6, 2), (1 << 20, 1), everything(), &Vec::new(), Vec::new());
    rig.process(&(0..50).map(|row| (row % 10, 0, row)).collect::<Vec<_>>());
    let (in_databases, _) = split_parts(rig.barrier(1));
    while rig.background() {}
    let databases: Databases = in_databases.into_iter().map(|(_, database)| database).collect();
    let stores = MemoryColdStores::new(MAX_PARALLELISM, 1, OverlayBudget::new(1 << 20)).restored(databases, everything());
    let refused = Rig::try_before(&counts(&["k"], 4, 2), Some(Arc::new(stores)), Vec::new(), everything());
    let error = refused.err().expect("windows of 4 rows have two chunks of a key at most").to_string();
    assert!(error.contains("restore with the window's size and slide as they were"), "{error}");
}

/// The chunks of many keys are far more than memory holds; those of keys that are gone leave the store too.
#[test]
fn chunks_are_more_than_memory_holds() {
    let share = 256 << 10;
    let aggregate = counts(&["k"], 4, 1);
    let mut rig = before(&aggregate, (share, 1), everything(), &Vec::new(), Vec::new());
    for round in 0..3 {
        for part in 0..40 {
            rig.process(&(part * 500..(part + 1) * 500).map(|key| (key, 0, round)).collect::<Vec<_>>());
            rig.background();
        }
        assert!(rig.take_rows().is_empty());
        let bytes = rig.metrics.state_bytes.load(Ordering::Relaxed);
        assert!(bytes <= 3 * share as u64, "{bytes}");
    }
    rig.process(&(0..100).map(|key| (key * 199, 0, 10)).collect::<Vec<_>>());
    let rows = rig.take_rows();
    assert_eq!((rows.len(), rows[1].as_str()), (100, "199,4,13,10"));
    assert!(rig.metrics.store().expect("it has a store").hits > 40_000);
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
        for cold in [false, true] {
            let stores = || Arc::new(MemoryColdStores::new(MAX_PARALLELISM, 1, OverlayBudget::new(0))) as Arc<dyn ColdStores>;
            let stores = cold.then(stores);
            match (Rig::try_before(&counts(&["k"], size, slide), stores, restored.clone(), everything), fits) {
                (Ok(_), true) => {}
                (Err(EngineError::Restore { state, .. }), false) => assert_eq!(state, "chunks"),
                (result, _) => panic!("{size} by {slide}: {:?}", result.err()),
            }
        }
    }
    // Out of a store it is found when the first row of a key comes.
    let mut rig = before(&counts(&["k"], 6, 3), (0, 0), everything(), &Vec::new(), Vec::new());
    rig.process(&[(1, 0, 1), (1, 0, 2), (1, 0, 2), (1, 0, 2), (1, 0, 2)]);
    let databases: Databases = split_parts(rig.barrier(1)).0.into_iter().map(|(_, database)| database).collect();
    while rig.background() {}
    for (size, slide, fits) in [(6, 3, true), (9, 3, true), (6, 2, false), (4, 3, false)] {
        let mut rig = before(&counts(&["k"], size, slide), (0, 0), everything(), &databases, Vec::new());
        match (rig.try_process(batch(&[(1, 0, 1)])), fits) {
            (Ok(()), true) => {}
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
