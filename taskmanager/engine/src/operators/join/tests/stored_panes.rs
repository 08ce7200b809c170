//! Joins in front of a store, against the same on the heap: what goes out, what snapshots have, and what is restored.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::util::display::array_value_to_string;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinKind, JoinScope, JoinSide, OperatorSpec};
use levada_common::planned_state::ROW_NUMBERS;
use levada_state::cold::OverlayBudget;
use levada_state::cold::memory::MemoryColdStores;
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::{Contents, DatabaseSnapshot, StatePart};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, SAME_MS, Step, in_range, kinds, spec, steps, stored, tumbling};
use super::{intervals, windows};
use crate::error::EngineError;
use crate::operator::RestoredState;

/// What operators had in databases.
pub(super) type Databases = Vec<Arc<dyn DatabaseSnapshot>>;

/// Bytes of an overlay, and how often one asks in vain whether something is written.
pub(super) type Memory = (usize, u32);

pub(super) fn everything() -> KeyGroupRange {
    KeyGroupRange::all(MAX_PARALLELISM)
}

fn stores((share, lag): Memory, range: KeyGroupRange, databases: &Databases) -> MemoryColdStores {
    MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(share)).restored(databases.clone(), range)
}

/// A join in front of a store, or on the heap, that starts from what `databases` and `restored` had.
pub(super) fn before(
    spec: &OperatorSpec,
    memory: Option<Memory>,
    range: KeyGroupRange,
    databases: &Databases,
    restored: Vec<RestoredState>,
) -> Rig {
    let cold = memory.map(|memory| Arc::new(stores(memory, range, databases)) as _);
    Rig::try_before(spec, cold, restored, (range, HeapBudget::unlimited())).expect("it opens")
}

pub(super) fn memory() -> impl Strategy<Value = Memory> {
    (prop_oneof![Just(0), 1usize..20_000, 20_000usize..400_000], 0u32..4)
}

/// The databases of a snapshot, and the rest of its states.
pub(super) fn split(parts: Vec<StatePart>) -> (Databases, Vec<StatePart>) {
    let (mut databases, mut others) = (Vec::new(), Vec::new());
    for part in parts {
        match part.contents {
            Contents::Database(database) => databases.push(database),
            contents @ Contents::Pieces(_) => others.push(StatePart { meta: part.meta, contents }),
        }
    }
    // Both sides are in the same one.
    databases.truncate(1);
    (databases, others)
}

