//! Single cases, as they were found in other systems, and what is refused.

use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::{Evict, SessionGap, WindowSpec};
use levada_common::types::LogicalType;
use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};

use super::model::{Row, Setup};
use super::{found, harness, push};
use crate::function::{
    FunctionError, KeyedContext, RegisteredFunction, TriggerResult, TriggerRows, WindowEvictor, WindowGroup, WindowTrigger,
};

fn sessions(gap_ms: i64, lateness_ms: i64) -> Setup {
    let window = WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } };
    Setup {
        window,
        lateness_ms,
        results: None,
        two_inputs: false,
        has_trigger: false,
        has_evictor: false,
        evict_ms: 0,
        by_clock: false,
    }
}

fn row(key: i64, time: i64, id: i64) -> Row {
    Row { key, time, id, say: 0, gap: 1 }
}

#[test]
fn a_row_that_bridges_sessions_makes_them_one_in_every_order() {
    let rows = [row(1, 0, 1), row(1, 15_000, 2), row(1, 8_000, 4), row(1, 3_000, 8)];
    let setup = sessions(10_000, 0);
    for order in 0..24 {
        let (mut left, mut rest, mut rows) = (rows.to_vec(), order, Vec::new());
        for places in (1..=4).rev() {
            rows.push(left.remove(rest % places));
            rest /= places;
        }
        let mut run = harness(&setup).start().unwrap();
        push(&mut run, &setup, 0, &rows[..2]);
        let snapshot = run.snapshot().unwrap();
        run = harness(&setup).parallelism(3).restore(&snapshot).unwrap();
        push(&mut run, &setup, 0, &rows[2..]);
        run.finish().unwrap();
        let came = rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(found(&mut run, &setup).0, [format!("1 0..25000 [{came}] []")], "order {order}");
    }
}

#[test]
fn a_late_row_that_extends_a_session_gives_it_once_more() {
    let setup = sessions(10_000, 60_000);
    let mut run = harness(&setup).start().unwrap();
    push(&mut run, &setup, 0, &[row(1, 0, 1), row(2, 20_001, 2)]);
    run.watermark(20_000).unwrap();
    assert_eq!(found(&mut run, &setup).0, ["1 0..10000 [1] []"]);
    push(&mut run, &setup, 0, &[row(1, 5_000, 3)]);
    assert_eq!(found(&mut run, &setup).0, ["1 0..15000 [1 3] []"]);
    run.finish().unwrap();
    assert_eq!(found(&mut run, &setup).0, ["2 20001..30001 [2] []"]);
}

/// A snapshot that is being written is what was there at the barrier, though rows are removed and blocks moved.
#[test]
fn many_rows_come_and_go_beside_a_snapshot() {
    let setup = Setup { has_trigger: true, ..sessions(5, 0) };
    let mut run = harness(&setup).batch_rows(4096).start().unwrap();
    let rows = |from: i64, say: i64| (from..from + 20_000).map(|id| Row { say, ..row(id % 1_000, id, id) }).collect::<Vec<_>>();
    push(&mut run, &setup, 0, &rows(0, 0));
    run.watermark(15_000).unwrap();
    push(&mut run, &setup, 0, &rows(20_000, 0));
    let snapshot = run.snapshot().unwrap();
    let mut after = harness(&setup).batch_rows(4096).parallelism(2).restore(&snapshot).unwrap();
    let mut ends = Vec::new();
    for run in [&mut run, &mut after] {
        found(run, &setup);
        run.watermark(39_000).unwrap();
        run.finish().unwrap();
        let (mut rows, late) = found(run, &setup);
        rows.sort();
        assert!(late.is_empty());
        ends.push(rows);
    }
    assert_eq!(ends[0], ends[1]);
    assert!(ends[0].len() > 20_000, "{}", ends[0].len());
}

