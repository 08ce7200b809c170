//! Regular joins in front of a store, with so little memory that keys leave it: against nested loops, against the same on the heap,
//! and across restores into every backend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use levada_common::ids::CheckpointId;
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::JoinKind;
use levada_common::types::RowKind;
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{ColdStores, OverlayBudget};
use levada_state::snapshot::{Contents, DatabaseSnapshot, StatePart};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};

use super::rig::{MAX_PARALLELISM, stored};
use super::standing::{Case, Out, Rig, Row, case, changes_of};
use crate::operator::RestoredState;

/// Keys, of which few are in memory.
const KEYS: i64 = 40;

fn everything() -> KeyGroupRange {
    KeyGroupRange::all(MAX_PARALLELISM)
}

/// Bytes of the overlay, and how often a store is asked in vain for each seal.
fn memory(rng: &mut StdRng) -> (usize, u32) {
    let bytes = match rng.random_range(0..4) {
        0 => 0,
        1 => rng.random_range(1..20_000),
        2 => rng.random_range(300_000..500_000),
        _ => rng.random_range(500_000..900_000),
    };
    (bytes, rng.random_range(0..4))
}

/// Stores that have what these databases had.
fn stores(
    (bytes, lag): (usize, u32),
    databases: &[Arc<dyn DatabaseSnapshot>],
    range: KeyGroupRange,
) -> Option<Arc<dyn ColdStores>> {
    let stores = MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(bytes));
    Some(Arc::new(stores.restored(databases.to_vec(), range)))
}

fn before_store(case: Case, memory: (usize, u32)) -> Rig {
    Rig::before(case, Vec::new(), everything(), stores(memory, &[], everything()))
}

/// Sends the rest of a snapshot.
fn settle(rig: &mut Rig) {
    let mut asked = 0;
    while rig.operator.background().expect("no errors") {
        asked += 1;
        assert!(asked < 100_000, "the snapshot never ends");
    }
}

/// How many addresses were looked up in the store, and how many of them were found.
fn looked_up(rig: &Rig) -> (u64, u64) {
    rig.metrics.store().map_or((0, 0), |metrics| (metrics.reads, metrics.hits))
}

/// The rows of a snapshot's states, as text, sorted: what is saved, without where.
fn rows_of(states: &[RestoredState]) -> Vec<String> {
    let mut rows = Vec::new();
    for state in states {
        for batch in &state.batches {
            for row in 0..batch.num_rows() {
                let fields = batch.schema();
                let columns = fields.fields().iter().zip(batch.columns()).map(|(field, column)| {
                    let column = cast(column, &DataType::Int64).expect("a number");
                    let value = column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row));
                    format!("{}={value:?}", field.name())
                });
                let mut columns: Vec<String> = columns.collect();
                columns.sort();
                rows.push(format!("{}: {}", state.name, columns.join(" ")));
            }
        }
    }
    rows.sort();
    rows
}

#[test]
fn changes_add_up_to_nested_loops_while_keys_leave_memory_and_come_back() {
    let mut found = 0;
    for seed in 0..120 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (case, memory) = (case(&mut rng), memory(&mut rng));
        let mut rig = before_store(case, memory);
        let (mut standing, mut checkpoint) = ([Vec::new(), Vec::new()], 0);
        for step in 0..60 {
            match rng.random_range(0..10) {
                0 => {
                    checkpoint += 1;
                    rig.operator.snapshot(CheckpointId(checkpoint), false).expect("a snapshot is taken");
                }
                1 => rig.operator.notify(CheckpointId(checkpoint), rng.random()).expect("no errors"),
                2 | 3 => drop(rig.operator.background().expect("no errors")),
                _ => {
                    let side = rng.random_range(0..2);
                    let rows = changes_of(&mut rng, &case, side, &mut standing[side], KEYS);
                    rig.process(side, &rows);
                    assert_eq!(rig.sum, case.nested_loops(&standing), "seed {seed}, step {step}, {memory:?}, {case:?}");
                }
            }
        }
        found += looked_up(&rig).1;
    }
    assert!(found > 3_000, "only {found} rows came out of a store: nothing leaves memory");
}