/// The rows of a side in a snapshot, as text.
fn rows_of(parts: Vec<StatePart>, side: JoinSide) -> Vec<String> {
    let states = parts.into_iter().filter(|part| part.meta.name == side.state_name()).map(stored);
    let cell = |column: &ArrayRef, row| array_value_to_string(column, row).expect("it has a text");
    let mut rows = Vec::new();
    for batch in states.flat_map(|state| state.batches) {
        let row = |row| batch.columns().iter().map(|column| cell(column, row)).collect::<Vec<_>>().join(",");
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows.sort();
    rows
}

fn act(rig: &mut Rig, step: &Step, range: KeyGroupRange, composite: bool) {
    match step {
        Step::Rows(side, rows) => {
            let mine = in_range(rows, range, composite);
            if !mine.is_empty() {
                rig.process(*side, &mine).expect("rows are taken in");
            }
        }
        Step::Advance(to) => rig.advance(*to),
    }
}

fn scopes() -> impl Strategy<Value = JoinScope> {
    let within = |(from_ms, to_ms)| JoinScope::Within { from_ms, to_ms };
    prop_oneof![5 => windows::scopes(), 1 => Just(JoinScope::Same), 3 => intervals::intervals().prop_map(within)]
}

/// By what rows meet: joins of which that is the same keep the same columns.
fn what_is_kept(scope: &JoinScope) -> usize {
    [scope.window_time().is_some(), *scope == JoinScope::Same, true].iter().position(|is| *is).expect("the last one is")
}

#[derive(Debug, Clone)]
enum Deed {
    Does(Step),
    Barrier,
    /// The newest checkpoint is given up.
    GiveUp,
    Background,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    steps().prop_flat_map(|steps| {
        let beside = prop_oneof![2 => Just(Deed::Barrier), 1 => Just(Deed::GiveUp), 3 => Just(Deed::Background)];
        prop::collection::vec(prop::collection::vec(beside, 0..3), steps.len()).prop_map(move |beside| {
            let each = steps.iter().cloned().zip(beside);
            each.flat_map(|(step, beside)| std::iter::once(Deed::Does(step)).chain(beside)).collect()
        })
    })
}

proptest! {
    #[test]
    fn a_store_behind_changes_nothing(deeds in deeds(), kind in kinds(), scope in scopes(), composite: bool, memory in memory()) {
        let spec = spec(kind, scope.clone(), composite);
        let [mut heap, mut rig] = [None, Some(memory)].map(|memory| before(&spec, memory, everything(), &Vec::new(), Vec::new()));
        // Of a side that only filters the store may have several rows of a key.
        let is_filter = !kind.gives_pairs() && !matches!(scope, JoinScope::Within { .. });
        let compared = if is_filter { &[JoinSide::Left] } else { &JoinSide::ALL[..] };
        let mut running: Option<(u64, Vec<StatePart>, Vec<StatePart>)> = None;
        let compare = |expected: Vec<StatePart>, parts: Vec<StatePart>| {
            let (mut expected, mut parts) = (expected, parts);
            for side in compared {
                let take = |parts: &mut Vec<StatePart>| parts.extract_if(.., |part| part.meta.name == side.state_name()).collect();
                assert_eq!(rows_of(take(&mut parts), *side), rows_of(take(&mut expected), *side));
            }
        };
        for (at, deed) in deeds.iter().enumerate() {
            match deed {
                Deed::Does(step) => {
                    act(&mut heap, step, everything(), composite);
                    act(&mut rig, step, everything(), composite);
                    prop_assert_eq!(heap.take_rows(), rig.take_rows(), "deed {}", at);
                }
                Deed::Barrier => {
                    let both = (at as u64, heap.barrier(at as u64), rig.barrier(at as u64));
                    if let Some((_, expected, parts)) = running.replace(both) {
                        // It was finished at the latest by the barrier.
                        compare(expected, parts);
                    }
                }
                Deed::GiveUp => {
                    if let Some((checkpoint, ..)) = running.take() {
                        rig.give_up(checkpoint);
                    }
                }
                Deed::Background => {
                    rig.background();
                }
            }
        }
        heap.finish();
        rig.finish();
        prop_assert_eq!(heap.take_rows(), rig.take_rows(), "at the end");
        while rig.background() {}
        if let Some((_, expected, parts)) = running {
            compare(expected, parts);
        }
        prop_assert_eq!(heap.take_late(), rig.take_late());
        prop_assert_eq!(rig.state_bytes(), 0, "nothing is kept of what is over");
        // Nor in the store.
        let (databases, _) = split(rig.barrier(1_000));
        while rig.background() {}
        for side in JoinSide::ALL {
            let found = databases[0].rows(side.state_name(), &mut |rows| panic!("{} rows are left", rows.num_rows()));
            found.expect("it was completed");
        }
    }

    /// From a store or the heap, at any width, to a store or the heap, at any width; in databases or in the open format. The join may
    /// have other windows, or another interval, afterwards.
    #[test]
    fn what_a_store_had_is_restored(
        before_it in steps(),
        after in steps(),
        kind in kinds(),
        scopes in (scopes(), scopes(), any::<bool>()),
        composite: bool,
        memories in (memory(), prop::option::of(memory())),
        parallelism in (1u32..4, 1u32..4),
        as_rows: bool,
    ) {
        let is_one_kind = what_is_kept(&scopes.0) == what_is_kept(&scopes.1);
        // In a window a side that only filters has a row for each key: which one is not what other windows need.
        let is_other = scopes.2 && is_one_kind && (kind.gives_pairs() || matches!(scopes.0, JoinScope::Within { .. }));
        let [old, new] = [&scopes.0, if is_other { &scopes.1 } else { &scopes.0 }].map(|scope| spec(kind, scope.clone(), composite));
        let at_barrier = before_it.iter().fold(i64::MIN, |at, step| if let Step::Advance(to) = step { at.max(*to) } else { at });
        let mut heap = Rig::new(&old);
        heap.run(&before_it);
        let mut goes_on = Rig::restored(&new, heap.snapshot(), everything());
        goes_on.advance(at_barrier);
        goes_on.run(&after);
        goes_on.finish();

        let (mut databases, mut states) = (Vec::new(), Vec::new());
        for subtask in 0..parallelism.0 {
            let range = KeyGroupRange::of_subtask(subtask, parallelism.0, MAX_PARALLELISM);
            let mut rig = before(&old, Some(memories.0), range, &Vec::new(), Vec::new());
            before_it.iter().for_each(|step| act(&mut rig, step, range, composite));
            let parts = rig.barrier(1);
            // Late writes are not in it.
            after.iter().for_each(|step| act(&mut rig, step, range, composite));
            while rig.background() {}
            if as_rows || memories.1.is_none() {
                states.extend(parts.into_iter().map(stored));
            } else {
                let (of_subtask, others) = split(parts);
                databases.extend(of_subtask);
                states.extend(others.into_iter().map(stored));
            }
        }
        let mut rows = Vec::new();
        for subtask in 0..parallelism.1 {
            let range = KeyGroupRange::of_subtask(subtask, parallelism.1, MAX_PARALLELISM);
            let mut rig = before(&new, memories.1, range, &databases, states.clone());
            rig.advance(at_barrier);
            for step in &after {
                act(&mut rig, step, range, composite);
                rig.background();
            }
            rig.finish();
            rows.extend(rig.take_rows());
        }
        rows.sort();
        prop_assert_eq!(rows, goes_on.take_rows());
    }
}

/// Rows of so many keys, one each, with ids from `id` on.
fn many(keys: i64, time: i64, id: i64) -> Vec<Row> {
    (0..keys).map(|key| Row { key: Some(key), time, id: id + key }).collect()
}

#[test]
fn a_window_of_more_rows_than_memory_holds_goes_out_range_by_range() {
    let share = 1 << 20;
    let spec = spec(JoinKind::Full, tumbling(10), true);
    let mut rig = before(&spec, Some((share, 2)), everything(), &Vec::new(), Vec::new());
    for part in 0..20 {
        let keys = |from: i64| many(1_000, 5, 0).into_iter().map(move |row| Row { key: row.key.map(|key| key + from), ..row });
        rig.process(JoinSide::Left, &keys(part * 1_000).collect::<Vec<_>>()).unwrap();
        rig.process(JoinSide::Right, &keys(part * 1_000 + 10_000).collect::<Vec<_>>()).unwrap();
        assert!(rig.state_bytes() <= 2 * share as u64);
    }
    rig.advance(9);
    assert!(rig.peak_bytes <= 2 * share as u64, "{} bytes were held", rig.peak_bytes);
    let rows = rig.take_rows();
    assert_eq!(rows.len(), 30_000);
    let pairs = rows.iter().filter(|row| !row.contains("null")).count();
    assert_eq!(pairs, 10_000);
}

/// Slices of rows that memory does not hold stay in the store until the last of their windows is out.
#[test]
fn windows_that_overlap_of_more_rows_than_memory_holds_go_out_range_by_range() {
    let share = 1 << 20;
    let spec = spec(JoinKind::Full, windows::sliding(20, 10), true);
    let mut rig = before(&spec, Some((share, 2)), everything(), &Vec::new(), Vec::new());
    for part in 0..20 {
        let keys = |from: i64, time| {
            many(500, time, 0).into_iter().map(move |row| Row { key: row.key.map(|key| key + from), ..row }).collect::<Vec<_>>()
        };
        for time in [5, 15] {
            rig.process(JoinSide::Left, &keys(part * 500, time)).unwrap();
            rig.process(JoinSide::Right, &keys(part * 500 + 5_000, time)).unwrap();
        }
        assert!(rig.state_bytes() <= 2 * share as u64);
    }
    let given = |rig: &mut Rig| {
        let rows = rig.take_rows();
        (rows.len(), rows.iter().filter(|row| !row.contains("null")).count())
    };
    // Of one slice, of both, and of the other one: half of the keys are on either side.
    for (to, expected) in [(9, (15_000, 5_000)), (19, (40_000, 20_000)), (29, (15_000, 5_000))] {
        rig.advance(to);
        assert_eq!(given(&mut rig), expected, "at {to}");
    }
    assert!(rig.peak_bytes <= 2 * share as u64, "{} bytes were held", rig.peak_bytes);
    assert_eq!(rig.state_bytes(), 0);
    let (databases, _) = split(rig.barrier(1));
    while rig.background() {}
    for side in JoinSide::ALL {
        let found = databases[0].rows(side.state_name(), &mut |rows| panic!("{} rows are left", rows.num_rows()));
        found.expect("it was completed");
    }
}

/// Rows that only the store has meet others, once, and go out alone where they met none.
#[test]
fn an_interval_of_more_rows_than_memory_holds_is_looked_up_and_closed_range_by_range() {
    let share = 1 << 20;
    let spec = spec(JoinKind::Full, JoinScope::Within { from_ms: -100, to_ms: 100 }, true);
    let mut rig = before(&spec, Some((share, 2)), everything(), &Vec::new(), Vec::new());
    let rows = |from: i64, count: i64, time| {
        let rows = many(count, time, 0).into_iter();
        rows.map(move |row| Row { key: row.key.map(|key| key + from), ..row }).collect::<Vec<_>>()
    };
    for part in 0..20 {
        rig.process(JoinSide::Left, &rows(part * 1_000, 1_000, 5 * part)).unwrap();
        assert!(rig.state_bytes() <= 2 * share as u64);
    }
    for time in [50, 60] {
        for part in 5..15 {
            rig.process(JoinSide::Right, &rows(part * 1_000, 1_000, time)).unwrap();
            assert_eq!(rig.take_rows().iter().filter(|row| !row.contains("null")).count(), 1_000);
        }
    }
    rig.process(JoinSide::Right, &rows(30_000, 1_000, 40)).unwrap();
    rig.finish();
    assert!(rig.peak_bytes <= 2 * share as u64, "{} bytes were held", rig.peak_bytes);
    assert_eq!(rig.take_rows().len(), 10_000 + 1_000);
}

fn writes(rig: &Rig) -> u64 {
    rig.metrics.store().expect("it has a store").writes
}

/// Windows that fire first stay in memory: they are never written, nor read.
#[test]
fn rows_that_are_needed_last_leave_first() {
    let spec = spec(JoinKind::Inner, tumbling(10), false);
    let mut rig = before(&spec, Some((1 << 20, 0)), everything(), &Vec::new(), Vec::new());
    rig.process(JoinSide::Left, &many(1_000, 5, 0)).unwrap();
    for part in 0..40 {
        rig.process(JoinSide::Right, &many(1_000, 15 + 10 * (part % 4), 0)).unwrap();
    }
    // What was sent is written, and counted with a row.
    while rig.background() {}
    rig.process(JoinSide::Left, &many(1, 5, 0)).unwrap();
    let written = writes(&rig);
    assert!(written > 0, "nothing had to leave");
    rig.advance(9);
    assert_eq!(writes(&rig), written, "the first window was in the store");
}

/// What a snapshot has written is not written again by the next one.
#[test]
fn each_row_is_written_once() {
    let spec = spec(JoinKind::Inner, tumbling(1_000), false);
    let mut rig = before(&spec, Some((64 << 20, 0)), everything(), &Vec::new(), Vec::new());
    for round in 0..5 {
        rig.process(JoinSide::Left, &many(1_000, 5, 0)).unwrap();
        rig.barrier(round);
        while rig.background() {}
    }
    rig.process(JoinSide::Left, &many(1, 5, 0)).unwrap();
    assert_eq!(writes(&rig), 5_000);
}

#[test]
fn rows_in_a_database_without_their_numbers_are_refused() {
    let spec = spec(JoinKind::Inner, tumbling(10), false);
    let mut rig = before(&spec, Some((0, 0)), everything(), &Vec::new(), Vec::new());
    rig.process(JoinSide::Left, &many(10, 5, 0)).unwrap();
    let (databases, _) = split(rig.barrier(1));
    while rig.background() {}
    let cold = Arc::new(stores((0, 0), everything(), &databases));
    let opened = Rig::try_before(&spec, Some(cold), Vec::new(), (everything(), HeapBudget::unlimited()));
    match opened.err().expect("it is refused") {
        EngineError::Restore { uid, state, .. } => assert_eq!((uid, state.as_str()), (Uid::new("pairs"), ROW_NUMBERS)),
        other => panic!("{other}"),
    }
}

/// Rows of one key come out in the order of their numbers, those of the store first.
#[test]
fn windows_of_the_inputs_stay_what_they_are() {
    let spec = spec(JoinKind::Inner, JoinScope::Same, false);
    let mut rig = before(&spec, Some((0, 0)), everything(), &Vec::new(), Vec::new());
    rig.process(JoinSide::Left, &[Row { key: Some(1), time: 5, id: 1 }]).unwrap();
    let (databases, others) = split(rig.barrier(1));
    while rig.background() {}
    let others = others.into_iter().map(stored).collect();
    let mut restored = before(&spec, Some((0, 0)), everything(), &databases, others);
    restored.process(JoinSide::Right, &[Row { key: Some(1), time: 6, id: 2 }]).unwrap();
    restored.advance(SAME_MS - 1);
    assert_eq!(restored.take_rows(), [format!("1,5,1,2,6,0,{SAME_MS},{}", SAME_MS - 1)]);
}
