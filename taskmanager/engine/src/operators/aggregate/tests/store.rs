//! Aggregations in front of a store, against the same on the heap: what goes out, what snapshots have, and what is restored.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::AsArray;
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateCall, AggregatePhase, AggregateSpec, FiringSpec, OrderSpec, Trigger, WindowSpec};
use levada_common::planned_state::SESSION_BOUNDS;
use levada_common::time::Watermark;
use levada_common::types::LogicalType;
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{OverlayBudget, SharedStores};
use levada_state::snapshot::{Contents, DatabaseSnapshot, StateMeta, StatePart};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, batch, calls, in_range, rows_of, spec, store, tumbling};
use super::sessions::{per_row, session, with_gaps};
use super::slices::{cumulate, sliding, windows_of};
use super::told_apart::distinct;
use super::windows::{Step, sorted};
use crate::operator::RestoredState;
use crate::testing::collect;

/// What operators had in databases.
pub(super) type Databases = Vec<Arc<dyn DatabaseSnapshot>>;

/// States that snapshots have in databases.
pub(super) type InDatabases = Vec<(StateMeta, Arc<dyn DatabaseSnapshot>)>;

pub(super) fn everything() -> KeyGroupRange {
    KeyGroupRange::all(MAX_PARALLELISM)
}

/// An operator in front of a store, with an overlay of so many bytes, that is asked so often in vain for each seal. It starts from
/// what `databases` and `restored` had.
pub(super) fn before(
    aggregate: &AggregateSpec,
    memory: (usize, u32),
    range: KeyGroupRange,
    databases: &Databases,
    restored: Vec<RestoredState>,
) -> Rig {
    let (share, lag) = memory;
    let stores = MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(share)).restored(databases.clone(), range);
    let stores = SharedStores::new(Arc::new(stores));
    Rig::try_before(aggregate, Some(Arc::new(stores)), restored, range).expect("it opens")
}

/// The databases of a snapshot, and the rest of its states.
pub(super) fn split_parts(parts: Vec<StatePart>) -> (InDatabases, Vec<StatePart>) {
    let (mut databases, mut others) = (Vec::new(), Vec::new());
    for part in parts {
        match part.contents {
            Contents::Database(database) => databases.push((part.meta, database)),
            contents @ Contents::Pieces(_) => others.push(StatePart { meta: part.meta, contents }),
        }
    }
    (databases, others)
}

/// A state of a snapshot that is in a database.
pub(super) fn as_part(meta: StateMeta, database: Arc<dyn DatabaseSnapshot>) -> StatePart {
    StatePart { meta, contents: Contents::Database(database) }
}

/// The rows of the keyed states among these.
fn state_rows(states: &[RestoredState]) -> Vec<String> {
    sorted(keyed(states).flat_map(rows_of).collect())
}

fn keyed(states: &[RestoredState]) -> impl Iterator<Item = &RecordBatch> {
    states.iter().filter(|state| !["watermark", SESSION_BOUNDS].contains(&state.name.as_str())).flat_map(|state| &state.batches)
}

/// Likewise, but for slices whose windows have all fired at this watermark, and values of windows that have: they leave the store
/// beside the rows.
fn live_rows(states: &[RestoredState], window: &WindowSpec, watermark: i64) -> Vec<String> {
    let is_live = |start: &i64| match window {
        WindowSpec::Tumbling { size_ms, .. } => start + size_ms - 1 > watermark,
        window => windows_of(window, *start).iter().any(|(_, end)| end - 1 > watermark),
    };
    if !matches!(window, WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } | WindowSpec::Cumulate { .. }) {
        return state_rows(states);
    }
    let live = |batch: &RecordBatch| {
        let slices = batch.column_by_name("namespace").expect("slices have bounds").as_struct();
        let starts = slices.column(0).as_primitive::<TimestampMillisecondType>().values();
        rows_of(batch).into_iter().zip(starts).filter(|(_, start)| is_live(start)).map(|(row, _)| row).collect::<Vec<_>>()
    };
    sorted(keyed(states).flat_map(live).collect())
}

