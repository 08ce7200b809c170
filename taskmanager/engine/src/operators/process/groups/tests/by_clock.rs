//! The same by processing time: rows are in the windows that are open when they come, none is late, and clocks of other machines may be
//! behind.

use std::ops::Range;

use levada_common::plan::{FiringSpec, SessionGap, Trigger, WindowSpec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::{Model, Row, Setup};
use super::{OnHeap, Standing, assert_nothing_left, check, found, harness, in_any_order, push, some_setup};
use crate::harness::HarnessRun;

/// What the operator looks at its windows by: each that is over when such a moment has come was given.
const MOMENT_MS: i64 = 100;

/// A machine's clock, and what windows see of it: after a restore they go on from where they were, at half its pace while it is behind.
#[derive(Clone, Copy)]
struct Shown {
    now: i64,
    since: i64,
    reached: i64,
}

impl Shown {
    fn seen(self) -> i64 {
        self.now.max(self.reached + (self.now - self.since) / 2)
    }

    /// When windows see this time.
    fn at(self, seen: i64) -> i64 {
        seen.min(self.since + 2 * (seen - self.reached))
    }
}

fn longer(window: WindowSpec) -> WindowSpec {
    match window {
        WindowSpec::Tumbling { size_ms, .. } => WindowSpec::Tumbling { size_ms: size_ms * 10, offset_ms: 0 },
        WindowSpec::Sliding { size_ms, slide_ms, .. } => {
            WindowSpec::Sliding { size_ms: size_ms * 10, slide_ms: slide_ms * 10, offset_ms: 0 }
        }
        WindowSpec::Cumulate { size_ms, step_ms, .. } => {
            WindowSpec::Cumulate { size_ms: size_ms * 10, step_ms: step_ms * 10, offset_ms: 0 }
        }
        WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } } => {
            WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: gap_ms * 3 } }
        }
        other => other,
    }
}

fn some_setup_by_clock(rng: &mut StdRng) -> Setup {
    let setup = some_setup(rng);
    let results = setup.results.map(|firing| {
        let early = firing.early.or(Some(Trigger { every_ms: None, rows: Some(2) }));
        FiringSpec { early, lateness_ms: 0, late: None, ..firing }
    });
    let setup = Setup { window: longer(setup.window), lateness_ms: 0, results, by_clock: true, ..setup };
    let is_session = matches!(setup.window, WindowSpec::Session { .. });
    let has_trigger = setup.has_trigger || (!is_session && !setup.has_evictor && setup.results.is_none());
    Setup { has_trigger, ..setup }
}

#[test]
fn windows_of_processing_time_give_their_rows_as_the_model_says() {
    let (given, restores, behind) = check_windows_by_clock(0..200, &mut OnHeap);
    assert!(given > 2_000 && restores > 300 && behind > 100, "the run is empty: {given}, {restores}, {behind}");
}