#[test]
fn what_fits_into_memory_is_never_looked_for() {
    let mut rng = StdRng::seed_from_u64(1);
    let case = case(&mut rng);
    let (mut rig, mut standing) = (before_store(case, (64 << 20, 1)), [Vec::new(), Vec::new()]);
    for checkpoint in 0..20 {
        let rows = changes_of(&mut rng, &case, 0, &mut standing[0], KEYS);
        rig.process(0, &rows);
        rig.operator.snapshot(CheckpointId(checkpoint), false).expect("a snapshot is taken");
    }
    assert_eq!(looked_up(&rig), (0, 0));
    // Nor is it once everything that was restored has come into memory.
    let parts = rig.operator.snapshot(CheckpointId(100), false).expect("a snapshot is taken");
    settle(&mut rig);
    let mut restored = Rig::before(case, Vec::new(), everything(), stores((64 << 20, 1), &databases(parts), everything()));
    settle(&mut restored);
    let mut looked = (0, 0);
    for round in 0..20 {
        let rows = changes_of(&mut rng, &case, 0, &mut standing[0], 10 * KEYS);
        restored.process(0, &rows);
        if round == 0 {
            looked = looked_up(&restored);
        }
    }
    assert!(looked.1 > 0, "nothing was restored");
    assert_eq!(looked_up(&restored), looked, "it looks for keys though it has everything");
}

/// The databases of a snapshot.
fn databases(parts: Vec<StatePart>) -> Vec<Arc<dyn DatabaseSnapshot>> {
    let database = |part: StatePart| match part.contents {
        Contents::Database(database) => database,
        Contents::Pieces(_) => panic!("state \"{}\" is in no database", part.meta.name),
    };
    // Both states are in one.
    parts.into_iter().map(database).take(1).collect()
}

/// Where what a snapshot had is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Into {
    Heap,
    Store,
    /// As rows, as states that are inline come.
    StoreByRows,
}

#[test]
fn a_join_goes_on_from_every_backend_in_every_other_at_every_width() {
    for seed in 0..80 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = case(&mut rng);
        let mut standing = [Vec::new(), Vec::new()];
        let mut rigs = vec![(everything(), before_store(case, memory(&mut rng)))];
        let mut sum: BTreeMap<Out, i64> = BTreeMap::new();
        for round in 0..4 {
            let before = sum.clone();
            rigs.iter_mut().for_each(|(_, rig)| rig.sum = before.clone());
            for _ in 0..8 {
                let side = rng.random_range(0..2);
                let rows = changes_of(&mut rng, &case, side, &mut standing[side], KEYS);
                for (range, rig) in &mut rigs {
                    let mine = in_range(&rows, *range);
                    if !mine.is_empty() {
                        rig.process(side, &mine);
                    }
                    if rng.random_bool(0.2) {
                        rig.operator.background().expect("no errors");
                    }
                }
            }
            for (_, rig) in &rigs {
                for row in rig.sum.keys().chain(before.keys()).copied().collect::<BTreeSet<_>>() {
                    let of = |sum: &BTreeMap<Out, i64>| sum.get(&row).copied().unwrap_or(0);
                    *sum.entry(row).or_insert(0) += of(&rig.sum) - of(&before);
                }
            }
            sum.retain(|_, count| *count != 0);
            assert_eq!(sum, case.nested_loops(&standing), "seed {seed}, round {round}, {case:?}");
            rigs = restored(&mut rng, case, &mut rigs, &standing);
        }
    }
}

/// The rows whose key is in a range.
fn in_range(rows: &[(RowKind, Row)], range: KeyGroupRange) -> Vec<(RowKind, Row)> {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|(_, row)| row.0)));
    let mut groups = Vec::new();
    key_groups(&[keys], MAX_PARALLELISM, &mut groups);
    rows.iter().zip(groups).filter(|(_, group)| range.contains(*group)).map(|(row, _)| *row).collect()
}

/// Takes snapshots of all parts, does something else to them, and restores all at another width, somewhere.
fn restored(
    rng: &mut StdRng,
    case: Case,
    rigs: &mut [(KeyGroupRange, Rig)],
    standing: &[Vec<Row>; 2],
) -> Vec<(KeyGroupRange, Rig)> {
    let is_store = rigs.iter().all(|(_, rig)| rig.metrics.store().is_some());
    let into = match rng.random_range(0..3) {
        0 if is_store => Into::Store,
        1 => Into::Heap,
        _ => Into::StoreByRows,
    };
    let (mut rows, mut bases) = (Vec::new(), Vec::new());
    let mut elsewhere = standing.clone();
    for (range, rig) in rigs {
        let parts = rig.operator.snapshot(CheckpointId(7), false).expect("a snapshot is taken");
        for _ in 0..3 {
            // What is done to it afterwards is not in the snapshot.
            let more = changes_of(rng, &case, 1, &mut elsewhere[1], KEYS);
            let mine = in_range(&more, *range);
            rig.process(1, &mine);
        }
        settle(rig);
        match into {
            Into::Store => bases.extend(databases(parts)),
            Into::Heap | Into::StoreByRows => rows.extend(parts.into_iter().map(stored)),
        }
    }
    let parallelism = rng.random_range(1..4);
    let part = |subtask| {
        let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
        let cold = if into == Into::Heap { None } else { stores(memory(rng), &bases, range) };
        (range, Rig::before(case, rows.clone(), range, cold))
    };
    (0..parallelism).map(part).collect()
}