/// Calls for sessions: which of equal rows of sessions that were apart is chosen depends on batches, but none are equal in the time.
fn calls_by_time() -> Vec<AggregateCall> {
    let by_time = OrderSpec { column: "t".into(), ty: LogicalType::Int64, nullable: false, descending: false };
    let mut calls = calls();
    calls.iter_mut().filter(|call| !call.order.is_empty()).for_each(|call| call.order.push(by_time.clone()));
    calls
}

/// Gives results early and late.
fn given_often(aggregate: AggregateSpec) -> AggregateSpec {
    let rows = |rows| Some(Trigger { every_ms: None, rows: Some(rows) });
    AggregateSpec { firing: Some(FiringSpec { early: rows(3), lateness_ms: 20, late: rows(2), accumulate: true }), ..aggregate }
}

fn aggregates() -> Vec<AggregateSpec> {
    let full = AggregateSpec { changelog_full: true, ..spec(&["k"], WindowSpec::Running, calls()) };
    vec![
        spec(&["k"], WindowSpec::Running, calls()),
        full,
        spec(&["k", "s"], WindowSpec::Global, calls()),
        spec(&[], WindowSpec::Global, calls()),
        spec(&["s"], tumbling(15), calls()),
        spec(&[], tumbling(15), calls()),
        spec(&["k"], tumbling(40), calls()[..1].to_vec()),
        spec(&["k"], WindowSpec::Running, vec![collect("all")]),
        spec(&["k"], tumbling(15), vec![collect("all")]),
        spec(&["k"], sliding(15, 6, 2), calls()),
        spec(&["s"], sliding(40, 40, 0), calls()),
        spec(&[], sliding(15, 6, 2), calls()),
        spec(&["k"], cumulate(24, 6, 3), calls()),
        spec(&["k"], session(5), calls_by_time()),
        spec(&["s"], session(30), calls_by_time()),
        spec(&[], session(2), calls_by_time()),
        spec(&["k"], per_row(), calls_by_time()),
        // With what was given last: what a session had last depends on which rows came at once, and subtasks divide them.
        AggregateSpec { changelog_full: true, ..given_often(spec(&["k"], session(15), calls_by_time())) },
        given_often(spec(&["s"], per_row(), calls_by_time())),
        given_often(spec(&[], session(2), vec![collect("all")])),
        distinct(&["k"], WindowSpec::Running),
        distinct(&["k"], tumbling(15)),
        distinct(&[], tumbling(40)),
        spec(&["k"], WindowSpec::Count { size: 3, slide: 3 }, calls()),
        spec(&["s"], WindowSpec::Count { size: 20, slide: 20 }, vec![collect("all")]),
        spec(&["k"], WindowSpec::Count { size: 4, slide: 2 }, calls()),
        spec(&["k"], WindowSpec::Count { size: 7, slide: 3 }, vec![collect("all")]),
        spec(&["s"], WindowSpec::Count { size: 30, slide: 10 }, calls()),
        spec(&[], WindowSpec::Count { size: 30, slide: 12 }, calls()),
        distinct(&["k"], session(15)),
        given_often(distinct(&["s"], per_row())),
        AggregateSpec { changelog_full: true, ..given_often(distinct(&[], session(3))) },
        distinct(&["k"], WindowSpec::Count { size: 3, slide: 3 }),
        distinct(&["k"], WindowSpec::Count { size: 7, slide: 3 }),
        distinct(&[], WindowSpec::Count { size: 30, slide: 12 }),
    ]
}

/// The step with rows that the aggregation can take.
fn fitting(aggregate: &AggregateSpec, step: Step) -> Step {
    if aggregate.window == per_row() { with_gaps(&[step]).swap_remove(0) } else { step }
}

/// Number of aggregations.
const AGGREGATES: usize = 35;

/// What a test does to an operator.
#[derive(Debug, Clone)]
enum Deed {
    Does(Step),
    Barrier,
    /// The newest checkpoint is given up.
    GiveUp,
    Background,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let row = (0i64..400, -60i64..60, -9i64..9);
    let deed = prop_oneof![
        6 => prop::collection::vec(row, 1..60).prop_map(|rows| Deed::Does(Step::Rows(rows))),
        2 => (-70i64..50).prop_map(|to| Deed::Does(Step::Advance(to))),
        2 => Just(Deed::Barrier),
        1 => Just(Deed::GiveUp),
        3 => Just(Deed::Background),
    ];
    prop::collection::vec(deed, 1..60)
}

