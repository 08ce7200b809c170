//! Functions whose timers belong to windows: sessions that a function merges itself, against a plain model, over restores to other
//! parallelisms and backends.

use std::collections::BTreeMap;

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_state::descriptor::{BindError, Binder, ListState, ListStateDescriptor, ReducingState, ReducingStateDescriptor};
use proptest::prelude::*;
use serde_json::json;

use super::{overlay, said};
use crate::function::{
    FiredTimers, FunctionError, KeyedContext, KeyedProcessFunction, Namespace, Output, RegisteredFunction, Rows,
};
use crate::harness::{Harness, HarnessError, HarnessRun};

/// What a row holds open.
const GAP: i64 = 10;

/// Sums the rows of sessions, and remembers them in order.
struct Sessions;

struct States {
    sum: ReducingState<i64>,
    rows: ListState<i64>,
}

impl KeyedProcessFunction for Sessions {
    type States = States;

    fn bind(binder: &mut dyn Binder) -> Result<States, BindError> {
        let sum = ReducingStateDescriptor::new("sum", |sum: &mut i64, next| *sum += next).per_window().bind(binder)?;
        Ok(States { sum, rows: ListStateDescriptor::new("rows").per_window().bind(binder)? })
    }

    fn process(
        &mut self,
        states: &States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (times, numbers) = (rows.column::<i64>("time")?, rows.column::<i64>("number")?);
        for row in 0..rows.len() {
            ctx.enter(row);
            let own = Namespace { start: times.get(row), end: times.get(row) + GAP };
            let touched = |open: &Namespace| open.start <= own.end && own.start <= open.end;
            let old: Vec<Namespace> = states.sum.namespaces(ctx)?.into_iter().filter(touched).collect();
            let session =
                old.iter().fold(own, |all, one| Namespace { start: all.start.min(one.start), end: all.end.max(one.end) });
            for window in &old {
                ctx.set_namespace(Some(*window));
                ctx.delete_event_timer(window.end - 1)?;
            }
            ctx.set_namespace(Some(session));
            states.sum.merge_namespaces(ctx, session, &old)?;
            states.rows.merge_namespaces(ctx, session, &old)?;
            states.sum.add(ctx, numbers.get(row))?;
            states.rows.add(ctx, numbers.get(row))?;
            ctx.set_event_timer(session.end - 1)?;
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        states: &States,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let keys = timers.keys().column::<i64>("key")?;
        for (row, window) in timers.windows().iter().enumerate() {
            ctx.enter(row);
            assert_eq!((ctx.namespace(), timers.times_ms()[row]), (Some(*window), window.end - 1));
            let rows = states.rows.get(ctx)?.len();
            let sum = *states.sum.get(ctx)?.expect("a timer's window has a row");
            out.push((keys.get(row), format!("{}..{} {rows}", window.start, window.end), sum))?;
            states.sum.clear(ctx)?;
            states.rows.clear(ctx)?;
        }
        Ok(())
    }
}

fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("sessions", FunctionKind::KeyedProcess)
        .input("key", LogicalType::Int64)
        .input("time", LogicalType::Int64)
        .input("number", LogicalType::Int64)
        .output("key", LogicalType::Int64)
        .output("what", LogicalType::String)
        .output("number", LogicalType::Int64)
}

/// The function with its state in a store, or on the heap.
fn harness(overlay_bytes: Option<usize>) -> Harness {
    let declaration = declaration().event_timers().window_timers();
    let function = RegisteredFunction::keyed_process(declaration, |_| Ok(Sessions)).unwrap();
    overlay_bytes.into_iter().fold(Harness::new(function).key("key", LogicalType::Int64), Harness::store)
}

fn push(run: &mut HarnessRun, rows: &[(i64, i64, i64)]) {
    let rows: Vec<_> = rows.iter().map(|(key, time, number)| json!({"key": key, "time": time, "number": number})).collect();
    run.push(&rows).unwrap();
}

/// A key's open sessions: (end, start) to rows and sum.
type Open = BTreeMap<i64, BTreeMap<(i64, i64), (usize, i64)>>;

/// Takes a row into the model.
fn take(open: &mut Open, (key, time, number): (i64, i64, i64)) {
    let sessions = open.entry(key).or_default();
    let (mut start, mut end, mut rows, mut sum) = (time, time + GAP, 1, number);
    let own = start..=end;
    let touched: Vec<_> = sessions.keys().copied().filter(|(to, from)| *from <= *own.end() && *own.start() <= *to).collect();
    for key in touched {
        let (more, further) = sessions.remove(&key).unwrap();
        (start, end, rows, sum) = (start.min(key.1), end.max(key.0), rows + more, sum + further);
    }
    sessions.insert((end, start), (rows, sum));
}

