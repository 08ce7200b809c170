//! Snapshot, restore, go on: what comes out is what would have come undisturbed, whoever owns which keys afterwards.

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinKind, JoinScope, JoinSide};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, Step, in_range, kinds, spec, steps, tumbling};
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_restored_join_goes_on_as_if_nothing_had_been(
        before in steps(),
        after in steps(),
        kind in kinds(),
        bounds in intervals::intervals(),
        is_window: bool,
        composite: bool,
        parallelism in 1u32..4,
    ) {
        let (from_ms, to_ms) = bounds;
        let size_ms = to_ms - from_ms + 1;
        let scope = if is_window { tumbling(size_ms) } else { JoinScope::Within { from_ms, to_ms } };
        let spec = spec(kind, scope, composite);
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
            for step in &after {
                match step {
                    Step::Rows(side, rows) => {
                        let mine = in_range(rows, range, composite);
                        if !mine.is_empty() {
                            part.process(*side, &mine).unwrap();
                        }
                    }
                    Step::Advance(to) => part.advance(*to),
                }
            }
            part.finish();
            rows.extend(part.take_rows());
            late.iter_mut().zip(part.take_late()).for_each(|(late, more)| late.extend(more));
        }
        rows.sort();
        late.iter_mut().for_each(|late| late.sort_unstable());
        let all: Vec<Step> = before.into_iter().chain(after).collect();
        let (expected, expected_late) = match is_window {
            true => windows::expected(kind, &all, size_ms),
            false => intervals::expected(kind, &all, from_ms, to_ms),
        };
        prop_assert_eq!(rows, expected);
        prop_assert_eq!(late, expected_late);
    }
}

#[test]
fn late_rows_stay_late_after_a_restore() {
    for scope in [tumbling(10), JoinScope::Within { from_ms: 0, to_ms: 5 }] {
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