/// Bytes of the overlay and how lazy the store is.
pub(super) fn memory() -> impl Strategy<Value = (usize, u32)> {
    (prop_oneof![Just(0), 1usize..20_000, 20_000usize..400_000], 0u32..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let row = (0i64..60, -60i64..60, -9i64..9);
    let step = prop_oneof![
        3 => prop::collection::vec(row, 1..40).prop_map(Step::Rows),
        1 => (-70i64..50).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..25)
}

/// Does it with the rows of `range`, at a time that never goes back.
fn act(rig: &mut Rig, step: &Step, watermark: &mut i64, range: KeyGroupRange) {
    match step {
        Step::Rows(rows) => {
            let mine = in_range(rows, range);
            if !mine.is_empty() {
                rig.process(&mine);
            }
        }
        Step::Advance(to) => {
            *watermark = (*watermark).max(*to);
            rig.advance(*watermark);
        }
    }
}

proptest! {
    #[test]
    fn a_store_behind_changes_nothing(deeds in deeds(), which in 0..AGGREGATES, memory in memory()) {
        let aggregate = &aggregates()[which];
        let (mut heap, mut rig) = (Rig::new(aggregate), before(aggregate, memory, everything(), &Vec::new(), Vec::new()));
        let (mut at_heap, mut at_store) = (i64::MIN, i64::MIN);
        // The newest snapshot and its watermark: what the heap had, and the store's parts.
        let mut running: Option<(u64, i64, Vec<String>, Vec<StatePart>)> = None;
        let rows = |states: &[RestoredState], watermark| live_rows(states, &aggregate.window, watermark);
        for (at, deed) in deeds.iter().enumerate() {
            match deed {
                Deed::Does(step) => {
                    let step = &fitting(aggregate, step.clone());
                    act(&mut heap, step, &mut at_heap, everything());
                    act(&mut rig, step, &mut at_store, everything());
                    prop_assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()), "deed {}", at);
                }
                Deed::Barrier => {
                    // Of two barriers that a node's operators have still to send the first is given up.
                    while !aggregate.distinct.is_empty() && running.is_some() && rig.background() {}
                    let parts = heap.barrier(at as u64);
                    let expected = state_rows(&store(parts, || heap.background()));
                    let parts = rig.barrier(at as u64);
                    if let Some((_, time, expected, parts)) = running.replace((at as u64, at_store, expected, parts)) {
                        // It was finished at the latest by the barrier.
                        prop_assert_eq!(rows(&store(parts, || false), time), expected, "the snapshot before deed {}", at);
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
        prop_assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()), "at the end");
        if let Some((_, time, expected, parts)) = running {
            prop_assert_eq!(rows(&store(parts, || rig.background()), time), expected, "the last snapshot");
        }
        prop_assert_eq!(heap.late_rows(), rig.late_rows());
    }

    #[test]
    fn what_a_store_had_is_restored(
        before_it in steps(),
        after in steps(),
        which in 0..AGGREGATES,
        memory_before in memory(),
        memory_after in memory(),
        parallelism in (1u32..4, 1u32..4),
        as_rows in any::<bool>(),
    ) {
        let aggregate = &aggregates()[which];
        // Without key there is one subtask: the exchange sends all rows to it.
        let parallelism = if aggregate.keys.is_empty() { (1, 1) } else { parallelism };
        let is_keyed_by_k = aggregate.keys == ["k"];
        let range = |subtask, of| match is_keyed_by_k {
            true => KeyGroupRange::of_subtask(subtask, of, MAX_PARALLELISM),
            false => everything(),
        };
        let parallelism = if is_keyed_by_k { parallelism } else { (1, 1) };

        let [before_it, after] = [before_it, after].map(|steps| steps.into_iter().map(|step| fitting(aggregate, step)).collect::<Vec<_>>());
        let mut heap = Rig::new(aggregate);
        let mut time = i64::MIN;
        before_it.iter().for_each(|step| act(&mut heap, step, &mut time, everything()));
        heap.take_rows();
        let at_barrier = time;
        after.iter().for_each(|step| act(&mut heap, step, &mut time, everything()));
        heap.finish();
        let expected = heap.take_rows();

        let (mut databases, mut states, mut watermarks) = (Vec::new(), Vec::new(), Vec::new());
        for subtask in 0..parallelism.0 {
            let mut rig = before(aggregate, memory_before, range(subtask, parallelism.0), &Vec::new(), Vec::new());
            let mut time = i64::MIN;
            before_it.iter().for_each(|step| act(&mut rig, step, &mut time, range(subtask, parallelism.0)));
            let (of_subtask, others) = split_parts(rig.barrier(1));
            // Late writes are not in it.
            after.iter().for_each(|step| act(&mut rig, step, &mut time, range(subtask, parallelism.0)));
            while rig.background() {}
            if as_rows {
                let parts = of_subtask.into_iter().map(|(meta, database)| as_part(meta, database));
                states.extend(store(parts.collect(), || rig.background()));
            } else {
                databases.extend(of_subtask.into_iter().map(|(_, database)| database));
            }
            watermarks.extend(store(others, || rig.background()));
        }
        states.extend(watermarks);

        let mut rows = Vec::new();
        for subtask in 0..parallelism.1 {
            let range = range(subtask, parallelism.1);
            let mut rig = before(aggregate, memory_after, range, &databases, states.clone());
            let mut time = at_barrier;
            rig.advance(at_barrier);
            for step in &after {
                act(&mut rig, step, &mut time, range);
                rig.background();
            }
            rig.finish();
            rows.extend(rig.take_rows());
        }
        prop_assert_eq!(sorted(rows), sorted(expected));
    }
}

/// Rows of so many keys in the window from 0 to 10.
fn many(keys: i64) -> Vec<Row> {
    (0..keys).map(|key| (key, key % 10, key)).collect()
}

#[test]
fn a_window_of_more_keys_than_memory_holds_goes_out_piece_by_piece() {
    let aggregate = spec(&["k"], tumbling(10), calls());
    let share = 256 << 10;
    let mut rig = before(&aggregate, (share, 2), everything(), &Vec::new(), Vec::new());
    for rows in many(100_000).chunks(1000) {
        rig.process(rows);
        assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) <= 2 * share as u64);
    }
    for rows in many(50_000).chunks(1000) {
        rig.process(rows);
    }
    rig.advance(9);
    let rows = rig.take_rows();
    assert_eq!(rows.len(), 100_000);
    assert_eq!(rows.iter().filter(|row| row.contains(",10,9,2,")).count(), 50_000);
    let (databases, _) = split_parts(rig.barrier(1));
    while rig.background() {}
    let found = databases[0].1.rows("panes", &mut |rows| panic!("{} rows are left of a window that fired", rows.num_rows()));
    found.expect("it was completed");
}