/// Answers how much was given, how often all was restored, and how often clocks were behind.
pub(super) fn check_windows_by_clock(seeds: Range<u64>, standing: &mut impl Standing) -> (usize, usize, usize) {
    let (mut given, mut restores, mut behind) = (0, 0, 0);
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let setup = some_setup_by_clock(&mut rng);
        let harness = harness(&setup);
        let mut model = Model::new(setup.clone());
        model.in_any_order = !standing.keeps_order();
        let mut width = rng.random_range(1..4);
        let mut run = standing.stand(harness.clone().parallelism(width)).start().unwrap();
        let (mut shown, mut id) = (Shown { now: 0, since: 0, reached: 0 }, 0);
        let tell = |run: &mut HarnessRun, model: &mut Model, shown: Shown| {
            run.processing_time(shown.now).unwrap();
            model.tick(shown.seen());
        };
        tell(&mut run, &mut model, shown);
        for step in 0..rng.random_range(1..60) {
            match rng.random_range(0..10) {
                0..5 => {
                    let mut row = || {
                        id += 1;
                        // Its own time says nothing.
                        let (key, time) = (rng.random_range(0..4), rng.random_range(-1_000..1_000));
                        Row { key, time, id, say: rng.random_range(0..8), gap: rng.random_range(1..60) }
                    };
                    let rows: Vec<Row> = (0..6).map(|_| row()).collect();
                    let input = usize::from(setup.two_inputs && rng.random_bool(0.4));
                    for rows in rows.chunks(rng.random_range(1..7)) {
                        push(&mut run, &setup, input, rows);
                        model.take(input, rows);
                    }
                }
                5..7 => {
                    shown.now += rng.random_range(1..60);
                    tell(&mut run, &mut model, shown);
                }
                7..9 => {
                    let moment = (shown.seen().div_euclid(MOMENT_MS) + 1) * MOMENT_MS;
                    shown.now = shown.at(moment);
                    assert_eq!(shown.seen(), moment);
                    tell(&mut run, &mut model, shown);
                    given += check(&mut run, &mut model, &format!("seed {seed}, step {step}"));
                }
                _ => {
                    // The barrier comes to each instance at a moment of its own.
                    let mut last = shown;
                    for instance in 0..width as usize {
                        let then = Shown { now: shown.now + rng.random_range(0..50), ..shown };
                        run.processing_time_of(instance, then.now).unwrap();
                        last = if then.now > last.now { then } else { last };
                    }
                    let snapshot = run.snapshot().unwrap();
                    let mut before = found(&mut run, &setup).0;
                    // What is done to it afterwards is not in the snapshot.
                    let row = Row { key: 1, time: 0, id: 1_000_000, say: 3, gap: 5 };
                    push(&mut run, &setup, 0, &[row, Row { key: 2, ..row }]);
                    width = rng.random_range(1..4);
                    standing.look_back(&run);
                    run = standing.stand(harness.clone().parallelism(width)).restore(&snapshot).unwrap();
                    let reached = last.seen();
                    let now = reached + rng.random_range(-200..100);
                    shown = Shown { now, since: now, reached };
                    behind += usize::from(now < reached);
                    model.tick(reached);
                    tell(&mut run, &mut model, shown);
                    restores += 1;
                    // All that both have given is compared at the next moment.
                    let moment = (shown.seen().div_euclid(MOMENT_MS) + 1) * MOMENT_MS;
                    shown.now = shown.at(moment);
                    tell(&mut run, &mut model, shown);
                    before.extend(found(&mut run, &setup).0);
                    let mut expected = std::mem::take(&mut model.given);
                    if model.in_any_order {
                        before.iter_mut().chain(&mut expected).for_each(in_any_order);
                    }
                    before.sort();
                    expected.sort();
                    assert_eq!(before, expected, "seed {seed}, step {step}: {setup:?}");
                }
            }
        }
        run.finish().unwrap();
        model.finish();
        given += check(&mut run, &mut model, &format!("seed {seed}, end"));
        assert_nothing_left(&mut run, &format!("seed {seed}"));
        standing.look_back(&run);
    }
    (given, restores, behind)
}

/// Sessions that are over go out when the tenth of a second in which they end is over, and the operator asks to be told of that.
#[test]
fn sessions_of_processing_time_go_out_while_no_row_comes() {
    let window = WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 250 } };
    let setup = Setup {
        window,
        lateness_ms: 0,
        results: None,
        two_inputs: false,
        has_trigger: false,
        has_evictor: false,
        evict_ms: 0,
        by_clock: true,
    };
    let row = |key: i64, id: i64| Row { key, time: 0, id, say: 0, gap: 1 };
    let mut run = harness(&setup).start().unwrap();
    run.processing_time(1_000).unwrap();
    push(&mut run, &setup, 0, &[row(1, 1), row(2, 2)]);
    run.processing_time(1_250).unwrap();
    push(&mut run, &setup, 0, &[row(1, 3)]);
    run.watermark(1_000_000).unwrap();
    run.processing_time(1_299).unwrap();
    assert!(found(&mut run, &setup).0.is_empty(), "event time says nothing");
    run.processing_time(1_300).unwrap();
    assert_eq!(found(&mut run, &setup).0, ["2 1000..1250 [2] []"]);
    let snapshot = run.snapshot().unwrap();
    let mut run = harness(&setup).parallelism(2).restore(&snapshot).unwrap();
    run.processing_time(1_501).unwrap();
    push(&mut run, &setup, 0, &[row(1, 4)]);
    run.processing_time(1_600).unwrap();
    assert_eq!(found(&mut run, &setup).0, ["1 1000..1500 [1 3] []"], "a row behind its end is another session's");
    run.finish().unwrap();
    assert_eq!(found(&mut run, &setup).0, ["1 1501..1751 [4] []"]);
}
