//! Keyed state on the heap.

mod overlay;

use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::types::{Column, LogicalType};
use proptest::prelude::*;

use super::*;
use crate::descriptor::{
    ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor, Ttl, ValueState, ValueStateDescriptor,
};
use crate::row_codec::TTL_COLUMN;
use crate::snapshot::PieceReader;

fn options(budget: HeapBudget) -> KeyedOptions {
    KeyedOptions {
        uid: Uid::new("counts"),
        keys: vec![Column::new("word", LogicalType::String, false)],
        key_groups: KeyGroupRange::all(128),
        max_parallelism: 128,
        budget: Arc::new(budget),
    }
}

fn state() -> KeyedState {
    KeyedState::new(options(HeapBudget::unlimited()))
}

fn enter(state: &mut KeyedState, words: &[&str]) {
    let column: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
    state.enter(&[column], words.len()).expect("entered");
}

/// One batch in which `does` runs for each word.
fn each(state: &mut KeyedState, words: &[&str], mut does: impl FnMut(&mut KeyedState)) {
    enter(state, words);
    for row in 0..words.len() {
        state.set_row(row);
        does(state);
    }
    state.finish_batch(|_| false).expect("the batch ends");
}

fn window(start: i64, end: i64) -> Namespace {
    Namespace { start, end }
}

/// The pieces to come of the one state that is bound.
fn barrier(state: &mut KeyedState) -> PieceReader {
    let part = state.snapshot(CheckpointId(1)).expect("a snapshot").remove(0);
    part.into_pieces().expect("the heap has pieces").1
}

/// The whole snapshot of the one state that is bound.
fn snapshot(state: &mut KeyedState) -> Vec<RecordBatch> {
    let pieces = barrier(state);
    while state.background().expect("pieces") {}
    pieces.collect::<Result<_, _>>().expect("the snapshot is whole")
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_heap_keeps_the_contract(seed in any::<u64>(), steps in 1usize..200) {
        contract::check(&|options, _| KeyedState::new(options), seed, steps);
    }
}

#[test]
fn a_key_without_anything_is_forgotten_and_its_id_used_again() {
    let mut state = state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    let seen = MapStateDescriptor::<i64, bool>::new("seen").bind(&mut state).expect("bound");
    each(&mut state, &["a", "b", "only looked at"], |state| {
        if state.current() != Some(2) {
            count.set(state, 1).expect("set");
            seen.put(state, &7, true).expect("put");
        }
        assert_eq!(count.get(state).expect("read").is_some(), state.current() != Some(2));
    });
    assert_eq!(state.keys(), 2);
    each(&mut state, &["a"], |state| count.clear(state).expect("cleared"));
    assert_eq!(state.keys(), 2, "its map is still there");
    each(&mut state, &["a"], |state| seen.clear(state).expect("cleared"));
    assert_eq!(state.keys(), 1);
    each(&mut state, &["c", "d", "b"], |state| {
        let n = state.current().expect("a key");
        assert_eq!(count.get(state).expect("read").copied(), (n == 1).then_some(1), "a new key has nothing of the old one");
        count.set(state, 2).expect("set");
    });
    assert_eq!(state.keys(), 3);
    enter(&mut state, &["c"]);
    assert!(state.ids()[0] < 3, "an id was used again");
    state.finish_batch(|_| false).expect("the batch ends");
}

#[test]
fn a_key_with_timers_stays() {
    let mut state = state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    enter(&mut state, &["a", "b"]);
    let timer = state.ids()[0];
    state.finish_batch(|key| key == timer).expect("the batch ends");
    assert_eq!(state.keys(), 1);
    state.set_current(timer);
    assert_eq!(count.get(&mut state).expect("read"), None);
    state.reconsider(&[timer]);
    state.finish_batch(|_| false).expect("the round ends");
    assert_eq!(state.keys(), 0);
}