/// Windows of three slices, each of more keys than memory holds; half of the keys are in every slice, and late rows come to both.
#[test]
fn overlapping_windows_of_more_keys_than_memory_holds_are_made_range_by_range() {
    let aggregate = spec(&["k"], sliding(30, 10, 0), calls());
    let share = 128 << 10;
    let (mut heap, mut rig) = (Rig::new(&aggregate), before(&aggregate, (share, 2), everything(), &Vec::new(), Vec::new()));
    for time in [0, 10, 20, 30] {
        let keys = (0..2_000).chain(time * 1000..time * 1000 + 2_000);
        let rows: Vec<Row> = keys.map(|key| (key, time + key % 10, key % 97)).collect();
        let late: Vec<Row> = (0..500).map(|key| (key * 4, time - 5, key)).collect();
        for rows in rows.chunks(200).chain([&late[..]]) {
            heap.process(rows);
            rig.process(rows);
            assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) <= 2 * share as u64);
        }
        heap.advance(time + 9);
        rig.advance(time + 9);
        assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()), "at {time}");
    }
    heap.finish();
    rig.finish();
    assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()));
    assert_eq!(heap.late_rows(), rig.late_rows());
    assert!(rig.background(), "slices leave beside the rows");
    while rig.background() {}
    let (databases, _) = split_parts(rig.barrier(1));
    while rig.background() {}
    let found = databases[0].1.rows("slices", &mut |rows| panic!("{} rows are left of slices that are over", rows.num_rows()));
    found.expect("it was completed");
}

