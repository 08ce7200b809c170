//! The best rows of windows in front of a store, with so little memory that keys leave it: against sorted lists, and across restores
//! from every backend into every other.

use levada_common::plan::{TopWindow, WindowTime};
use levada_state::snapshot::{Contents, DatabaseSnapshot};

use super::stored::{memory, stores};
use super::windows::{Row, Step, WindowRig, any_top, expected, steps_of_keys, top};
use super::*;

/// Keys, of which few are in memory.
const KEYS: i64 = 40;

fn before_store(top: &TopSpec, memory: (usize, u32)) -> WindowRig {
    WindowRig::before(top, Vec::new(), everything(), stores(memory, &[], everything()))
}

fn store_metrics(rig: &WindowRig) -> levada_state::cold::ColdMetrics {
    rig.metrics.store().expect("it has a store")
}

/// Those of a step's rows that are of these key groups.
fn of_groups(step: &Step, range: KeyGroupRange) -> Option<Step> {
    match step {
        Step::Advance(to) => Some(Step::Advance(*to)),
        Step::Rows(rows) => {
            let rows: Vec<Row> = rows.iter().filter(|row| range.contains(group_of(row.key))).copied().collect();
            (!rows.is_empty()).then_some(Step::Rows(rows))
        }
    }
}

/// Nothing is in the store of what is over.
fn assert_nothing_stored(rig: &mut WindowRig, what: &str) {
    let parts = rig.operator.snapshot(CheckpointId(1_000_000), false).expect("a snapshot is taken");
    rig.settle();
    for part in parts {
        if let Contents::Database(database) = part.contents {
            let found = database.rows("top", &mut |rows| panic!("{what}: {} rows are left", rows.num_rows()));
            found.expect("it was completed");
        }
    }
}

#[test]
fn windows_give_the_best_rows_while_keys_leave_memory_and_come_back() {
    let (mut hits, mut rows) = (0, 0);
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (top, memory) = (any_top(&mut rng), memory(&mut rng));
        let steps = steps_of_keys(&mut rng, &mut 0, &mut 0, (KEYS, 40));
        let (mut rig, mut checkpoint) = (before_store(&top, memory), 0);
        for step in &steps {
            rig.run(std::slice::from_ref(step));
            match rng.random_range(0..8) {
                0 | 1 => {
                    checkpoint += 1;
                    rig.operator.snapshot(CheckpointId(checkpoint), false).expect("a snapshot is taken");
                }
                2 => rig.operator.notify(CheckpointId(checkpoint), rng.random()).expect("no errors"),
                3 | 4 => drop(rig.operator.background().expect("no errors")),
                _ => {}
            }
        }
        rig.finish();
        assert_nothing_stored(&mut rig, &format!("seed {seed}"));
        hits += store_metrics(&rig).hits;
        rows += rig.given();
        assert_eq!(rig.sorted(), expected(&top, &steps), "seed {seed}, {memory:?}, {top:?}");
    }
    assert!(hits > 3_000 && rows > 10_000, "only {hits} rows came out of a store, of {rows}: nothing leaves memory");
}

#[test]
fn windows_go_on_from_every_backend_in_every_other_at_every_width() {
    for seed in 0..120 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = TopSpec { keys: vec!["k".into()], ..any_top(&mut rng) };
        let (mut time, mut next, mut all) = (0, 0, Vec::new());
        let (mut given, mut late) = (Vec::new(), Vec::new());
        let mut rigs = vec![(everything(), before_store(&top, memory(&mut rng)))];
        for _ in 0..4 {
            let steps = steps_of_keys(&mut rng, &mut time, &mut next, (KEYS, 10));
            for (range, rig) in &mut rigs {
                let mine: Vec<Step> = steps.iter().filter_map(|step| of_groups(step, *range)).collect();
                rig.run(&mine);
                given.append(&mut rig.given);
                late.append(&mut rig.late);
            }
            all.extend(steps);
            rigs = restored(&mut rng, &top, rigs, (time, next));
        }
        for (_, mut rig) in rigs {
            rig.finish();
            given.append(&mut rig.given);
            late.append(&mut rig.late);
        }
        given.sort_unstable();
        late.sort_unstable();
        assert_eq!((given, late), expected(&top, &all), "seed {seed}: {top:?}");
    }
}

