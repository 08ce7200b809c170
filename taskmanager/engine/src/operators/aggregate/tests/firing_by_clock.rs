//! Windows of processing time that give results more than once: what stands in the end is what those give that fire once, whatever was
//! given before, and whatever restores, barriers that are apart, stores and halves there were.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::plan::{AggregateFunction, AggregateSpec, FiringSpec, WindowSpec, WindowTime};
use proptest::prelude::*;

use super::firings::{counts, in_full, trigger, triggers};
use super::processing::{
    by_clock, expected, in_one_phase_and_two, over_a_restore, over_barriers_apart, timed, windows, without_and_with_a_store,
};
use super::rig::{Rig, call, store};
use super::sessions::session;
use super::standing::Standing;
use super::store::{everything, memory};
use super::windows::sorted;

fn aggregates() -> impl Strategy<Value = AggregateSpec> {
    (windows(), triggers(), any::<bool>(), any::<bool>()).prop_map(|(window, early, accumulate, full)| {
        let accumulate = accumulate || is_session(&window);
        let firing = FiringSpec { early, lateness_ms: 0, late: None, accumulate };
        in_full(full, AggregateSpec { firing: Some(firing), ..by_clock(window) })
    })
}

fn is_session(window: &WindowSpec) -> bool {
    matches!(window, WindowSpec::Session { .. })
}

/// What stands of what was given.
fn stands(aggregate: &AggregateSpec, given: Vec<String>) -> Vec<String> {
    // The end of a session moves.
    let keys = if is_session(&aggregate.window) { 2 } else { 3 };
    let mut standing = Standing::default();
    match aggregate.is_changelog() {
        true => standing.apply_changes(given, keys, aggregate.changelog_full, &mut BTreeSet::new()),
        false => standing.add(given, keys),
    }
    sorted(standing.rows.into_iter().map(|(key, row)| format!("{key},{row}")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_stands_is_what_the_model_gives(
        before in timed(),
        after in timed(),
        aggregate in aggregates(),
        clock in -50i64..50,
        skew in -60i64..60,
        parallelism in 1u32..4,
    ) {
        let (rows, all) = over_a_restore((&aggregate, &aggregate), (&before, &after), (clock, skew), parallelism);
        prop_assert_eq!(stands(&aggregate, rows), sorted(expected(&all, &aggregate.window)));
    }

    #[test]
    fn subtasks_whose_barriers_are_apart_lose_nothing_and_repeat_nothing(
        before in timed(),
        after in timed(),
        aggregate in aggregates(),
        apart in prop::collection::vec(0i64..20, 1..4),
        skew in 0i64..60,
        parallelism in 1u32..4,
    ) {
        let (rows, all) = over_barriers_apart(&aggregate, (&before, &after), (&apart, skew), parallelism);
        prop_assert_eq!(stands(&aggregate, rows), sorted(expected(&all, &aggregate.window)));
    }

    #[test]
    fn a_store_behind_changes_nothing(
        earlier in timed(),
        later in timed(),
        aggregate in aggregates(),
        memory in (memory(), memory()),
        skew in -60i64..60,
    ) {
        let given = without_and_with_a_store(&aggregate, (&earlier, &later), memory, skew);
        let [heap, stored] = given.map(|rows| stands(&aggregate, rows));
        prop_assert_eq!(heap, stored);
    }

    #[test]
    fn two_phases_give_what_one_gives(steps in timed(), aggregate in aggregates()) {
        let [one, two] = in_one_phase_and_two(&aggregate, &steps).map(|rows| stands(&aggregate, rows));
        prop_assert_eq!(one, two);
    }

    /// What a window had given early stands after a restore without `early`, and the other way round.
    #[test]
    fn early_results_may_come_and_go_with_a_restore(before in timed(), after in timed(), window in windows(), early in triggers()) {
        prop_assume!(!window.overlaps());
        let firing = FiringSpec { early, lateness_ms: 0, late: None, accumulate: true };
        let (with, without) = (AggregateSpec { firing: Some(firing), ..by_clock(window.clone()) }, by_clock(window));
        for (old, new) in [(&with, &without), (&without, &with)] {
            let (given, all) = over_a_restore((old, new), (&before, &after), (0, 0), 2);
            // Of each key and window what was given last; where these are changes, without what each does.
            let keys = if is_session(&new.window) { 2 } else { 3 };
            let row = |row: &String| row.splitn(row.matches(',').count().saturating_sub(5), ',').last().map(String::from);
            let key = |row: &String| row.split(',').take(keys).collect::<Vec<_>>().join(",");
            let last: BTreeMap<String, String> = given.iter().filter_map(row).map(|row| (key(&row), row)).collect();
            prop_assert_eq!(sorted(last.into_values().collect()), sorted(expected(&all, &new.window)));
        }
    }
}

#[test]
fn a_session_goes_when_its_tenth_of_a_second_is_over() {
    let every_batch = FiringSpec { early: Some(trigger(None, Some(1))), lateness_ms: 0, late: None, accumulate: true };
    let aggregate = AggregateSpec {
        calls: vec![call("n", AggregateFunction::Count)],
        time: WindowTime::processing(),
        ..counts(&["k"], session(40), every_batch)
    };
    let mut rig = Rig::new(&aggregate);
    assert_eq!(rig.tick(1000), None);
    rig.process(&[(1, 7, 0)]);
    assert_eq!(rig.take_rows(), ["0,1,1000,1040,1039,1"]);
    assert_eq!(rig.tick(1030), Some(1100));
    rig.process(&[(1, 7, 0)]);
    rig.tick(1071);
    rig.process(&[(1, 7, 0)]);
    assert_eq!(rig.take_rows(), ["2,1,1000,1070,1069,2", "0,1,1071,1111,1110,1"]);
    let restored = store(rig.barrier(1), || rig.background());
    let mut rig = Rig::restored(&aggregate, restored, everything());
    assert_eq!(rig.tick(1100), Some(1200));
    rig.process(&[(1, 7, 0)]);
    assert_eq!(rig.take_rows(), ["2,1,1071,1140,1139,2"]);
    assert_eq!(rig.tick(1200), None);
    assert!(rig.take_rows().is_empty(), "all of it was given");
    assert_eq!((rig.late_rows(), rig.metrics.state_keys.load(std::sync::atomic::Ordering::Relaxed)), (0, 0));
}