/// More sessions than memory holds: some grow in memory, some after they have left it, some fire from the store.
#[test]
fn sessions_that_have_left_memory_grow_merge_and_fire() {
    let aggregate = spec(&["k"], session(100), calls());
    let share = 512 << 10;
    let (mut heap, mut rig) = (Rig::new(&aggregate), before(&aggregate, (share, 2), everything(), &Vec::new(), Vec::new()));
    // Keys, their time, and the time that is over then.
    let rounds: [(Range<i64>, i64, i64); 6] = [
        (0..8_000, 0, -60),
        (0..3_000, 150, 90),
        (1_000..4_000, 90, 95),
        (0..6_000, 170, 105),
        (0..500, 171, 171),
        (0..8_000, 400, 400),
    ];
    for (keys, time, over) in rounds {
        let rows: Vec<Row> = keys.map(|key| (key, time + key % 10, key % 97)).collect();
        for rows in rows.chunks(250) {
            heap.process(rows);
            rig.process(rows);
            assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) <= 2 * share as u64);
        }
        heap.advance(over);
        rig.advance(over);
        assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()), "at {time}");
    }
    heap.finish();
    rig.finish();
    assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()));
    assert_eq!(heap.late_rows(), rig.late_rows());
    let (databases, _) = split_parts(rig.barrier(1));
    while rig.background() {}
    for state in ["sessions", SESSION_BOUNDS] {
        let found = databases[0].1.rows(state, &mut |rows| panic!("{} rows are left of sessions that are over", rows.num_rows()));
        found.expect("it was completed");
    }
}

#[test]
fn slices_that_were_on_their_way_out_of_a_store_are_not_restored() {
    let aggregate = spec(&["k"], sliding(20, 10, 0), calls()[..1].to_vec());
    let mut rig = before(&aggregate, (0, 0), everything(), &Vec::new(), Vec::new());
    (0..4).for_each(|_| rig.process(&many(5000)));
    rig.process(&[(7, 15, 0)]);
    rig.advance(19);
    assert_eq!(rig.take_rows().len(), 10_000);
    let (in_databases, others) = split_parts(rig.barrier(1));
    let others = store(others, || rig.background());
    let databases = in_databases.iter().map(|(_, database)| Arc::clone(database)).collect();
    let parts = in_databases.into_iter().map(|(meta, database)| StatePart { meta, contents: Contents::Database(database) });
    let mut states = store(parts.collect(), || rig.background());
    assert!(state_rows(&states).len() > 1, "the first slice was deleted before the barrier");
    let mut restored = before(&aggregate, (0, 0), everything(), &databases, others.clone());
    states.extend(others);
    let mut on_heap = Rig::restored(&aggregate, states, everything());
    for rig in [&mut restored, &mut on_heap] {
        rig.finish();
        assert_eq!(rig.take_rows(), ["7,10,30,29,1"]);
    }
}

#[test]
fn a_window_that_fires_while_its_snapshot_is_sent_is_in_that_one_only() {
    let aggregate = spec(&["k"], tumbling(10), calls());
    let mut rig = before(&aggregate, (64 << 20, 1), everything(), &Vec::new(), Vec::new());
    rig.process(&many(20_000));
    let first = rig.barrier(1);
    rig.process(&many(100));
    rig.advance(9);
    assert_eq!(rig.take_rows().len(), 20_000);
    let second = rig.barrier(2);
    let counts = |parts| state_rows(&store(parts, || false)).len();
    while rig.background() {}
    assert_eq!((counts(first), counts(second)), (20_000, 0));
}

#[test]
fn nothing_is_read_of_what_never_left_memory() {
    for window in [WindowSpec::Running, WindowSpec::Global, tumbling(10), sliding(20, 10, 0), session(10)] {
        let mut rig = before(&spec(&["k"], window, calls()), (64 << 20, 0), everything(), &Vec::new(), Vec::new());
        rig.process(&many(1000));
        rig.barrier(1);
        while rig.background() {}
        rig.process(&many(2000));
        rig.finish();
        assert_eq!(rig.metrics.store().expect("it has a store").reads, 0);
    }
}