/// Blocks of rows that are mostly gone are moved, and taken again: what is left of a window stays in its order all the same.
#[test]
fn rows_are_restored_in_the_order_in_which_they_came() {
    let window = WindowSpec::Tumbling { size_ms: 1_000_000, offset_ms: 0 };
    let setup = Setup { window, has_trigger: true, ..sessions(1, 0) };
    let mut run = harness(&setup).batch_rows(8192).start().unwrap();
    let mut came = Vec::new();
    for from in (0..65_536).step_by(8192) {
        let rows = (from..from + 8192).map(|id| row(if id % 10 == 0 { 1 } else { 2 }, id, id));
        let purge = Row { say: 2, ..row(2, from, from + 8192) };
        came.extend(rows.clone().filter(|row| row.key == 1).map(|row| row.id.to_string()));
        push(&mut run, &setup, 0, &rows.chain([purge]).collect::<Vec<_>>());
        if from < 40_000 {
            continue;
        }
        let snapshot = run.snapshot().unwrap();
        let mut after = harness(&setup).batch_rows(8192).parallelism(2).restore(&snapshot).unwrap();
        // Timers, triggers and the number of rows aside: it fires.
        push(&mut after, &setup, 0, &[Row { say: 1, ..row(1, 0, 1_000_000) }]);
        let given = found(&mut after, &setup).0;
        assert_eq!(given, [format!("1 0..1000000 [{} 1000000] []", came.join(" "))]);
    }
}

/// The last rows are those that came last, also where a session was several and where the operator began anew in between.
#[test]
fn the_last_rows_of_a_session_are_the_same_after_a_restore() {
    let setup = sessions(10, 0);
    let window = setup.window.clone();
    let two_last = || harness(&setup).window(window.clone(), Some(Evict::Rows { rows: 2 }));
    let rows = [row(1, 20, 1), row(1, 0, 2), row(1, 10, 3)];
    for restored_at in 0..=rows.len() {
        let mut run = two_last().start().unwrap();
        for at in 0..=rows.len() {
            if at == restored_at {
                let snapshot = run.snapshot().unwrap();
                run = two_last().parallelism(2).restore(&snapshot).unwrap();
            }
            if let Some(row) = rows.get(at) {
                push(&mut run, &setup, 0, &[*row]);
            }
        }
        run.finish().unwrap();
        assert_eq!(found(&mut run, &setup).0, ["1 0..30 [2 3] []"], "restored at {restored_at}");
    }
}

/// Rows of a batch stand in windows that overlap in the order in which they came, not in that of their times.
#[test]
fn rows_of_windows_that_overlap_stand_as_they_came() {
    let window = WindowSpec::Sliding { size_ms: 10, slide_ms: 5, offset_ms: 0 };
    let setup = Setup { window: window.clone(), ..sessions(1, 3) };
    let mut run = harness(&setup).window(window, Some(Evict::Rows { rows: 1 })).start().unwrap();
    push(&mut run, &setup, 0, &[row(1, 7, 1), row(1, 2, 2)]);
    run.finish().unwrap();
    let mut given = found(&mut run, &setup).0;
    given.sort();
    assert_eq!(given, ["1 -5..5 [2] []", "1 0..10 [2] []", "1 5..15 [1] []"]);
}

/// Also where a batch goes from slice to slice and back, more often than it is cut into runs.
#[test]
fn rows_that_alternate_between_slices_stand_as_they_came() {
    let window = WindowSpec::Sliding { size_ms: 10, slide_ms: 5, offset_ms: 0 };
    let setup = Setup { window, has_trigger: true, ..sessions(1, 0) };
    let mut run = harness(&setup).batch_rows(100).start().unwrap();
    let rows: Vec<Row> = (0..40).map(|id| row(1, if id % 2 == 0 { 1 } else { 6 }, id)).collect();
    push(&mut run, &setup, 0, &[&rows[..], &[Row { say: 1, ..row(1, 2, 40) }]].concat());
    let came = (0..=40).map(|id: i64| id.to_string()).collect::<Vec<_>>().join(" ");
    assert!(found(&mut run, &setup).0.contains(&format!("1 0..10 [{came}] []")));
}

