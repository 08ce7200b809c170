//! Snapshot, restore, go on: what comes out is what would have come undisturbed, whoever owns which keys afterwards.

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateCall, AggregatePhase, AggregateSpec, WindowSpec};
use levada_common::time::Watermark;
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, batch, calls, in_range, spec, store, tumbling};
use super::sessions::session;
use super::slices::{cumulate, sliding};
use super::windows::{Step, run, sorted, steps};
use crate::error::EngineError;
use crate::testing::collect;

fn aggregates() -> Vec<AggregateSpec> {
    let mut full = spec(&["k"], WindowSpec::Running, calls());
    full.changelog_full = true;
    vec![
        spec(&["k"], WindowSpec::Running, calls()),
        full,
        spec(&["k"], WindowSpec::Global, calls()),
        spec(&["k"], tumbling(15), calls()),
        spec(&["k"], tumbling(15), calls()[..1].to_vec()),
        spec(&["k"], sliding(15, 6, 2), calls()),
        spec(&["k"], cumulate(24, 6, 3), calls()),
        // Of equal rows of two sessions that become one, which is the first depends on how rows came in batches.
        spec(&["k"], session(5), calls().into_iter().filter(|call| call.name != "when").collect()),
        spec(&["k"], WindowSpec::Running, with_library()),
        spec(&["k"], tumbling(15), with_library()),
        spec(&["k"], sliding(15, 6, 2), with_library()),
        spec(&["k"], session(5), with_library()),
    ]
}

/// A count, and an aggregate of a library.
fn with_library() -> Vec<AggregateCall> {
    vec![calls()[0].clone(), collect("all")]
}

pub(super) fn watermark_of(steps: &[Step]) -> i64 {
    steps.iter().fold(i64::MIN, |watermark, step| match step {
        Step::Advance(to) => watermark.max(*to),
        Step::Rows(_) => watermark,
    })
}

/// Goes on after `watermark`, with the rows of `range` only.
pub(super) fn go_on(rig: &mut Rig, watermark: i64, steps: &[Step], range: KeyGroupRange) {
    let mut mine = vec![Step::Advance(watermark)];
    mine.extend(steps.iter().map(|step| match step {
        Step::Rows(rows) => Step::Rows(in_range(rows, range)),
        Step::Advance(to) => Step::Advance((*to).max(watermark)),
    }));
    mine.retain(|step| !matches!(step, Step::Rows(rows) if rows.is_empty()));
    run(rig, &mine);
    rig.finish();
}

/// Rows per key in order (a changelog is ordered within a key), keys sorted.
fn by_key(rows: Vec<String>, key_at: usize) -> Vec<String> {
    let key = |row: &String| row.split(',').nth(key_at).expect("a key").to_string();
    let mut rows = rows;
    rows.sort_by_key(key);
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_restored_operator_goes_on_as_if_nothing_had_been(
        before in steps(),
        after in steps(),
        which in 0usize..12,
        parallelism in 1u32..4,
        background in prop::collection::vec(any::<bool>(), 25),
    ) {
        let aggregate = &aggregates()[which];
        let watermark = watermark_of(&before);
        let (mut undisturbed, mut rig) = (Rig::new(aggregate), Rig::new(aggregate));
        run(&mut undisturbed, &before);
        run(&mut rig, &before);
        prop_assert_eq!(undisturbed.take_rows(), rig.take_rows());

        // The snapshot runs while the operator goes on, which changes neither.
        let parts = rig.barrier(1);
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        for (step, background) in after.iter().zip(background) {
            let to = match step {
                Step::Advance(to) => Step::Advance((*to).max(watermark)),
                rows => rows.clone(),
            };
            run(&mut rig, std::slice::from_ref(&to));
            if background {
                rig.background();
            }
        }
        rig.finish();
        let restored = store(parts, || rig.background());
        go_on(&mut undisturbed, watermark, &after, everything);
        let expected = undisturbed.take_rows();
        if !aggregate.window.is_windowed() {
            prop_assert_eq!(&rig.take_rows(), &expected);
        }

        let mut rows = Vec::new();
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::restored(aggregate, restored.clone(), range);
            go_on(&mut part, watermark, &after, range);
            rows.extend(part.take_rows());
        }
        let key_at = usize::from(aggregate.window == WindowSpec::Running);
        match aggregate.window {
            WindowSpec::Running => prop_assert_eq!(by_key(rows, key_at), by_key(expected, key_at)),
            _ => prop_assert_eq!(sorted(rows), sorted(expected)),
        }
    }

    #[test]
    fn a_final_without_key_is_restored(before in steps(), after in steps(), global in any::<bool>()) {
        let window = if global { WindowSpec::Global } else { tumbling(15) };
        let aggregate = spec(&[], window, calls());
        let last = AggregateSpec { phase: AggregatePhase::Final, ..aggregate.clone() };
        let mut partial = Rig::new(&AggregateSpec { phase: AggregatePhase::Partial, ..aggregate });
        run(&mut partial, &before);
        partial.barrier(1);
        let states = std::mem::take(&mut partial.out);
        run(&mut partial, &after.iter().filter(|step| matches!(step, Step::Rows(_))).cloned().collect::<Vec<_>>());
        partial.finish();
        let (mut undisturbed, mut rig) = (Rig::new(&last), Rig::new(&last));
        for state in states {
            undisturbed.process_batch(state.clone());
            rig.process_batch(state);
        }
        let parts = rig.barrier(1);
        let restored = store(parts, || rig.background());
        let mut restored = Rig::restored(&last, restored, KeyGroupRange::all(MAX_PARALLELISM));
        for state in std::mem::take(&mut partial.out) {
            undisturbed.process_batch(state.clone());
            restored.process_batch(state);
        }
        undisturbed.finish();
        restored.finish();
        prop_assert_eq!(restored.take_rows(), undisturbed.take_rows());
    }
}

