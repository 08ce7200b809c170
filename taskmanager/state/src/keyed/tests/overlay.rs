//! Keyed state before a store.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use proptest::prelude::*;

use super::{each, options, rows};
use crate::cold::memory::MemoryColdStore;
use crate::cold::{Opened, OverlayBudget};
use crate::descriptor::{ListStateDescriptor, MapStateDescriptor, Ttl, ValueStateDescriptor};
use crate::keyed::{Clock, HeapBudget, KeyedOptions, KeyedState, contract};
use crate::snapshot::DatabaseSnapshot;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn an_overlay_keeps_the_contract(seed in any::<u64>(), steps in 1usize..200, lag in 0u32..4, share in 0usize..2_000_000) {
        let make = |options: KeyedOptions, databases: &[Arc<dyn DatabaseSnapshot>]| {
            let store = MemoryColdStore::new(options.uid.clone(), options.max_parallelism, lag);
            let store = store.restored(databases.to_vec(), options.key_groups);
            KeyedState::with_store(options, Opened { store: Box::new(store), share: OverlayBudget::new(share).share() })
        };
        contract::check(&make, seed, steps);
    }
}

/// Keyed state before a store in memory.
fn before_a_store(share: usize) -> KeyedState {
    let options = options(HeapBudget::new(1));
    let store = MemoryColdStore::new(options.uid.clone(), options.max_parallelism, 2);
    KeyedState::with_store(options, Opened { store: Box::new(store), share: OverlayBudget::new(share).share() })
}

/// Does the same for a batch of these words, as a task does.
fn batch(state: &mut KeyedState, words: &[String], mut does: impl FnMut(&mut KeyedState)) {
    while !state.is_ready().expect("the store is well") {
        state.background().expect("pieces");
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    each(state, &words, &mut does);
    state.background().expect("pieces");
}

#[test]
fn an_overlay_stays_within_its_share_whatever_grows() {
    const SHARE: usize = 1 << 20;
    let words = |from: usize| (from..from + 500).map(|n| format!("word {n}")).collect::<Vec<_>>();
    let mut state = before_a_store(SHARE);
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    let lines = ListStateDescriptor::<String>::new("lines").bind(&mut state).expect("bound");
    let seen = MapStateDescriptor::<i64, String>::new("seen").bind(&mut state).expect("bound");
    let mut most = 0;
    // Ever more keys, then ever longer lists of some, then ever more entries of some.
    for round in 0..100 {
        batch(&mut state, &words(round * 500), |state| count.set(state, 1).expect("set"));
        most = most.max(state.memory_bytes());
    }
    for round in 0..40 {
        let text = "x".repeat(100);
        batch(&mut state, &words(round % 4 * 500), |state| lines.add(state, text.clone()).expect("added"));
        most = most.max(state.memory_bytes());
    }
    for round in 0..40 {
        batch(&mut state, &words(round % 4 * 500), |state| seen.put(state, &(round as i64), "y".repeat(50)).expect("put"));
        most = most.max(state.memory_bytes());
    }
    // Tables that many keys made large stay so when a few become large.
    assert!(most < 2 * SHARE + SHARE / 4, "{most} bytes of {SHARE}");
    for round in 0..4 {
        batch(&mut state, &words(round * 500), |state| {
            assert_eq!(count.get(state).expect("read"), Some(&1));
            assert_eq!(lines.get(state).expect("read").len(), 10);
            assert_eq!(seen.iter(state).expect("read").count(), 10);
        });
    }
    assert!(state.store_metrics().expect("a store").entries > 50_000);
}

#[test]
fn what_has_expired_leaves_the_store() {
    let ttl = Ttl::processing(Duration::from_secs(10));
    let mut state = before_a_store(0);
    let count = ValueStateDescriptor::<i64>::new("count").with_ttl(ttl).bind(&mut state).expect("bound");
    let clock = |seconds: i64| Clock { processing_ms: 1_700_000_000_000 + seconds * 1_000, ..Clock::default() };
    let words: Vec<String> = (0..1_000).map(|n| format!("word {n}")).collect();
    state.set_clock(clock(0));
    batch(&mut state, &words, |state| count.set(state, 1).expect("set"));
    let other = ["other".to_owned()];
    let settle = |state: &mut KeyedState| (0..20).for_each(|_| batch(state, &other, |_| {}));
    settle(&mut state);
    assert!(state.store_metrics().expect("a store").entries >= 1_000);
    state.set_clock(clock(10));
    settle(&mut state);
    assert_eq!(state.store_metrics().expect("a store").entries, 0);
    batch(&mut state, &words, |state| assert_eq!(count.get(state).expect("read"), None));
}

#[test]
fn a_barrier_in_the_middle_of_a_generation_has_what_it_had_not_sent() {
    let mut state = before_a_store(0);
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    let words: Vec<String> = (0..50_000).map(|n| format!("word {n}")).collect();
    each(&mut state, &words.iter().map(String::as_str).collect::<Vec<_>>(), |state| count.set(state, 1).expect("set"));
    // Memory is short: a generation is being sent, and some of what it has not sent changes.
    each(&mut state, &["word 49999", "word 0"], |state| count.set(state, 2).expect("set"));
    let part = state.snapshot(CheckpointId(1)).expect("a snapshot").remove(0);
    while state.background().expect("pieces") {}
    let (_, pieces) = part.into_pieces().expect("it was sent");
    let pieces: Vec<RecordBatch> = pieces.collect::<Result<_, _>>().expect("the snapshot is whole");
    assert_eq!(rows(&pieces), 50_000);
    let sum: i64 = pieces.iter().flat_map(|piece| piece["value"].as_primitive::<Int64Type>().values().to_vec()).sum();
    assert_eq!(sum, 50_002);
}