/// Takes snapshots of all parts, does something else to them, and restores all at another width: on the heap, in a store, or in a
/// store by rows, as states in files come.
fn restored(
    rng: &mut StdRng,
    top: &TopSpec,
    rigs: Vec<(KeyGroupRange, WindowRig)>,
    (mut time, mut next): (i64, i64),
) -> Vec<(KeyGroupRange, WindowRig)> {
    let is_store = rigs.iter().all(|(_, rig)| rig.metrics.store().is_some());
    let (to_store, by_rows) = (rng.random_bool(0.7), !is_store || rng.random_bool(0.4));
    let (mut rows, mut bases) = (Vec::new(), Vec::new());
    for (range, mut rig) in rigs {
        let parts = rig.operator.snapshot(CheckpointId(7), false).expect("a snapshot is taken");
        let more = steps_of_keys(rng, &mut time, &mut next, (KEYS, 5));
        rig.run(&more.iter().filter_map(|step| of_groups(step, range)).collect::<Vec<_>>());
        rig.settle();
        add(rig.operator.as_mut(), parts, to_store && !by_rows, (&mut rows, &mut bases));
    }
    let parallelism = rng.random_range(1..4);
    let part = |subtask| {
        let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
        let cold = if to_store { stores(memory(rng), &bases, range) } else { None };
        (range, WindowRig::before(top, rows.clone(), range, cold))
    };
    (0..parallelism).map(part).collect()
}

/// Adds the parts of a snapshot to what is restored: databases as such, or as rows.
fn add(
    operator: &mut dyn Operator,
    parts: Vec<StatePart>,
    as_databases: bool,
    (rows, bases): (&mut Vec<RestoredState>, &mut Vec<Arc<dyn DatabaseSnapshot>>),
) {
    for part in parts {
        match part.contents {
            Contents::Database(database) if as_databases => bases.push(database),
            contents => rows.extend(stored(operator, vec![StatePart { meta: part.meta, contents }])),
        }
    }
}

/// The job has longer or shorter windows than its snapshot, or those of its input and had its own, or the other way round.
#[test]
fn rows_of_other_windows_are_put_into_those_that_there_are() {
    let of_size = |size_ms| Some(TopWindow::Tumbling { size_ms, offset_ms: 0, time: WindowTime::default() });
    let windows = [of_size(5), of_size(7), of_size(10), of_size(20), Some(TopWindow::Same)];
    for seed in 0..160 {
        let mut rng = StdRng::seed_from_u64(seed);
        let [old, new] = [(); 2].map(|()| windows[rng.random_range(0..5)].clone());
        let old = TopSpec { window: old, ..top(&mut rng) };
        let new = TopSpec { window: new, ..old.clone() };
        let (mut time, mut next) = (0, 0);
        let [first, second] = [(); 2].map(|()| steps_of_keys(&mut rng, &mut time, &mut next, (KEYS, 15)));
        let given = [None, Some(memory(&mut rng))].map(|memory| {
            let cold = |bases: &[_]| memory.and_then(|memory| stores(memory, bases, everything()));
            let mut rig = WindowRig::before(&old, Vec::new(), everything(), cold(&[]));
            rig.run(&first);
            let parts = rig.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
            rig.settle();
            let (mut rows, mut bases) = (Vec::new(), Vec::new());
            add(rig.operator.as_mut(), parts, true, (&mut rows, &mut bases));
            let mut rig = WindowRig::before(&new, rows, everything(), cold(&bases));
            rig.run(&second);
            rig.finish();
            assert_nothing_stored(&mut rig, &format!("seed {seed}"));
            rig.sorted()
        });
        assert_eq!(given[1], given[0], "seed {seed}: {new:?}");
    }
}

