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
use crate::cold::{Opened, OverlayBudget, Phase};
use crate::descriptor::{ListStateDescriptor, MapStateDescriptor, Ttl, ValueStateDescriptor};
use crate::keyed::{Clock, HeapBudget, KeyedOptions, KeyedState, contract};
use crate::snapshot::{Contents, DatabaseSnapshot};

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn backends_take_each_others_snapshots(seed in any::<u64>(), steps in 20usize..200, share in 0usize..100_000) {
        let attempts = std::cell::Cell::new(seed);
        let make = |options: KeyedOptions, databases: &[Arc<dyn DatabaseSnapshot>]| {
            // The subtasks of an attempt are alike: the first one decides.
            if options.key_groups.start == 0 {
                attempts.set(attempts.get().rotate_left(7).wrapping_add(1));
            }
            if databases.is_empty() && attempts.get() % 2 == 0 {
                return KeyedState::new(options);
            }
            let store = MemoryColdStore::new(options.uid.clone(), options.max_parallelism, 1);
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
fn generations_are_as_large_as_the_overlay_has_room_for() {
    const KEYS: usize = 30_000;
    let mut state = before_a_store(1 << 20);
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    let words = words(KEYS);
    let (mut next, mut generations, mut was_sending, mut least) = (1usize, 0, false, u64::MAX);
    let mut before = 0;
    for round in 0..240 {
        let draw = |_| {
            next = (next * 5_021 + 7) % 1_000_003;
            words[next % KEYS].clone()
        };
        let some: Vec<String> = (0..500).map(draw).collect();
        batch(&mut state, &some, |state| count.update_with(state, |count| *count = Some(count.unwrap_or(0) + 1)).expect("set"));
        let overlay = state.overlay.as_ref().expect("an overlay");
        let is_sending = matches!(overlay.write_back.phase(), Phase::Sending { .. });
        if is_sending && !was_sending {
            let writes = state.store_metrics().expect("a store").writes;
            if round >= 60 {
                generations += 1;
                least = least.min(writes - before);
            }
            before = writes;
        }
        was_sending = is_sending;
    }
    let held = state.keys() as u64;
    assert!(
        generations >= 4 && least * 3 >= held,
        "{generations} generations, of {least} entries at least, while {held} are held"
    );
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

/// Keyed state before a store that keeps nothing in memory longer than it must.
fn before_a_store_without_room() -> (KeyedState, impl Fn(&mut KeyedState)) {
    let forget = |state: &mut KeyedState| (0..40).for_each(|round| batch(state, &[format!("other {round}")], |_| {}));
    (before_a_store(0), forget)
}

/// Keyed state that starts from a snapshot of `before`, without states.
fn restored(before: &mut KeyedState, share: usize) -> KeyedState {
    let parts = before.snapshot(CheckpointId(1)).expect("a snapshot");
    while before.background().expect("pieces") {}
    let Contents::Database(database) = &parts[0].contents else { panic!("it is in a store") };
    let options = options(HeapBudget::new(1));
    let store = MemoryColdStore::new(options.uid.clone(), options.max_parallelism, 2);
    let store = store.restored(vec![Arc::clone(database)], options.key_groups);
    KeyedState::with_store(options, Opened { store: Box::new(store), share: OverlayBudget::new(share).share() })
}

fn words(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("word {n}")).collect()
}

#[test]
fn the_maps_of_a_batch_come_in_by_one_read() {
    let bind = |state: &mut KeyedState| MapStateDescriptor::<i64, i64>::new("prices").bind(state).expect("bound");
    let words = words(1_000);
    let mut before = before_a_store(64 << 20);
    let prices = bind(&mut before);
    batch(&mut before, &words, |state| (0..4).for_each(|item| prices.put(state, &item, item).expect("put")));
    // Of what was restored nothing is in memory; with little room some of it comes in together, and the rest one by one.
    for (share, loads) in [(128 << 20, 1..=1), (0, 1_000..=4_000)] {
        let mut state = restored(&mut before, share);
        let prices = bind(&mut state);
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        each(&mut state, &texts, |state| {
            assert_eq!(prices.get(state, &3).expect("read"), Some(&3));
            assert_eq!(prices.get(state, &4).expect("read"), None, "that it is not there is known");
            assert_eq!(prices.iter(state).expect("read").count(), 4);
        });
        let after = state.store_metrics().expect("a store");
        assert!(loads.contains(&after.loads), "{after:?}");
        assert!(share == 0 || (after.reads, after.hits) == (1_000, 4_000), "{after:?}");
    }
}

#[test]
fn of_a_large_map_some_entries_come_in_and_the_others_when_they_are_asked_for() {
    let (mut state, forget) = before_a_store_without_room();
    let prices = MapStateDescriptor::<i64, i64>::new("prices").bind(&mut state).expect("bound");
    let key = words(1);
    batch(&mut state, &key, |state| (0..500).for_each(|item| prices.put(state, &item, item).expect("put")));
    forget(&mut state);
    let before = state.store_metrics().expect("a store");
    batch(&mut state, &key, |state| {
        assert_eq!(prices.get(state, &499).expect("read"), Some(&499));
        assert_eq!(prices.get(state, &500).expect("read"), None);
        prices.remove(state, &0).expect("removed");
    });
    let after = state.store_metrics().expect("a store");
    let at_once = crate::keyed::cold_rows::MAP_ENTRIES_AT_ONCE as u64;
    assert!(after.loads - before.loads <= 4 && after.hits - before.hits <= at_once + 2, "{before:?} {after:?}");
    batch(&mut state, &key, |state| {
        assert_eq!(prices.iter(state).expect("read").count(), 499);
        let whole = state.store_metrics().expect("a store");
        (0..600).for_each(|item| assert_eq!(prices.contains(state, &item).expect("read"), (1..500).contains(&item)));
        assert_eq!(state.store_metrics().expect("a store").loads, whole.loads, "once all of it is there nobody asks");
    });
}

#[test]
fn of_a_list_that_grows_only_what_is_new_is_written() {
    let (mut state, forget) = before_a_store_without_room();
    let lines = ListStateDescriptor::<i64>::new("lines").bind(&mut state).expect("bound");
    let key = words(1);
    batch(&mut state, &key, |state| lines.add_all(state, 0..30_000).expect("added"));
    forget(&mut state);
    let writes = |state: &KeyedState| state.store_metrics().expect("a store").writes;
    assert_eq!(writes(&state), 30_000);
    for round in 0..3 {
        batch(&mut state, &key, |state| lines.add(state, 30_000 + round).expect("added"));
        forget(&mut state);
        assert_eq!(writes(&state), 30_001 + round as u64);
    }
    // Another list in its place: all of the old one goes, by one delete of what is below its key.
    batch(&mut state, &key, |state| lines.update(state, [7]).expect("replaced"));
    forget(&mut state);
    assert_eq!((writes(&state), state.store_metrics().expect("a store").entries), (30_005, 1));
    batch(&mut state, &key, |state| lines.add(state, 8).expect("added"));
    forget(&mut state);
    batch(&mut state, &key, |state| assert_eq!(lines.get(state).expect("read"), [7, 8]));
}

#[test]
fn a_list_whose_first_elements_expired_keeps_the_places_of_the_others() {
    let (mut state, forget) = before_a_store_without_room();
    let ttl = Ttl::processing(Duration::from_secs(10));
    let recent = ListStateDescriptor::<i64>::new("recent").with_ttl(ttl).bind(&mut state).expect("bound");
    let key = words(1);
    for second in 0..30 {
        state.set_clock(Clock { processing_ms: 1_700_000_000_000 + second * 1_000, ..Clock::default() });
        batch(&mut state, &key, |state| {
            recent.add(state, second).expect("added");
            let living: Vec<i64> = ((second - 9).max(0)..=second).collect();
            assert_eq!(recent.get(state).expect("read"), living);
        });
        if second % 3 == 0 {
            forget(&mut state);
        }
    }
    forget(&mut state);
    // What expired went by itself; each was written once.
    let metrics = state.store_metrics().expect("a store");
    assert_eq!((metrics.writes, metrics.entries), (30, 10));
}

#[test]
fn once_all_that_was_restored_is_in_memory_new_keys_ask_for_nothing() {
    let mut before = before_a_store(64 << 20);
    let bind = |state: &mut KeyedState| {
        let count = ValueStateDescriptor::<i64>::new("count").bind(state).expect("bound");
        (count, MapStateDescriptor::<i64, i64>::new("seen").per_window().bind(state).expect("bound"))
    };
    let (count, seen) = bind(&mut before);
    let words = words(3_000);
    let window = super::window(0, 10);
    batch(&mut before, &words, |state| {
        count.set(state, 1).expect("set");
        state.set_namespace(Some(window));
        seen.put(state, &1, 1).expect("put");
    });
    let mut state = restored(&mut before, 64 << 20);
    let (count, seen) = bind(&mut state);
    batch(&mut state, &words[..5], |state| {
        count.clear(state).expect("cleared");
        state.set_namespace(Some(window));
        seen.put(state, &1, 2).expect("put");
    });
    while state.background().expect("rows come in") {}
    let asked = state.store_metrics().expect("a store").loads;
    let others: Vec<String> = (0..1_000).map(|n| format!("other {n}")).collect();
    for words in [&words, &others] {
        batch(&mut state, words, |state| {
            let at = count.get(state).expect("read").copied();
            state.set_namespace(Some(window));
            let entry = seen.get(state, &1).expect("read").copied();
            assert!(matches!((at, entry), (Some(1), Some(1)) | (None, Some(2)) | (None, None)), "{at:?} {entry:?}");
        });
    }
    assert_eq!(state.store_metrics().expect("a store").loads, asked);
    assert_eq!(state.entries().map(|(_, entries)| entries).collect::<Vec<_>>(), [2_995, 3_000]);
}

#[test]
fn the_windows_of_timers_come_in_by_one_read() {
    let bind = |state: &mut KeyedState| {
        let sum = ValueStateDescriptor::<i64>::new("sum").per_window().bind(state).expect("bound");
        let rows = ListStateDescriptor::<i64>::new("rows").per_window().bind(state).expect("bound");
        (sum, rows, MapStateDescriptor::<i64, i64>::new("seen").per_window().bind(state).expect("bound"))
    };
    let mut before = before_a_store(64 << 20);
    let (sum, rows, seen) = bind(&mut before);
    let (words, window, other) = (words(500), super::window(0, 10), super::window(5, 15));
    batch(&mut before, &words, |state| {
        state.set_namespace(Some(window));
        sum.set(state, 7).expect("set");
        rows.add_all(state, [1, 2, 3]).expect("added");
        seen.put_all(state, [(1, 10), (2, 20)]).expect("put");
    });
    let mut state = restored(&mut before, 64 << 20);
    let (sum, rows, seen) = bind(&mut state);
    // Timers keep the ids of their keys; here the batch does.
    let texts: Vec<&str> = words.iter().map(String::as_str).collect();
    super::enter(&mut state, &texts);
    let before = state.store_metrics().expect("a store");
    let ids = state.ids().to_vec();
    let windows: Vec<_> = (0..ids.len()).map(|row| if row % 2 == 0 { window } else { other }).collect();
    state.fetch_windows(&ids, &windows).expect("fetched");
    for (id, at) in ids.iter().zip(&windows) {
        state.set_current(*id);
        state.set_namespace(Some(*at));
        let expected = (*at == window).then_some(7);
        assert_eq!(sum.get(&mut state).expect("read").copied(), expected);
        assert_eq!(rows.get(&mut state).expect("read").len(), if expected.is_some() { 3 } else { 0 });
        assert_eq!(seen.get(&mut state, &2).expect("read").copied(), expected.map(|_| 20));
        assert_eq!(seen.get(&mut state, &3).expect("read"), None);
        assert_eq!(seen.iter(&mut state).expect("read").count(), if expected.is_some() { 2 } else { 0 });
    }
    let after = state.store_metrics().expect("a store");
    // Of the other window the store has nothing, which is known.
    assert_eq!((after.loads - before.loads, after.reads - before.reads, after.hits - before.hits), (3, 750, 1_500));
    state.finish_batch(|_| false).expect("the batch ends");
}

#[test]
fn the_window_that_most_rows_ask_for_comes_in_with_the_next_batch() {
    let bind = |state: &mut KeyedState| {
        let sum = ValueStateDescriptor::<i64>::new("sum").per_window().bind(state).expect("bound");
        (sum, MapStateDescriptor::<i64, i64>::new("seen").per_window().bind(state).expect("bound"))
    };
    let mut before = before_a_store(64 << 20);
    let (sum, seen) = bind(&mut before);
    let (words, window, next) = (words(1_000), super::window(0, 10), super::window(10, 20));
    batch(&mut before, &words, |state| {
        state.set_namespace(Some(window));
        sum.set(state, 7).expect("set");
        seen.put(state, &1, 1).expect("put");
    });
    let mut state = restored(&mut before, 64 << 20);
    let (sum, seen) = bind(&mut state);
    let texts: Vec<&str> = words.iter().map(String::as_str).collect();
    let loads_of = |state: &mut KeyedState, words: &[&str], window, expected: Option<i64>| {
        let before = state.store_metrics().expect("a store").loads;
        each(state, words, |state| {
            state.set_namespace(Some(window));
            assert_eq!(sum.get(state).expect("read").copied(), expected);
            assert_eq!(seen.get(state, &1).expect("read").copied(), expected.map(|_| 1));
        });
        state.store_metrics().expect("a store").loads - before
    };
    assert_eq!(loads_of(&mut state, &texts[..500], window, Some(7)), 1_000, "nobody knew");
    assert_eq!(loads_of(&mut state, &texts[500..900], window, Some(7)), 2);
    assert_eq!(loads_of(&mut state, &texts[900..], next, None), 2, "of a new window the store has nothing");
    assert_eq!(loads_of(&mut state, &texts[..100], next, None), 0);
}

#[test]
fn a_list_that_is_only_added_to_is_not_read() {
    let (mut state, forget) = before_a_store_without_room();
    let lines = ListStateDescriptor::<i64>::new("lines").bind(&mut state).expect("bound");
    let rows = ListStateDescriptor::<i64>::new("rows").per_window().bind(&mut state).expect("bound");
    let (words, window) = (words(100), super::window(0, 10));
    let add = |state: &mut KeyedState, numbers: std::ops::Range<i64>| {
        batch(state, &words, |state| {
            lines.add_all(state, numbers.clone()).expect("added");
            state.set_namespace(Some(window));
            rows.add_all(state, numbers.clone()).expect("added");
        });
        forget(state);
    };
    add(&mut state, 0..1_000);
    for round in 0..3 {
        let before = state.store_metrics().expect("a store");
        add(&mut state, 1_000 + round..1_001 + round);
        let after = state.store_metrics().expect("a store");
        assert_eq!((after.hits - before.hits, after.writes - before.writes), (200, 200), "the last of each list is found");
    }
    // Timers bring in the rest, of what is added meanwhile too.
    let texts: Vec<&str> = words.iter().map(String::as_str).collect();
    super::enter(&mut state, &texts);
    let ids = state.ids().to_vec();
    for id in &ids {
        state.set_current(*id);
        lines.add(&mut state, 1_003).expect("added");
        state.set_namespace(Some(window));
        rows.add(&mut state, 1_003).expect("added");
    }
    let before = state.store_metrics().expect("a store").loads;
    state.fetch_windows(&ids, &vec![window; ids.len()]).expect("fetched");
    for id in &ids {
        state.set_current(*id);
        assert!(lines.get(&mut state).expect("read").iter().copied().eq(0..1_004));
        state.set_namespace(Some(window));
        assert!(rows.get(&mut state).expect("read").iter().copied().eq(0..1_004));
    }
    assert_eq!(state.store_metrics().expect("a store").loads - before, 2);
    state.finish_batch(|_| false).expect("the batch ends");
    forget(&mut state);
    // Where they were asked for they come in whole with the next batch.
    let before = state.store_metrics().expect("a store").loads;
    batch(&mut state, &words, |state| assert_eq!(lines.get(state).expect("read").len(), 1_004));
    assert_eq!(state.store_metrics().expect("a store").loads - before, 1);
}
