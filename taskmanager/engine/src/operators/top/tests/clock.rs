//! The best rows of windows of processing time: rows are in the window that is open when they come, whatever their own times are.

use levada_common::plan::{TopWindow, WindowTime};
use levada_common::time::Watermark;

use super::stored::{memory, stores};
use super::windows::{Given, Row, WindowRig, batch, input, overlapping};
use super::*;

const SIZE_MS: i64 = 10;

/// How far a row's own time is from when it comes in.
const APART: i64 = 1_000_003;

fn top(rng: &mut StdRng) -> TopSpec {
    let window = TopWindow::Tumbling { size_ms: SIZE_MS, offset_ms: 0, time: WindowTime::processing() };
    TopSpec { window: Some(window), ..super::windows::top(rng) }
}

/// As `top`, or in windows that overlap.
fn any_top(rng: &mut StdRng) -> TopSpec {
    let top = top(rng);
    match rng.random() {
        true => TopSpec { window: Some(overlapping(rng, WindowTime::processing())), ..top },
        false => top,
    }
}

/// What the clock shows, and the rows that come in then.
struct Arrival {
    shown: i64,
    /// What windows see.
    seen: i64,
    rows: Vec<Row>,
}

/// By a clock that begins at `clock`; one that was restored at `ahead` sees rows at that time or later.
fn arrivals(rng: &mut StdRng, clock: &mut i64, ahead: Option<i64>, next: &mut i64) -> Vec<Arrival> {
    let begun = *clock;
    let mut arrival = |rng: &mut StdRng| {
        let seen = ahead.map_or(*clock, |ahead| (*clock).max(ahead + (*clock - begun) / 2));
        let row = |rng: &mut StdRng, next: &mut i64| {
            *next += 1;
            Row { key: rng.random_range(0..30), time: seen + APART, value: Some(rng.random_range(0..5)), id: *next }
        };
        let arrival = Arrival { shown: *clock, seen, rows: (0..rng.random_range(1..20)).map(|_| row(rng, next)).collect() };
        *clock += rng.random_range(0..12);
        arrival
    };
    (0..rng.random_range(1..20)).map(|_| arrival(rng)).collect()
}

/// The best rows of each window, as event time would have them.
fn expected(top: &TopSpec, arrivals: &[Arrival]) -> Vec<Given> {
    let rows = arrivals.iter().flat_map(|arrival| arrival.rows.iter().map(|row| Row { time: arrival.seen, ..*row })).collect();
    super::windows::expected(top, &[super::windows::Step::Rows(rows)]).0
}

/// Tells the clock and gives the rows of these key groups; one that asked to be told in between is.
fn run(rig: &mut WindowRig, arrivals: &[Arrival], range: KeyGroupRange) {
    let tick = |rig: &mut WindowRig, time: i64| {
        let next = rig.operator.tick(time).expect("no errors");
        rig.drain();
        next.filter(|next| *next > time)
    };
    let mut next: Option<i64> = None;
    for Arrival { shown, rows, .. } in arrivals {
        while let Some(asked) = next.filter(|asked| asked < shown) {
            next = tick(rig, asked);
        }
        tick(rig, *shown);
        let mine: Vec<Row> = rows.iter().filter(|row| range.contains(group_of(row.key))).copied().collect();
        if !mine.is_empty() {
            rig.be_ready();
            rig.process(batch(&mine));
        }
        next = tick(rig, *shown);
    }
}

/// From a store or the heap into a store or the heap, at another width; the clock of the second attempt may be ahead or behind.
#[test]
fn rows_are_in_the_window_that_is_open_when_they_come() {
    let mut rows = 0;
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = TopSpec { keys: vec!["k".into()], ..any_top(&mut rng) };
        let memories = [(); 2].map(|()| rng.random_bool(0.6).then(|| memory(&mut rng)));
        let (mut clock, mut next) = (rng.random_range(-50..50), 0);
        let mut all = arrivals(&mut rng, &mut clock, None, &mut next);
        let reached = all.last().expect("rows came").shown;
        clock = reached + rng.random_range(-60..60);
        let later = arrivals(&mut rng, &mut clock, Some(reached), &mut next);
        let cold = memories[0].and_then(|memory| stores(memory, &[], everything()));
        let mut rig = WindowRig::before(&top, Vec::new(), everything(), cold);
        run(&mut rig, &all, everything());
        let parts = rig.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
        rig.settle();
        let restored = stored(rig.operator.as_mut(), parts);
        let mut given = std::mem::take(&mut rig.given);
        let parallelism = rng.random_range(1..4);
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let cold = memories[1].and_then(|memory| stores(memory, &[], range));
            let mut part = WindowRig::before(&top, restored.clone(), range, cold);
            run(&mut part, &later, range);
            part.finish();
            assert!(part.late.is_empty(), "seed {seed}: by processing time no row is late");
            given.append(&mut part.given);
        }
        all.extend(later);
        given.sort_unstable();
        rows += given.len();
        assert_eq!(given, expected(&top, &all), "seed {seed}: {top:?}, {memories:?}");
    }
    assert!(rows > 10_000, "the run is empty: {rows} rows");
}