#[test]
fn a_snapshot_has_the_rows_that_the_heap_has() {
    for seed in 0..50 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = Case { ttl_ms: rng.random_bool(0.3).then_some(1_600), ..case(&mut rng) };
        let memory = memory(&mut rng);
        let mut heap = Rig::before(case, Vec::new(), everything(), None);
        let (mut rig, mut standing) = (before_store(case, memory), [Vec::new(), Vec::new()]);
        let mut taken: Vec<(Vec<String>, Vec<StatePart>)> = Vec::new();
        for step in 0..40 {
            if case.ttl_ms.is_some() {
                heap.operator.tick(step).expect("no errors");
                rig.operator.tick(step).expect("no errors");
            }
            let side = rng.random_range(0..2);
            let rows = changes_of(&mut rng, &case, side, &mut standing[side], KEYS);
            heap.process(side, &rows);
            rig.process(side, &rows);
            if rng.random_bool(0.3) {
                let of_heap = heap.operator.snapshot(CheckpointId(step as u64), false).expect("a snapshot is taken");
                let of_store = rig.operator.snapshot(CheckpointId(step as u64), false).expect("a snapshot is taken");
                settle(&mut heap);
                taken.push((rows_of(&of_heap.into_iter().map(stored).collect::<Vec<_>>()), of_store));
            }
        }
        settle(&mut rig);
        for (expected, parts) in taken {
            let found = rows_of(&parts.into_iter().map(stored).collect::<Vec<_>>());
            assert_eq!(found, expected, "seed {seed}, {memory:?}, {case:?}");
        }
    }
}

/// Rows are asked for at ages at which no one may doubt whether they live: a sweep is over within a sixteenth of their time.
#[test]
fn rows_in_a_store_live_as_long_as_on_the_heap() {
    let mut found = 0;
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let case = Case { ttl_ms: Some(1_600), ..case(&mut rng) };
        let memory = memory(&mut rng);
        let mut heap = Rig::before(case, Vec::new(), everything(), None);
        let (mut rig, mut standing) = (before_store(case, memory), [Vec::new(), Vec::new()]);
        for step in 0..40 {
            let time = 1_000 * (step / 4);
            heap.operator.tick(time).expect("no errors");
            rig.operator.tick(time).expect("no errors");
            let side = rng.random_range(0..2);
            let rows = changes_of(&mut rng, &case, side, &mut standing[side], KEYS);
            // What has expired is never taken back.
            heap.process(side, &rows);
            rig.process(side, &rows);
            assert_eq!(rig.sum, heap.sum, "seed {seed}, step {step}, {memory:?}, {case:?}");
            if rng.random_bool(0.2) {
                rig.operator.snapshot(CheckpointId(step as u64), false).expect("a snapshot is taken");
            }
            if rng.random_bool(0.2) {
                rig.operator.background().expect("no errors");
            }
        }
        found += looked_up(&rig).1;
    }
    assert!(found > 300, "only {found} rows came back out of a store");
}

#[test]
fn a_time_to_live_is_switched_on_over_rows_in_a_store() {
    let of_ttl = |ttl_ms| Case { kind: JoinKind::Inner, changelogs: [false, false], ttl_ms };
    let mut without = before_store(of_ttl(None), (0, 0));
    for key in 0..KEYS {
        without.process(1, &[(RowKind::Insert, (Some(key), 0, 20))]);
    }
    let parts = without.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
    settle(&mut without);
    let mut with = Rig::before(of_ttl(Some(1_600)), Vec::new(), everything(), stores((0, 0), &databases(parts), everything()));
    let meets = |rig: &mut Rig, key: i64, time: i64| {
        rig.operator.tick(time).expect("no errors");
        rig.sum.clear();
        rig.process(0, &[(RowKind::Insert, (Some(key), time, time))]);
        rig.sum.len()
    };
    assert_eq!(meets(&mut with, 1, 1_000_000), 1);
    assert_eq!(meets(&mut with, 2, 1_001_500), 1, "a row that was restored stands for its time from then on");
    assert_eq!(meets(&mut with, 3, 1_001_700), 0, "and no longer, whether it was looked for or not");
}