/// What fires in the model at this watermark.
fn fire(open: &mut Open, watermark: i64) -> Vec<String> {
    let mut fired = Vec::new();
    for (key, sessions) in open {
        let later = sessions.split_off(&(watermark + 2, i64::MIN));
        let due = std::mem::replace(sessions, later);
        fired.extend(due.into_iter().map(|((end, start), (rows, sum))| format!("{key} {start}..{end} {rows} {sum}")));
    }
    fired
}

#[derive(Debug, Clone)]
enum Step {
    Rows(Vec<(i64, i64, i64)>),
    Watermark(i64),
    Restore(u32, Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec((0..12_i64, 0..120_i64, 1..9_i64), 1..12).prop_map(Step::Rows),
        2 => (0..25_i64).prop_map(Step::Watermark),
        1 => (prop::sample::select(vec![1, 2, 3, 5, 8]), overlay()).prop_map(|(to, overlay)| Step::Restore(to, overlay)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn windows_of_timers_survive_merging_and_restores(overlay in overlay(), steps in prop::collection::vec(step(), 1..40)) {
        let (mut open, mut watermark) = (Open::new(), -1_i64);
        let mut run = harness(overlay).start().unwrap();
        for step in steps {
            match step {
                Step::Rows(rows) => {
                    // Whether a session that is over fires before or after the next row of the batch is the batch's matter.
                    for row in rows {
                        take(&mut open, row);
                        push(&mut run, &[row]);
                        prop_assert_eq!(said(&mut run), fire(&mut open, watermark));
                    }
                }
                Step::Watermark(further) => {
                    watermark += further;
                    run.watermark(watermark).unwrap();
                    let (mut found, mut expected) = (said(&mut run), fire(&mut open, watermark));
                    found.sort();
                    expected.sort();
                    prop_assert_eq!(found, expected);
                }
                Step::Restore(parallelism, overlay) => {
                    let snapshot = run.snapshot().unwrap();
                    push(&mut run, &[(1, 5, 100), (2, 500, 100)]);
                    run = harness(overlay).parallelism(parallelism).restore(&snapshot).unwrap();
                    run.watermark(watermark).unwrap();
                    prop_assert_eq!(said(&mut run), Vec::<String>::new(), "what fired has fired");
                }
            }
        }
    }
}

#[test]
fn two_windows_that_end_together_each_have_their_timer() {
    struct Twice;
    impl KeyedProcessFunction for Twice {
        type States = ();
        fn bind(_binder: &mut dyn Binder) -> Result<(), BindError> {
            Ok(())
        }
        fn process(
            &mut self,
            (): &(),
            rows: Rows<'_>,
            ctx: &mut KeyedContext<'_>,
            _out: &mut Output,
        ) -> Result<(), FunctionError> {
            let starts = rows.column::<i64>("number")?;
            for row in 0..rows.len() {
                ctx.enter(row);
                let start = starts.get(row);
                ctx.set_namespace((start >= 0).then_some(Namespace { start, end: 20 }));
                ctx.set_event_timer(19)?;
                ctx.delete_event_timer(7)?;
            }
            Ok(())
        }
        fn on_timers(
            &mut self,
            (): &(),
            timers: FiredTimers<'_>,
            _ctx: &mut KeyedContext<'_>,
            out: &mut Output,
        ) -> Result<(), FunctionError> {
            let mut windows = timers.windows().iter().map(|window| (0_i64, "window", window.start));
            windows.try_for_each(|window| out.push(window))
        }
    }
    let function = RegisteredFunction::keyed_process(declaration().event_timers().window_timers(), |_| Ok(Twice)).unwrap();
    let harness = Harness::new(function).key("key", LogicalType::Int64);
    let mut run = harness.start().unwrap();
    push(&mut run, &[(1, 0, 5), (1, 0, 0), (1, 0, 5)]);
    run.watermark(19).unwrap();
    assert_eq!(said(&mut run), ["0 window 0", "0 window 5"]);
    match run.push(&[json!({"key": 1, "time": 0, "number": -1})]) {
        Err(HarnessError::Engine(error)) => {
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("a timer outside of a window"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}
