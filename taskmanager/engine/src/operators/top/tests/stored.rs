//! Top-N and deduplication in front of a store, with so little memory that keys leave it: against sorted lists, and across restores
//! into every backend.

use levada_state::cold::OverlayBudget;
use levada_state::cold::memory::MemoryColdStores;
use levada_state::snapshot::{Contents, DatabaseSnapshot};

use super::*;

/// Keys, of which few are in memory.
const KEYS: i64 = 60;

/// Bytes of the overlay, and how often a store is asked in vain for each seal.
pub(super) fn memory(rng: &mut StdRng) -> (usize, u32) {
    let bytes = [0, rng.random_range(1..20_000), rng.random_range(200_000..400_000)][rng.random_range(0..3)];
    (bytes, rng.random_range(0..4))
}

pub(super) fn stores(
    (bytes, lag): (usize, u32),
    databases: &[Arc<dyn DatabaseSnapshot>],
    range: KeyGroupRange,
) -> Option<Arc<dyn ColdStores>> {
    let stores = MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(bytes));
    Some(Arc::new(stores.restored(databases.to_vec(), range)))
}

fn before_store(top: &TopSpec, memory: (usize, u32)) -> Rig {
    Rig::before(top, Vec::new(), everything(), stores(memory, &[], everything()))
}

/// Number of rows that came out of the store.
fn found(rig: &Rig) -> u64 {
    rig.metrics.store().map_or(0, |metrics| metrics.hits)
}

fn some_top(rng: &mut StdRng) -> TopSpec {
    let mut spec = top(rng);
    spec.with_ties = !spec.is_append() && spec.place.is_none() && !spec.newest_wins && rng.random_bool(0.3);
    if rng.random_bool(0.1) {
        // One key, without columns.
        spec.keys = Vec::new();
    }
    spec
}

#[test]
fn changes_add_up_to_the_best_rows_while_keys_leave_memory_and_come_back() {
    let mut hits = 0;
    for seed in 0..120 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (top, memory) = (top(&mut rng), memory(&mut rng));
        let (mut rig, mut all, mut next, mut checkpoint) = (before_store(&top, memory), Vec::new(), 0, 0);
        for step in 0..50 {
            match rng.random_range(0..10) {
                0 => {
                    checkpoint += 1;
                    rig.operator.snapshot(CheckpointId(checkpoint), false).expect("a snapshot is taken");
                }
                1 => rig.operator.notify(CheckpointId(checkpoint), rng.random()).expect("no errors"),
                2 | 3 => drop(rig.operator.background().expect("no errors")),
                _ => {
                    let rows = rows_of_keys(&mut rng, &mut next, KEYS);
                    rig.process(&rows);
                    all.extend(rows);
                    assert_eq!(rig.rows(), expected(&top, &all), "seed {seed}, step {step}, {memory:?}, {top:?}");
                }
            }
        }
        hits += found(&rig);
    }
    assert!(hits > 3_000, "only {hits} rows came out of a store: nothing leaves memory");
}

/// What a batch changes in the end, however many steps it took: by place the row that is there now, or by row whether it came or went.
fn changes(rig: &mut Rig, rows: &[Row]) -> BTreeMap<(i64, i64, i64), i64> {
    let mut asked = 0;
    while !rig.operator.is_ready().expect("no errors") {
        rig.operator.background().expect("no errors");
        asked += 1;
        assert!(asked < 1_000, "there is no room, and nothing makes any");
    }
    rig.operator.process(0, batch(rows)).expect("rows are taken in");
    let (first, mut net) = (usize::from(!rig.top.is_append()), BTreeMap::new());
    let is_unique = rig.top.place.is_some() || (rig.top.limit == 1 && !rig.top.is_append());
    while let Some(batch) = rig.operator.poll().expect("output is polled") {
        let column = |at: usize| batch.column(first + at).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let op = if first == 1 { batch.column(0).as_primitive::<Int8Type>().value(row) } else { 0 };
            let comes = op == RowKind::Insert as i8 || op == RowKind::UpdateAfter as i8;
            let key = if rig.top.keys.is_empty() { 0 } else { column(0).value(row) };
            let (id, place) = (column(3).value(row), if rig.top.place.is_some() { column(4).value(row) } else { 0 });
            match is_unique {
                true if comes => drop(net.insert((key, place, 0), id)),
                true => {}
                false => *net.entry((key, place, id)).or_insert(0) += if comes { 1 } else { -1 },
            }
        }
    }
    net.retain(|_, change| *change != 0);
    net
}

