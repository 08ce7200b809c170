//! The same in front of a store, with so little memory that rows leave it: against the model, and across restores from every backend into
//! every other.

use std::sync::atomic::Ordering;

use levada_state::cold::ColdMetrics;

use super::by_clock::check_windows_by_clock;
use super::*;

/// In front of a store of which databases are restored as such, or anywhere.
struct Stored {
    rng: StdRng,
    anywhere: bool,
    hits: u64,
}

impl Stored {
    fn new(seed: u64, anywhere: bool) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), anywhere, hits: 0 }
    }
}

impl Standing for Stored {
    fn stand(&mut self, harness: Harness) -> Harness {
        let rng = &mut self.rng;
        let bytes = [0, rng.random_range(1..40_000), rng.random_range(200_000..400_000)][rng.random_range(0..3)];
        match rng.random_range(0..4) {
            0 if self.anywhere => harness,
            1 if self.anywhere => harness.store(bytes),
            _ => harness.store(bytes).in_databases(),
        }
    }

    fn look_back(&mut self, run: &HarnessRun) {
        self.hits += run.metrics().store().map_or(0, |metrics| metrics.hits);
    }

    /// The rows of a store stand session by session, which who reads them otherwise cannot know.
    fn keeps_order(&self) -> bool {
        !self.anywhere
    }
}

#[test]
fn windows_give_their_rows_while_these_leave_memory_and_come_back() {
    for anywhere in [false, true] {
        let (mut seen, mut hits) = (BTreeMap::new(), 0);
        for seed in 0..150 {
            let mut stored = Stored::new(seed, anywhere);
            check_windows(seed, &mut stored, &mut seen);
            hits += stored.hits;
        }
        assert!(hits > 1_500 && seen["restores"] > 100, "{hits} rows came out of a store, {} restores", seen["restores"]);
    }
}

#[test]
fn windows_of_processing_time_give_their_rows_while_these_leave_memory() {
    for anywhere in [false, true] {
        let mut stored = Stored::new(1, anywhere);
        check_windows_by_clock(0..100, &mut stored);
        assert!(stored.hits > 1_500, "only {} rows came out of a store", stored.hits);
    }
}

/// Windows, each given when it is over, less the rows that an evictor takes.
fn evicted(window: WindowSpec) -> Setup {
    Setup {
        window,
        lateness_ms: 0,
        results: None,
        two_inputs: false,
        has_trigger: false,
        has_evictor: true,
        evict_ms: 0,
        by_clock: false,
    }
}

fn row(key: i64, time: i64, id: i64) -> Row {
    Row { key, time, id, say: 0, gap: 1 }
}

fn store_metrics(run: &HarnessRun) -> ColdMetrics {
    run.metrics().store().expect("it has a store")
}

/// The job has longer or shorter windows than its snapshot, or sessions and had windows, or the other way round.
#[test]
fn rows_of_other_windows_are_put_into_those_that_there_are() {
    let tumbling = |size_ms| WindowSpec::Tumbling { size_ms, offset_ms: 0 };
    let windows = [tumbling(5), tumbling(10), tumbling(20), WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 10 } }];
    let mut given = 0;
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let [old, new] = [(); 2].map(|()| evicted(windows[rng.random_range(0..4)].clone()));
        let mut id = 0;
        let mut rows = || {
            id += 1;
            // Windows become sessions that touch: rows that come later would make them one where no row of theirs does.
            row(rng.random_range(0..4), rng.random_range(0..60), id)
        };
        let [first, second] = [(); 2].map(|()| (0..40).map(|_| rows()).collect::<Vec<Row>>());
        let of = |memory: Option<usize>| {
            let stand = |setup: &Setup| match memory {
                None => harness(setup),
                Some(bytes) => harness(setup).store(bytes).in_databases(),
            };
            let mut run = stand(&old).start().unwrap();
            push(&mut run, &old, 0, &first);
            let snapshot = run.snapshot().unwrap();
            let mut run = stand(&new).parallelism(2).restore(&snapshot).unwrap();
            push(&mut run, &new, 0, &second);
            run.finish().unwrap();
            assert_nothing_left(&mut run, &format!("seed {seed}"));
            let mut rows = found(&mut run, &new).0;
            rows.iter_mut().for_each(in_any_order);
            rows.sort();
            rows
        };
        let expected = of(None);
        given += expected.len();
        for bytes in [0, 300_000] {
            assert_eq!(of(Some(bytes)), expected, "seed {seed}, {bytes} bytes: {old:?} to {new:?}");
        }
    }
    assert!(given > 1_000, "only {given} windows are given");
}

fn tumbling(size_ms: i64) -> Setup {
    evicted(WindowSpec::Tumbling { size_ms, offset_ms: 0 })
}

/// So many rows of a few keys, none of which the evictor takes.
fn many(from: i64, rows: i64, time: i64) -> Vec<Row> {
    (from..from + rows).map(|id| row(id % 4, time, id * 15 + 1)).collect()
}

#[test]
fn rows_of_few_windows_leave_memory_while_more_come() {
    let setup = tumbling(1_000);
    let share = 4 << 20;
    let mut run = harness(&setup).batch_rows(4096).store(share).start().unwrap();
    for part in 0..150 {
        push(&mut run, &setup, 0, &many(part * 2_000, 2_000, 5));
        let bytes = run.metrics().state_bytes.load(Ordering::Relaxed);
        assert!(bytes <= 2 * share as u64, "{bytes} bytes are held");
    }
    let ColdMetrics { loads, writes, .. } = store_metrics(&run);
    assert!(loads == 0 && writes > 100_000, "{loads} reads for rows that come, {writes} rows were written");
    run.watermark(999).unwrap();
    let ids: usize = found(&mut run, &setup).0.iter().map(|given| given.split_whitespace().count() - 3).sum();
    assert_eq!(ids, 300_000);
    assert_nothing_left(&mut run, "a window larger than memory");
}

#[test]
fn groups_that_fire_come_in_by_one_read() {
    let setup = tumbling(10);
    let mut run = harness(&setup).batch_rows(4096).store(200_000).start().unwrap();
    let keys = |time: i64| (0..40).map(|key| row(key, time, key * 15 + 1)).collect::<Vec<Row>>();
    push(&mut run, &setup, 0, &keys(5));
    for part in 0..60 {
        push(&mut run, &setup, 0, &many(part * 1_000, 1_000, 15));
    }
    run.watermark(9).unwrap();
    assert_eq!((store_metrics(&run).loads, found(&mut run, &setup).0.len()), (1, 40));
}

/// What did not change is not written again, and what memory has is not asked for.
#[test]
fn each_row_is_written_once() {
    let setup = tumbling(10);
    let mut run = harness(&setup).batch_rows(4096).store(64 << 20).start().unwrap();
    for part in 0..5 {
        push(&mut run, &setup, 0, &many(part * 100, 100, 5));
        run.snapshot().unwrap();
    }
    run.watermark(9).unwrap();
    let ColdMetrics { loads, writes, .. } = store_metrics(&run);
    assert_eq!((loads, writes, found(&mut run, &setup).0.len()), (0, 500, 4));
}
