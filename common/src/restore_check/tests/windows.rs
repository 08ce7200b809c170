//! What windows have kept that the job's windows cannot go on with is refused before anything starts.

use super::*;
use crate::function::{FunctionDeclaration, FunctionKind};
use crate::plan::{JoinKind, JoinScope, JoinSpec, SessionGap, Trigger, TriggerSpec, WindowPart};

/// An aggregation that gives results more than once, or has a trigger that says when.
fn counts(window: WindowSpec, firing: Option<FiringSpec>, has_trigger: bool) -> Plan {
    let mut operator = aggregate("counts", "k", window, decimal());
    if let OperatorKind::Aggregate(spec) = &mut operator.kind {
        let function = FunctionDeclaration::new("alarm", FunctionKind::Trigger).merging();
        let part = WindowPart { function, options: Options::default() };
        spec.firing = firing;
        spec.trigger = has_trigger.then(|| Box::new(TriggerSpec { part, lateness_ms: 0, accumulate: true }));
    }
    plan(vec![operator])
}

fn early() -> Option<FiringSpec> {
    let rows = Some(Trigger { every_ms: None, rows: Some(1) });
    Some(FiringSpec { early: rows, lateness_ms: 0, late: None, accumulate: true })
}

/// Which results were given it would not know.
#[test]
fn a_trigger_for_windows_that_gave_results_early_is_refused_before_anything_starts() {
    for window in [tumbling(), WindowSpec::Global, WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 1 } }] {
        let (before, after) = (snapshot(&counts(window.clone(), early(), false)), counts(window.clone(), None, true));
        let state = aggregate("counts", "k", window.clone(), decimal()).state_names().remove(0);
        let says = format!(
            "state \"{state}\" of operator \"counts\": which results its windows gave early or late the job's `trigger` would not know"
        );
        let report = check(&before, &after, &[]).expect_err("it would give them again").to_string();
        assert!(report.contains(&says) && report.contains("--drop-state counts begins anew"), "{report}");
        check(&before, &after, &drops(&[&format!("counts/{state}")])).expect("nothing is left of them");
        let mut empty = before;
        empty.tasks.iter_mut().flat_map(|task| &mut task.states).for_each(|handle| handle.rows = 0);
        check(&empty, &after, &[]).expect("no result was given");
        check(&snapshot(&counts(window, None, false)), &after, &[]).expect("each window gave one result");
    }
}

/// They are kept by what they were when they began.
#[test]
fn sessions_that_lose_their_trigger_are_refused_unless_all_is_dropped() {
    let session = WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 1 } };
    let (before, after) = (snapshot(&counts(session.clone(), None, true)), counts(session, None, false));
    for dropped in [&[][..], &["counts/windows", "counts/given"]] {
        let report = check(&before, &after, &drops(dropped)).expect_err("they would be others");
        let [Mismatch::Window { state, .. }] = report.mismatches.as_slice() else { panic!("{report}") };
        assert_eq!(state, "sessions");
        assert!(report.to_string().contains("give the window its trigger again; --drop-state counts begins anew"), "{report}");
    }
    check(&before, &after, &drops(&["counts"])).expect("they begin anew");
    let (before, after) = (snapshot(&counts(tumbling(), None, true)), counts(tumbling(), None, false));
    check(&before, &after, &drops(&["counts/windows", "counts/given"]))
        .expect("windows that begin where they end are what they were");
}

/// What is kept of windows that overlap is kept by slices, of which each is wholly in a window or outside.
#[test]
fn windows_of_other_slices_are_refused_before_anything_starts() {
    let sliding = |slide_ms| counts(WindowSpec::Sliding { size_ms: 20_000, slide_ms, offset_ms: 0 }, None, false);
    let before = snapshot(&sliding(4_000));
    check(&before, &sliding(4_000), &[]).expect("nothing has changed");
    check(&before, &sliding(8_000), &[]).expect("its slices are as long");
    let report = check(&before, &sliding(5_000), &[]).expect_err("they are cut otherwise").to_string();
    assert!(report.contains("its window is slices of 4s, shifted by 0s in the snapshot, slices of 5s"), "{report}");
    check(&before, &sliding(5_000), &drops(&["counts/slices"])).expect("nothing is left of them");
    let mut empty = before.clone();
    empty.tasks.iter_mut().flat_map(|task| &mut task.states).for_each(|handle| handle.rows = 0);
    check(&empty, &sliding(5_000), &[]).expect("there are none");
    let mut unnoted = before;
    unnoted.tasks.iter_mut().flat_map(|task| &mut task.states).for_each(|handle| {
        handle.schema = Arc::new(StateSchema { grid: String::new(), ..(*handle.schema).clone() });
    });
    check(&unnoted, &sliding(5_000), &[]).expect("its task looks at the slices themselves");
}

/// Of the rows of a key in a slice the right side of such a join has one, which may be in none of the slices that the job has now.
#[test]
fn filters_by_rows_of_other_slices_are_refused_before_anything_starts() {
    let join = |kind, slide_ms| {
        let windows = WindowSpec::Sliding { size_ms: 20_000, slide_ms, offset_ms: 0 };
        let scope = JoinScope::Overlapping { windows, time: WindowTime::default() };
        let keys = || vec!["k".to_owned()];
        let spec = JoinSpec { kind, left_keys: keys(), right_keys: keys(), scope, right: input(), columns: Vec::new() };
        let kind = OperatorKind::Join(Box::new(spec));
        plan(vec![OperatorSpec { clause: "join".into(), kind, ..aggregate("pairs", "k", tumbling(), decimal()) }])
    };
    let before = snapshot(&join(JoinKind::Semi, 4_000));
    check(&before, &join(JoinKind::Semi, 8_000), &[]).expect("its slices are as long");
    let report = check(&before, &join(JoinKind::Semi, 5_000), &[]).expect_err("they are cut otherwise").to_string();
    let says = "state \"right\" of operator \"pairs\": its window is slices of 4s, shifted by 0s in the snapshot, slices of 5s";
    assert!(report.contains(says), "{report}");
    let before = snapshot(&join(JoinKind::Left, 4_000));
    check(&before, &join(JoinKind::Left, 5_000), &[]).expect("it has all rows");
}