#[test]
fn a_window_fires_when_its_end_has_come_and_says_when_that_is() {
    let mut rig = WindowRig::new(&top(&mut StdRng::seed_from_u64(1)), Vec::new(), everything());
    assert_eq!(rig.operator.tick(3).unwrap(), None, "there is nothing to wait for");
    rig.process(batch(&[Row { key: 1, time: 99, value: None, id: 1 }]));
    assert_eq!(rig.operator.tick(4).unwrap(), Some(10));
    rig.operator.advance(Watermark(1_000)).unwrap();
    rig.drain();
    assert_eq!(rig.given(), 0, "event time is nothing to it");
    assert_eq!(rig.operator.tick(10).unwrap(), Some(10), "it has output");
    rig.drain();
    assert_eq!(rig.given, [(1, 1, (0, 10), 1)]);
    assert_eq!(rig.operator.tick(11).unwrap(), None);
}

/// A local half leaves out of each batch what cannot be among the best, whenever the other half takes it in.
#[test]
fn two_phases_give_what_one_gives() {
    let (mut given, mut dropped) = (0, 0);
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = TopSpec { keys: Vec::new(), ..any_top(&mut rng) };
        let (mut clock, mut next) = (0, 0);
        let all = arrivals(&mut rng, &mut clock, None, &mut next);
        let local = TopSpec { local: true, ..top.clone() };
        let spec = OperatorSpec { output: input(), sides: Vec::new(), ..super::windows::spec(&local) };
        let mut local = build(&spec, &local).expect("the plan is good");
        let context = OperatorContext { batch_rows_max: 100, ..crate::testing::context("best", 7) };
        local.open(&context, Vec::new()).expect("it opens");
        let mut last = WindowRig::new(&top, Vec::new(), everything());
        for Arrival { shown, rows, .. } in &all {
            last.operator.tick(*shown).expect("no errors");
            last.drain();
            local.process(0, batch(rows)).expect("rows are taken in");
            while let Some(batch) = local.poll().expect("output is polled") {
                dropped += rows.len() - batch.num_rows();
                last.process(batch);
            }
        }
        last.finish();
        given += last.given();
        assert_eq!(last.sorted().0, expected(&top, &all), "seed {seed}: {top:?}");
    }
    assert!(given > 2_000 && dropped > 5_000, "the run is empty: {given} rows given, {dropped} held back");
}

/// Of rows that come one after the other some might be in the next window, and others would be among the best there.
#[test]
fn a_batch_that_may_be_cut_goes_on_whole() {
    let mut rng = StdRng::seed_from_u64(1);
    let goes_on = |limit, count: i64, rows_max, rng: &mut StdRng| {
        let top = TopSpec { keys: Vec::new(), limit, with_ties: false, local: true, ..top(rng) };
        let spec = OperatorSpec { output: input(), sides: Vec::new(), ..super::windows::spec(&top) };
        let mut local = build(&spec, &top).expect("the plan is good");
        let context = OperatorContext { batch_rows_max: rows_max, ..crate::testing::context("best", 7) };
        local.open(&context, Vec::new()).expect("it opens");
        let rows: Vec<Row> = (0..count).map(|id| Row { key: 0, time: 3, value: Some(id), id }).collect();
        local.process(0, batch(&rows)).expect("rows are taken in");
        std::iter::from_fn(|| local.poll().expect("output is polled")).map(|batch| batch.num_rows()).sum::<usize>()
    };
    assert_eq!(goes_on(10, 8_000, 8_192, &mut rng), 10);
    assert_eq!(goes_on(10, 8_000, 9, &mut rng), 8_000);
    assert_eq!(goes_on(5_000, 8_000, 8_192, &mut rng), 8_000);
}