/// As on the heap and from files: what is too much for the limit now goes.
#[test]
fn a_smaller_limit_holds_for_what_a_store_has() {
    let many = |limit| TopSpec { limit, with_ties: false, keys: vec!["k".into()], ..top(&mut StdRng::seed_from_u64(1)) };
    let row = |id: i64| Row { key: id % 3, time: 3, value: Some(id % 7), id };
    for bytes in [0, 1 << 20] {
        let mut rig = before_store(&many(3), (bytes, 0));
        rig.run(&[Step::Rows((0..30).map(row).collect())]);
        let parts = rig.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
        rig.settle();
        let (mut rows, mut bases) = (Vec::new(), Vec::new());
        add(rig.operator.as_mut(), parts, true, (&mut rows, &mut bases));
        let mut rig = WindowRig::before(&many(1), rows, everything(), stores((bytes, 0), &bases, everything()));
        rig.run(&[Step::Rows(vec![Row { key: 1, ..row(30) }])]);
        rig.finish();
        assert_eq!(rig.given(), 3, "{bytes} bytes");
        assert_nothing_stored(&mut rig, "a smaller limit");
    }
}

/// A row of each of so many keys, from `key` on.
fn many(key: i64, keys: i64, time: i64) -> Vec<Row> {
    (key..key + keys).map(|key| Row { key, time, value: Some(key), id: key }).collect()
}

fn by_key() -> TopSpec {
    TopSpec { limit: 2, with_ties: false, keys: vec!["k".into()], ..top(&mut StdRng::seed_from_u64(1)) }
}

#[test]
fn a_window_of_more_keys_than_memory_holds_never_comes_into_it() {
    // A block of rows is less than half of it.
    let share = 4 << 20;
    let mut rig = before_store(&by_key(), (share, 2));
    for part in 0..100 {
        rig.run(&[Step::Rows(many(part * 1_000, 1_000, 5))]);
        rig.settle();
        assert!(rig.bytes() <= 2 * share as u64, "{} bytes are held", rig.bytes());
    }
    let held = rig.metrics.state_keys.load(Ordering::Relaxed);
    assert!(held < 50_000, "memory has {held} of 100000 rows");
    rig.run(&[Step::Advance(9)]);
    assert!(rig.peak_bytes <= 2 * share as u64, "{} bytes were held", rig.peak_bytes);
    assert_eq!(rig.given(), 100_000);
    rig.finish();
    assert_nothing_stored(&mut rig, "a window larger than memory");
}

#[test]
fn nothing_is_read_for_windows_of_which_nothing_left_memory() {
    let mut rig = before_store(&by_key(), (1 << 20, 0));
    for part in 0..4 {
        rig.run(&[Step::Rows(many(part * 10, 10, 5 + 10 * part))]);
        rig.operator.snapshot(CheckpointId(part as u64), false).expect("a snapshot is taken");
        rig.settle();
    }
    rig.run(&[Step::Advance(19)]);
    assert_eq!((store_metrics(&rig).loads, rig.given()), (0, 20));
    // Of the window of 35 keys leave.
    for part in 0..40 {
        rig.run(&[Step::Rows(many(100 + part * 1_000, 1_000, 35))]);
        rig.settle();
    }
    let loads = store_metrics(&rig).loads;
    rig.run(&[Step::Rows(many(0, 10, 45)), Step::Rows(many(5, 10, 45))]);
    assert_eq!(store_metrics(&rig).loads, loads, "keys of another window are looked for");
    rig.run(&[Step::Rows(many(100, 10, 35))]);
    assert_eq!(store_metrics(&rig).loads, loads + 1);
    rig.run(&[Step::Rows([many(200, 5, 35), many(205, 5, 45), many(1_210, 5, 38)].concat())]);
    assert_eq!(store_metrics(&rig).loads, loads + 2, "a batch's keys come in by one read");
}

/// What did not change is not written again.
#[test]
fn each_row_is_written_once() {
    let mut rig = before_store(&by_key(), (64 << 20, 0));
    for round in 0..5 {
        rig.run(&[Step::Rows(many(round * 100, 100, 5))]);
        rig.operator.snapshot(CheckpointId(round as u64), false).expect("a snapshot is taken");
        rig.settle();
    }
    rig.run(&[Step::Rows(many(0, 1, 15))]);
    assert_eq!(store_metrics(&rig).writes, 500);
}