#[test]
fn once_all_that_was_restored_is_in_memory_new_keys_ask_for_nothing() {
    for window in [WindowSpec::Running, WindowSpec::Global] {
        let aggregate = spec(&["k"], window, calls()[..1].to_vec());
        let mut rig = before(&aggregate, (64 << 20, 0), everything(), &Vec::new(), Vec::new());
        rig.process(&many(3_000));
        let (databases, _) = split_parts(rig.barrier(1));
        while rig.background() {}
        let databases = databases.into_iter().map(|(_, database)| database).collect();
        let mut rig = before(&aggregate, (64 << 20, 0), everything(), &databases, Vec::new());
        // Some come before all is there; what they made of their groups stays.
        rig.process(&many(10));
        let asked = rig.metrics.store().expect("it has a store").reads;
        assert_eq!(asked, 10);
        while rig.background() {}
        rig.process(&many(6_000));
        assert_eq!(rig.metrics.store().expect("it has a store").reads, asked);
        rig.take_rows();
        rig.process(&[(0, 1, 1), (2_999, 1, 1), (5_999, 1, 1)]);
        rig.finish();
        let rows = rig.take_rows();
        for (key, count) in [(0, 4), (2_999, 3), (5_999, 2)] {
            let is_it = |row: &String| row.ends_with(&format!(",{key},{count}")) || *row == format!("{key},{count}");
            assert!(rows.iter().any(is_it), "{key}: {:?}", &rows[..3]);
        }
    }
}

#[test]
fn where_memory_is_short_what_was_restored_is_asked_for() {
    let aggregate = spec(&["k"], WindowSpec::Running, calls()[..1].to_vec());
    let mut rig = before(&aggregate, (64 << 20, 0), everything(), &Vec::new(), Vec::new());
    rig.process(&many(100_000));
    let (databases, _) = split_parts(rig.barrier(1));
    while rig.background() {}
    let databases = databases.into_iter().map(|(_, database)| database).collect();
    let share = 256 << 10;
    let mut rig = before(&aggregate, (share, 0), everything(), &databases, Vec::new());
    while rig.background() {}
    rig.process(&[(99_999, 0, 0), (7, 0, 0)]);
    assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) <= share as u64);
    let rows = rig.take_rows();
    assert!(rows.iter().all(|row| row.ends_with(",2")) && rows.len() == 2, "{rows:?}");
}

#[test]
fn a_pending_window_of_a_database_closes_after_a_restore() {
    let aggregate = spec(&["k"], tumbling(10), calls()[..1].to_vec());
    let mut rig = before(&aggregate, (0, 1), everything(), &Vec::new(), Vec::new());
    rig.process(&many(100));
    let (databases, others) = split_parts(rig.barrier(1));
    while rig.background() {}
    let others = store(others, || false);
    let databases = databases.into_iter().map(|(_, database)| database).collect();
    let mut restored = before(&aggregate, (1 << 20, 0), everything(), &databases, others);
    restored.advance(8);
    assert!(restored.take_rows().is_empty(), "its time has not come");
    restored.advance(9);
    assert_eq!(restored.take_rows().len(), 100, "no row came after the restore");
    restored.process(&[(1, 5, 5)]);
    restored.advance(Watermark::MAX.0);
    assert!(restored.take_rows().is_empty(), "the window fired twice");
}

#[test]
fn a_final_takes_states_in_front_of_a_store() {
    let aggregate = spec(&["k"], tumbling(15), calls());
    let mut partial = Rig::new(&AggregateSpec { phase: AggregatePhase::Partial, ..aggregate.clone() });
    let last = AggregateSpec { phase: AggregatePhase::Final, ..aggregate };
    let (mut heap, mut rig) = (Rig::new(&last), before(&last, (0, 1), everything(), &Vec::new(), Vec::new()));
    for round in 0..20 {
        partial.process_batch(batch(&many(50).into_iter().map(|(key, time, v)| (key, time, v + round)).collect::<Vec<_>>()));
        partial.barrier(round as u64);
        for states in std::mem::take(&mut partial.out) {
            heap.process_batch(states.clone());
            rig.process_batch(states);
        }
    }
    heap.finish();
    rig.finish();
    assert_eq!(sorted(heap.take_rows()), sorted(rig.take_rows()));
    assert!(rig.metrics.store().expect("it has a store").reads > 0, "nothing has left memory");
}