#[test]
fn misuse_is_an_error_that_names_the_state() {
    let mut state = state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    let sums = ReducingStateDescriptor::new("sums", |sum: &mut i64, more| *sum += more).per_window().bind(&mut state);
    let sums = sums.expect("bound");
    let text = |result: StateResult<()>| result.expect_err("refused").to_string();
    assert_eq!(
        text(count.set(&mut state, 1)),
        "state \"count\" of operator \"counts\" was used without a current key: enter a row first"
    );
    enter(&mut state, &["a"]);
    state.set_row(0);
    assert_eq!(
        text(sums.add(&mut state, 1)),
        "state \"sums\" of operator \"counts\" is kept per window and was used without one: set a namespace first"
    );
    let mut other = self::state();
    let foreign = ListStateDescriptor::<i64>::new("list").bind(&mut other).expect("bound");
    assert!(text(foreign.add(&mut state, 1)).contains("which was not bound to it"));
    let restored = state.restore("gone", []).expect_err("refused").to_string();
    assert!(restored.contains("--drop-state counts/gone"), "{restored}");
}

#[test]
fn memory_over_the_budget_names_the_state_and_the_remedy() {
    let budget = Arc::new(HeapBudget::new(200_000));
    let mut state = KeyedState::new(KeyedOptions { budget: Arc::clone(&budget), ..options(HeapBudget::unlimited()) });
    let small = ValueStateDescriptor::<i64>::new("small").bind(&mut state).expect("bound");
    let large = ListStateDescriptor::<String>::new("large").bind(&mut state).expect("bound");
    each(&mut state, &["a"], |state| {
        small.set(state, 1).expect("set");
        large.add(state, "x".repeat(100_000)).expect("added");
    });
    assert!((100_000..200_000).contains(&budget.used()), "{}", budget.used());
    enter(&mut state, &["a"]);
    state.set_row(0);
    large.add(&mut state, "y".repeat(100_000)).expect("added");
    let error = state.finish_batch(|_| false).expect_err("refused").to_string();
    for part in
        ["operator \"counts\"", "state \"large\"", "of 200000 bytes", "use the rocksdb backend or raise taskmanager.memory.total"]
    {
        assert!(error.contains(part), "{error}");
    }
    drop(state);
    assert_eq!(budget.used(), 0);
}

#[test]
fn windows_of_lists_are_merged_in_order() {
    let mut state = state();
    let list = ListStateDescriptor::<i64>::new("list").per_window().bind(&mut state).expect("bound");
    each(&mut state, &["a"], |state| {
        for (start, element) in [(0, 1), (10, 2), (20, 3)] {
            state.set_namespace(Some(window(start, start + 10)));
            list.add_all(state, [element, element * 10]).expect("added");
        }
        assert_eq!(list.namespaces(state).expect("read"), [window(0, 10), window(10, 20), window(20, 30)]);
        list.merge_namespaces(state, window(10, 20), &[window(20, 30), window(10, 20), window(0, 10)]).expect("merged");
        state.set_namespace(Some(window(10, 20)));
        assert_eq!(list.get(state).expect("read"), [2, 20, 3, 30, 1, 10]);
        assert_eq!(list.namespaces(state).expect("read"), [window(10, 20)]);
    });
}

#[test]
fn a_long_list_leaves_in_pieces_and_is_not_copied_to_grow() {
    let mut state = state();
    let list = ListStateDescriptor::<i64>::new("list").bind(&mut state).expect("bound");
    each(&mut state, &["a"], |state| list.add_all(state, 0..30_000).expect("added"));
    let pieces = barrier(&mut state);
    let before = state.memory_bytes();
    each(&mut state, &["a"], |state| list.add_all(state, 0..10).expect("added"));
    assert!(state.memory_bytes() < before + 200_000, "nothing was copied");
    assert!(state.background().expect("pieces"));
    each(&mut state, &["a"], |state| list.update(state, [1]).expect("replaced"));
    while state.background().expect("pieces") {}
    let pieces: Vec<_> = pieces.collect::<Result<_, _>>().expect("the snapshot is whole");
    assert!(pieces.iter().all(|piece| piece.num_rows() <= 8192));
    let values = pieces.iter().flat_map(|piece| piece["value"].as_primitive::<Int64Type>().values().to_vec());
    assert!(values.eq(0..30_000));
}