#[test]
fn panes_that_fire_before_they_are_saved_are_in_the_snapshot() {
    let aggregate = spec(&["k"], tumbling(10), calls()[..1].to_vec());
    let mut rig = Rig::new(&aggregate);
    for window in 0..4 {
        let rows: Vec<Row> = (0..5000).map(|n| (n, window * 10, 0)).collect();
        rig.process(&rows);
    }
    let parts = rig.barrier(1);
    rig.advance(25);
    assert_eq!(rig.take_rows().len(), 10_000);
    rig.process(&[(1, 30, 0)]);
    let restored = store(parts, || rig.background());
    assert_eq!(restored[0].batches.iter().map(arrow::record_batch::RecordBatch::num_rows).sum::<usize>(), 20_000);
    let mut restored = Rig::restored(&aggregate, restored, KeyGroupRange::all(MAX_PARALLELISM));
    restored.advance(Watermark::MAX.0);
    assert!(restored.take_rows().iter().all(|row| row.ends_with(",1")), "the row after the barrier is not in it");
}

#[test]
fn a_pane_that_is_on_its_way_out_is_waited_for() {
    let aggregate = spec(&["k"], tumbling(10), calls()[..1].to_vec());
    let mut rig = Rig::new(&aggregate);
    let rows: Vec<Row> = (0..9000).map(|n| (n, 0, 0)).collect();
    rig.process(&rows);
    let parts = rig.barrier(1);
    rig.advance_blocked(9);
    for _ in 0..5 {
        assert!(rig.background(), "rows of the pane that fires are not saved yet");
    }
    rig.drain();
    assert_eq!(rig.take_rows().len(), 9000);
    let restored = store(parts, || rig.background());
    assert_eq!(restored[0].batches.iter().map(arrow::record_batch::RecordBatch::num_rows).sum::<usize>(), 9000);
}

#[test]
fn what_has_fired_stays_fired_after_a_restore() {
    let aggregate = spec(&["k"], tumbling(10), calls()[..1].to_vec());
    let mut rig = Rig::new(&aggregate);
    rig.process(&[(1, 5, 0), (1, 15, 0)]);
    rig.advance(9);
    assert_eq!(rig.take_rows().len(), 1);
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    let mut restored = Rig::restored(&aggregate, restored, KeyGroupRange::all(MAX_PARALLELISM));
    restored.process(&[(1, 5, 0)]);
    restored.advance(Watermark::MAX.0);
    assert_eq!(restored.take_rows().len(), 1, "the late row opened the first window anew");
}

#[test]
fn a_snapshot_that_is_given_up_disturbs_nothing() {
    let sessions = spec(&["k"], session(100), calls());
    for aggregate in [spec(&["k"], WindowSpec::Global, calls()), spec(&["k"], tumbling(10), calls()), sessions] {
        let mut rig = Rig::new(&aggregate);
        let rows: Vec<Row> = (0..20_000).map(|n| (n, n % 30, n)).collect();
        rig.process(&rows);
        let first = rig.barrier(1);
        rig.process(&rows[..100]);
        rig.give_up(1);
        assert!(!rig.background(), "nothing is left to save");
        assert!(
            first.into_iter().flat_map(|part| part.into_pieces().expect("pieces").1).any(|piece| piece.is_err()),
            "its reader is told"
        );
        rig.process(&rows[50..200]);
        let second = rig.barrier(2);
        drop(rig.barrier(3));
        rig.process(&rows[..10]);
        rig.background();
        assert!(!rig.background(), "no one reads the third any more");
        let stored = store(second, || false);
        assert_eq!(stored[0].batches.iter().map(arrow::record_batch::RecordBatch::num_rows).sum::<usize>(), 20_000);
    }
}

#[test]
fn another_aggregation_refuses_the_state() {
    let mut rig = Rig::new(&spec(&["k"], WindowSpec::Running, calls()));
    rig.process_batch(batch(&[(1, 2, 3)]));
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    let others = [
        (
            spec(&["k"], tumbling(10), calls()),
            "node \"counts\": state \"aggregate\" cannot be restored: this operator's state is \"panes\"; the aggregation or its window has changed",
        ),
        (
            spec(&["s"], WindowSpec::Running, calls()),
            "node \"counts\": state \"aggregate\" cannot be restored: it has no column \"key.s\"",
        ),
        (
            spec(&["k"], WindowSpec::Running, calls()[..1].to_vec()),
            "node \"counts\": state \"aggregate\" cannot be restored: it has the columns key.k, n, total, first(v desc).v, first(v desc).t, last(v).v, last(v).s, the job has key.k, n",
        ),
    ];
    for (aggregate, expected) in others {
        match Rig::try_restored(&aggregate, restored.clone(), KeyGroupRange::all(MAX_PARALLELISM)) {
            Err(error @ EngineError::Restore { .. }) => assert_eq!(error.to_string(), expected),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{expected}"),
        }
    }
}