#[test]
fn ties_and_rows_without_key_change_as_on_the_heap() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (top, memory) = (some_top(&mut rng), memory(&mut rng));
        let (mut heap, mut rig, mut next) = (Rig::new(&top, Vec::new(), everything()), before_store(&top, memory), 0);
        for step in 0..30 {
            let rows = rows_of_keys(&mut rng, &mut next, KEYS / 4);
            assert_eq!(changes(&mut rig, &rows), changes(&mut heap, &rows), "seed {seed}, step {step}, {memory:?}, {top:?}");
            if rng.random_bool(0.2) {
                rig.operator.snapshot(CheckpointId(step), false).expect("a snapshot is taken");
            }
        }
    }
}

fn settle(rig: &mut Rig) {
    while rig.operator.background().expect("no errors") {}
}

#[test]
fn a_top_n_goes_on_from_every_backend_in_every_other_at_every_width() {
    for seed in 0..80 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = top(&mut rng);
        let (mut all, mut next) = (Vec::new(), 0);
        let mut rigs = vec![(everything(), before_store(&top, memory(&mut rng)))];
        for round in 0..4 {
            for _ in 0..6 {
                let rows = rows_of_keys(&mut rng, &mut next, KEYS);
                for (range, rig) in &mut rigs {
                    let mine: Vec<Row> = rows.iter().filter(|row| range.contains(group_of(row.0))).cloned().collect();
                    if !mine.is_empty() {
                        rig.process(&mine);
                    }
                }
                all.extend(rows);
            }
            let mut rows: Vec<_> = rigs.iter().flat_map(|(_, rig)| rig.rows()).collect();
            rows.sort_unstable();
            assert_eq!(rows, expected(&top, &all), "seed {seed}, round {round}: {top:?}");
            rigs = restored(&mut rng, &top, rigs, next);
        }
    }
}

/// Takes snapshots of all parts, does something else to them, and restores all at another width: on the heap, in a store, or in a
/// store by rows, as states that are inline come.
fn restored(rng: &mut StdRng, top: &TopSpec, rigs: Vec<(KeyGroupRange, Rig)>, mut next: i64) -> Vec<(KeyGroupRange, Rig)> {
    let is_store = rigs.iter().all(|(_, rig)| rig.metrics.store().is_some());
    let (to_store, by_rows) = (rng.random_bool(0.7), !is_store || rng.random_bool(0.4));
    let (mut rows, mut bases, mut now) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (range, mut rig) in rigs {
        now.extend(rig.now.clone());
        let parts = rig.operator.snapshot(CheckpointId(7), false).expect("a snapshot is taken");
        let more = rows_of_keys(rng, &mut next, KEYS);
        rig.process(&more.into_iter().filter(|row| range.contains(group_of(row.0))).collect::<Vec<_>>());
        settle(&mut rig);
        match to_store && !by_rows {
            true => bases.extend(parts.into_iter().map(|part| match part.contents {
                Contents::Database(database) => database,
                Contents::Pieces(_) => panic!("it is in no database"),
            })),
            false => rows.extend(stored(rig.operator.as_mut(), parts)),
        }
    }
    let parallelism = rng.random_range(1..4);
    let part = |subtask| {
        let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
        let cold = if to_store { stores(memory(rng), &bases, range) } else { None };
        let mut part = Rig::before(top, rows.clone(), range, cold);
        part.now = now.iter().filter(|(slot, _)| range.contains(group_of(slot.0))).map(|(slot, id)| (*slot, *id)).collect();
        (range, part)
    };
    (0..parallelism).map(part).collect()
}

/// Rows are asked for at ages at which no one may doubt whether they live: a sweep is over within a sixteenth of their time.
#[test]
fn rows_in_a_store_live_as_long_as_on_the_heap() {
    let mut hits = 0;
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = TopSpec { ttl_ms: Some(1_600), ..top(&mut rng) };
        let memory = memory(&mut rng);
        let (mut heap, mut rig) = (Rig::new(&top, Vec::new(), everything()), before_store(&top, memory));
        let mut next = 0;
        for step in 0..40 {
            let time = 1_000 * (step / 4);
            heap.operator.tick(time).expect("no errors");
            rig.operator.tick(time).expect("no errors");
            let rows = rows_of_keys(&mut rng, &mut next, KEYS);
            assert_eq!(changes(&mut rig, &rows), changes(&mut heap, &rows), "seed {seed}, step {step}, {memory:?}, {top:?}");
            if rng.random_bool(0.2) {
                rig.operator.snapshot(CheckpointId(step as u64), false).expect("a snapshot is taken");
            }
        }
        hits += found(&rig);
    }
    assert!(hits > 300, "only {hits} rows came back out of a store");
}