#[test]
fn large_values_that_change_leave_in_pieces() {
    const BYTES: usize = 20_000;
    let mut state = state();
    let blob = ValueStateDescriptor::<Vec<u8>>::new("blob").bind(&mut state).expect("bound");
    let words: Vec<String> = (0..1_500).map(|word| word.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    each(&mut state, &words, |state| blob.set(state, vec![1; BYTES]).expect("set"));
    let pieces = barrier(&mut state);
    // What the barrier has not saved is saved before it changes, all of it in one batch.
    each(&mut state, &words, |state| blob.set(state, vec![2; BYTES]).expect("set"));
    while state.background().expect("no errors") {}
    let pieces: Vec<RecordBatch> = pieces.map(|piece| piece.expect("it comes")).collect();
    assert_eq!(rows(&pieces), words.len());
    let largest = pieces.iter().map(RecordBatch::num_rows).max().expect("there are some");
    assert!(largest * BYTES <= piece::PIECE_BYTES_MAX + BYTES, "a piece has {largest} values");
    for piece in &pieces {
        let blobs = piece.column(1).as_binary::<i32>();
        assert!(blobs.iter().all(|blob| blob.is_some_and(|blob| blob.len() == BYTES && blob[0] == 1)));
    }
}

#[test]
fn what_has_expired_is_not_in_a_snapshot_and_goes_by_itself() {
    // Case G45.
    let mut state = state();
    let ttl = Ttl::processing(Duration::from_millis(30));
    let count = ValueStateDescriptor::<i64>::new("count").with_ttl(ttl).bind(&mut state).expect("bound");
    let words: Vec<String> = (0..2000).map(|word| format!("word {word}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    each(&mut state, &words, |state| count.set(state, 1).expect("set"));
    state.set_clock(Clock { processing_ms: 29, ..Clock::default() });
    assert_eq!(rows(&snapshot(&mut state)), 2000);
    state.set_clock(Clock { processing_ms: 30, ..Clock::default() });
    each(&mut state, &["tick"], |state| count.set(state, 1).expect("set"));
    assert_eq!(rows(&snapshot(&mut state)), 1);
    for _ in 0..20 {
        each(&mut state, &["tick"], |_| {});
    }
    assert_eq!(state.keys(), 1);
    each(&mut state, &["word 1"], |state| {
        assert_eq!(count.get(state).expect("read"), None);
        count.update_with(state, |count| *count = Some(count.unwrap_or(0) + 1)).expect("updated");
        assert_eq!(count.get(state).expect("read"), Some(&1));
    });
}

#[test]
fn a_time_to_live_is_switched_on_and_off_across_restores() {
    // Case G46.
    let bind = |ttl: Option<Ttl>| {
        let mut state = state();
        let descriptor = ValueStateDescriptor::<i64>::new("count");
        let descriptor = ttl.map_or(descriptor.clone(), |ttl| descriptor.with_ttl(ttl));
        let count = descriptor.bind(&mut state).expect("bound");
        (state, count)
    };
    let one_more = |state: &mut KeyedState, count: ValueState<i64>| {
        each(state, &["a", "b"], |state| {
            count.update_with(state, |count| *count = Some(count.unwrap_or(0) + 1)).expect("updated");
        });
    };
    let (mut state, count) = bind(None);
    (0..50).for_each(|_| one_more(&mut state, count));
    let without = snapshot(&mut state);
    assert!(without[0].column_by_name(TTL_COLUMN).is_none());

    let hour = Ttl::processing(Duration::from_secs(3600));
    let (mut state, count) = bind(Some(hour));
    state.set_clock(Clock { processing_ms: 1_700_000_000_000, ..Clock::default() });
    state.restore("count", without).expect("restored");
    one_more(&mut state, count);
    each(&mut state, &["a"], |state| assert_eq!(count.get(state).expect("read"), Some(&51)));
    let with = snapshot(&mut state);
    let stamps = with[0][TTL_COLUMN].as_primitive::<TimestampMillisecondType>().clone();
    assert_eq!((stamps.null_count(), stamps.value(0)), (0, 1_700_000_000_000));

    let (mut state, count) = bind(None);
    state.restore("count", with).expect("restored");
    one_more(&mut state, count);
    each(&mut state, &["b"], |state| assert_eq!(count.get(state).expect("read"), Some(&52)));
}

#[test]
fn a_snapshot_without_stamps_lives_a_whole_life_from_the_first_look() {
    let mut state = state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    each(&mut state, &["a"], |state| count.set(state, 1).expect("set"));
    let without = snapshot(&mut state);
    let mut state = self::state();
    let ttl = Ttl::event(Duration::from_millis(10));
    let count = ValueStateDescriptor::<i64>::new("count").with_ttl(ttl).bind(&mut state).expect("bound");
    state.restore("count", without).expect("restored");
    for (watermark_ms, expected) in [(i64::MIN, true), (100, true), (109, true), (110, false)] {
        state.set_clock(Clock { watermark_ms, row_ms: watermark_ms, ..Clock::default() });
        each(&mut state, &["a"], |state| {
            assert_eq!(count.get(state).expect("read").is_some(), expected, "at {watermark_ms}");
        });
    }
}

#[test]
fn a_restored_batch_is_given_up_before_the_next_one_comes() {
    let mut state = state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    for key in ["a", "b", "c"] {
        each(&mut state, &[key], |state| count.set(state, 1).expect("set"));
    }
    let whole = snapshot(&mut state);
    let rows = whole.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| batch.slice(row, 1)));
    let mut last: Option<Weak<dyn Array>> = None;
    let one_by_one = rows.inspect(|batch| {
        assert!(last.as_ref().is_none_or(|last| last.strong_count() == 0), "the batch before is still held");
        last = Some(Arc::downgrade(batch.column(0)));
    });
    let mut state = self::state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    state.restore("count", one_by_one).expect("restored");
    each(&mut state, &["a", "b", "c"], |state| assert_eq!(count.get(state).expect("read"), Some(&1)));
}

#[test]
fn a_snapshot_of_another_type_is_refused() {
    let mut state = state();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    each(&mut state, &["a"], |state| count.set(state, 1).expect("set"));
    let numbers = snapshot(&mut state);
    let mut state = self::state();
    ValueStateDescriptor::<String>::new("count").bind(&mut state).expect("bound");
    let error = state.restore("count", numbers.clone()).expect_err("refused");
    assert!(matches!(*error, StateError::Type { .. }), "{error}");
    let mut state = KeyedState::new(KeyedOptions {
        keys: vec![Column::new("word", LogicalType::Int64, false)],
        ..options(HeapBudget::unlimited())
    });
    ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    let error = state.restore("count", numbers).expect_err("refused").to_string();
    assert!(error.contains("key column \"word\" is Utf8, the program's is INT64"), "{error}");
}

#[test]
fn state_without_a_key_column_has_one_key() {
    let mut state = KeyedState::new(KeyedOptions { keys: Vec::new(), ..options(HeapBudget::unlimited()) });
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).expect("bound");
    for expected in 0..3 {
        state.enter(&[], 2).expect("entered");
        state.set_row(1);
        assert_eq!(count.get(&mut state).expect("read").copied().unwrap_or(0), expected);
        count.set(&mut state, expected + 1).expect("set");
        state.finish_batch(|_| false).expect("the batch ends");
    }
    let pieces = snapshot(&mut state);
    let key: ArrayRef = Arc::new(Int64Array::from(vec![3]));
    assert_eq!((pieces.len(), &pieces[0]["value"]), (1, &key));
}
