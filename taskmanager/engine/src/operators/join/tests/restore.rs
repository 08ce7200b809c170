//! Snapshot, restore, go on: what comes out is what would have come undisturbed, whoever owns which keys afterwards.

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinKind, JoinScope, JoinSide, WindowTime};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, Step, in_range, kinds, spec, steps, tumbling};
use super::windows::sliding;
use super::{intervals, windows};
use crate::error::EngineError;
use levada_state::keyed::HeapBudget;

fn reached(steps: &[Step]) -> i64 {
    steps.iter().fold(i64::MIN, |watermark, step| match step {
        Step::Advance(to) => watermark.max(*to),
        Step::Rows(..) => watermark,
    })
}

/// Another number for each row, so that those of two scripts differ.
fn renumbered(steps: Vec<Step>) -> Vec<Step> {
    let renumber = |step| match step {
        Step::Rows(side, rows) => {
            Step::Rows(side, rows.into_iter().map(|row: Row| Row { id: row.id + 100_000, ..row }).collect())
        }
        Step::Advance(to) => Step::Advance(to),
    };
    steps.into_iter().map(renumber).collect()
}

fn scopes() -> impl Strategy<Value = JoinScope> {
    let within = intervals::intervals().prop_map(|(from_ms, to_ms)| JoinScope::Within { from_ms, to_ms });
    prop_oneof![2 => windows::scopes(), 1 => within]
}

/// The rows of `range`, and all of the time.
fn of_range(steps: &[Step], range: KeyGroupRange, composite: bool) -> Vec<Step> {
    let of_step = |step: &Step| match step {
        Step::Rows(side, rows) => Step::Rows(*side, in_range(rows, range, composite)),
        Step::Advance(to) => Step::Advance(*to),
    };
    let is_some = |step: &Step| !matches!(step, Step::Rows(_, rows) if rows.is_empty());
    steps.iter().map(of_step).filter(is_some).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_restored_join_goes_on_as_if_nothing_had_been(
        before in steps(),
        after in steps(),
        kind in kinds(),
        scope in scopes(),
        composite: bool,
        parallelism in 1u32..4,
    ) {
        let spec = spec(kind, scope.clone(), composite);
        let after = renumbered(after);
        let mut rig = Rig::new(&spec);
        rig.run(&before);
        let restored = rig.snapshot();
        let (mut rows, mut late) = (rig.take_rows(), rig.take_late());
        // What is done to it afterwards is not in the snapshot.
        rig.run(&after);
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::restored(&spec, restored.clone(), range);
            part.advance(reached(&before));
            part.run(&of_range(&after, range, composite));
            part.finish();
            rows.extend(part.take_rows());
            late.iter_mut().zip(part.take_late()).for_each(|(late, more)| late.extend(more));
        }
        rows.sort();
        late.iter_mut().for_each(|late| late.sort_unstable());
        let all: Vec<Step> = before.into_iter().chain(after).collect();
        let (expected, expected_late) = match scope {
            JoinScope::Within { from_ms, to_ms } => intervals::expected(kind, &all, from_ms, to_ms),
            scope => windows::expected(kind, &all, &scope),
        };
        prop_assert_eq!(rows, expected);
        prop_assert_eq!(late, expected_late);
    }

    /// A barrier that is not aligned comes to each instance at a time of its own, so that one may have given a window that another
    /// one has not.
    #[test]
    fn instances_whose_barriers_are_apart_lose_nothing_and_repeat_nothing(
        before in steps(),
        after in steps(),
        kind in kinds(),
        scope in windows::overlapping(800, &WindowTime::default()),
        ahead in prop::collection::vec(-5_000i64..3_000, 1..4),
        parallelism in 1u32..4,
    ) {
        let spec = spec(kind, scope.clone(), false);
        let after = renumbered(after);
        let (mut states, mut rows, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        let instances = ahead.len() as u32;
        for (subtask, ahead) in (0..instances).zip(ahead) {
            let range = KeyGroupRange::of_subtask(subtask, instances, MAX_PARALLELISM);
            let mut steps = of_range(&before, range, false);
            steps.push(Step::Advance(ahead));
            let mut rig = Rig::restored(&spec, Vec::new(), range);
            rig.run(&steps);
            states.extend(rig.snapshot());
            rows.extend(rig.take_rows());
            steps.extend(of_range(&after, range, false));
            wanted.extend(windows::expected(kind, &steps, &scope).0);
        }
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::restored(&spec, states.clone(), range);
            part.run(&of_range(&after, range, false));
            part.finish();
            rows.extend(part.take_rows());
        }
        rows.sort();
        wanted.sort();
        prop_assert_eq!(rows, wanted);
    }
}

#[test]
fn late_rows_stay_late_after_a_restore() {
    for scope in [tumbling(10), sliding(10, 10), JoinScope::Within { from_ms: 0, to_ms: 5 }] {
        let spec = spec(JoinKind::Left, scope, false);
        let mut rig = Rig::new(&spec);
        rig.advance(9);
        let mut restored = Rig::restored(&spec, rig.snapshot(), KeyGroupRange::all(MAX_PARALLELISM));
        restored.process(JoinSide::Left, &[Row { key: Some(1), time: 9, id: 1 }]).unwrap();
        restored.finish();
        assert_eq!((restored.take_rows(), restored.late_rows()), (Vec::<String>::new(), 1));
    }
}

#[test]
fn another_join_refuses_the_state() {
    let mut rig = Rig::new(&spec(JoinKind::Left, JoinScope::Within { from_ms: 0, to_ms: 5 }, false));
    rig.process(JoinSide::Left, &[Row { key: Some(1), time: 9, id: 1 }]).unwrap();
    let restored = rig.snapshot();
    let other = spec(JoinKind::Left, JoinScope::Within { from_ms: 0, to_ms: 5 }, true);
    let opened = Rig::try_open(&other, restored, KeyGroupRange::all(MAX_PARALLELISM), HeapBudget::unlimited());
    match opened {
        Err(error @ EngineError::Restore { .. }) => {
            assert_eq!(error.to_string(), "node \"pairs\": state \"left\" cannot be restored: it has no column \"key.s\"");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it took another key's state"),
    }
}