/// Rows without a key are one group.
#[test]
fn a_window_without_key_has_its_trigger_too() {
    let declaration = FunctionDeclaration::new("collect", FunctionKind::Window)
        .keyed(false)
        .input("at", LogicalType::Int64)
        .input("id", LogicalType::Int64)
        .output("first", LogicalType::String)
        .output("second", LogicalType::String);
    let function = RegisteredFunction::window(declaration, |_| Ok(super::Collect)).unwrap();
    let tumbling = WindowSpec::Tumbling { size_ms: 10, offset_ms: 0 };
    let harness = crate::harness::Harness::new(function).event_time("at").window(tumbling, None);
    let harness = harness.trigger(super::obedient(false), Options::new());
    let mut run = harness.clone().start().unwrap();
    let rows = [(1, 1, 0), (2, 2, 1), (11, 3, 0)].map(|(at, id, say)| serde_json::json!({"at": at, "id": id, "say": say}));
    run.push(&rows).unwrap();
    let firsts = |run: &mut crate::harness::HarnessRun| -> Vec<String> {
        run.output().unwrap().iter().map(|row| row["first"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(firsts(&mut run), ["1 2"]);
    let snapshot = run.snapshot().unwrap();
    let mut run = harness.restore(&snapshot).unwrap();
    run.finish().unwrap();
    assert_eq!(firsts(&mut run), ["1 2", "3"]);
}

struct Bad;

impl WindowTrigger for Bad {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new("count").bind(binder)
    }

    fn on_rows(
        &mut self,
        _states: &Self::States,
        _rows: TriggerRows<'_>,
        _ctx: &mut KeyedContext<'_>,
        _answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        Ok(())
    }
}

impl WindowEvictor for Bad {
    fn before(
        &mut self,
        _group: WindowGroup<'_>,
        _rows: crate::function::Rows<'_>,
        _keep: &mut [bool],
    ) -> Result<(), FunctionError> {
        panic!("it does not like rows")
    }
}

#[test]
fn what_cannot_be_a_trigger_or_evictor_is_refused_by_name() {
    let trigger = || FunctionDeclaration::new("bad", FunctionKind::Trigger);
    let refused = |registered: Result<RegisteredFunction, _>| {
        let error: crate::function::RegistrationError = registered.err().expect("it is refused");
        error.to_string()
    };
    let text = refused(RegisteredFunction::trigger(trigger(), |_| Ok(Bad)));
    assert!(text.contains("its state \"count\" is not kept per window; bind it `per_window`"), "{text}");
    let text = refused(RegisteredFunction::trigger(trigger().output("x", LogicalType::Int64), |_| {
        Ok(super::Obedient { by_clock: false })
    }));
    assert!(text.contains("a trigger gives no rows"), "{text}");
    let evictor = || FunctionDeclaration::new("bad", FunctionKind::Evictor);
    let text = refused(RegisteredFunction::evictor(evictor().event_timers(), |_| Ok(super::ById)));
    assert!(text.contains("an evictor sets no timers"), "{text}");
    let text = refused(RegisteredFunction::evictor(trigger(), |_| Ok(super::ById)));
    assert!(text.contains("declared as a trigger and is a evictor"), "{text}");
    let window = FunctionDeclaration::new("collect", FunctionKind::Window).merging().output("x", LogicalType::Int64);
    let text = refused(RegisteredFunction::window(window, |_| Ok(super::Collect)));
    assert!(text.contains("is no trigger, and merges nothing"), "{text}");
}

#[test]
fn a_panic_of_an_evictor_fails_the_node_by_its_name() {
    let evictor = FunctionDeclaration::new("bad", FunctionKind::Evictor);
    let evictor = RegisteredFunction::evictor(evictor, |_| Ok(Bad)).unwrap();
    let mut run = harness(&sessions(10, 0)).evictor(evictor, Options::new()).start().unwrap();
    push(&mut run, &sessions(10, 0), 0, &[row(1, 0, 1)]);
    let error = run.watermark(20).unwrap_err();
    let text = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let text = text.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(text.contains("it does not like rows"), "{text}");
}
