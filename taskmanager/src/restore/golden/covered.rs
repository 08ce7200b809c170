//! That there is a golden job of every window, trigger, join and the like.

use std::collections::BTreeSet;

use levada_common::plan::{
    AggregatePhase, AggregateSpec, Evict, JoinKind, JoinScope, JoinSpec, OperatorKind, ProcessSpec, ProcessWindow, SessionGap,
    TopSpec, TopWindow, WindowSpec,
};

use super::{BackendKind, jobs};

/// What an aggregation is by its window, and when that gives results.
fn of_aggregate(aggregate: &AggregateSpec) -> Vec<String> {
    let window = match &aggregate.window {
        WindowSpec::Running if aggregate.takes_changes => "running over changes",
        WindowSpec::Running => "running",
        WindowSpec::Tumbling { .. } => "tumbling",
        WindowSpec::Sliding { .. } => "sliding",
        WindowSpec::Cumulate { .. } => "cumulate",
        WindowSpec::Session { gap: SessionGap::Fixed { .. } } => "session",
        WindowSpec::Session { gap: SessionGap::Column { .. } } => "session by column",
        WindowSpec::Count { size, slide } if size == slide => "count",
        WindowSpec::Count { .. } => "count that slides",
        WindowSpec::Same => "same",
        WindowSpec::Global => "global",
    };
    let mut found = vec![window.to_owned()];
    if aggregate.time.processing {
        found.push(format!("{window} of processing time"));
    }
    let name = if aggregate.time.processing { format!("{window} of processing time") } else { window.into() };
    if aggregate.time.time_zone.is_some() {
        found.push(format!("{name} in a time zone"));
    }
    if aggregate.changelog_full {
        found.push(format!("{window} full"));
    }
    found.extend(aggregate.calls.iter().map(|call| format!("{}()", call.function_name())));
    if let Some(trigger) = &aggregate.trigger {
        found.push(format!("{name} with a trigger"));
        let mut with = |has: bool, part: &str| found.extend(has.then(|| format!("{window} with a trigger {part}")));
        with(trigger.part.function.event_timers || trigger.part.function.processing_timers, "that sets timers");
        with(trigger.lateness_ms > 0, "and lateness");
        with(!trigger.accumulate, "in parts");
    }
    if let Some(firing) = &aggregate.firing {
        let triggers = [("early", firing.early), ("late", firing.late)];
        for (when, trigger) in triggers.into_iter().filter_map(|(when, trigger)| Some((when, trigger?))) {
            found.extend(trigger.every_ms.map(|_| format!("{name} {when} by time")));
            found.extend(trigger.rows.map(|_| format!("{name} {when} by rows")));
        }
        if firing.lateness_ms > 0 {
            found.push(format!("{name} with lateness"));
        }
        if !firing.accumulate {
            found.push(format!("{name} in parts"));
        }
    }
    found
}

fn of_join(join: &JoinSpec) -> Vec<String> {
    let scope = match &join.scope {
        JoinScope::Tumbling { time, .. } if time.processing => "join in windows of processing time",
        JoinScope::Tumbling { time, .. } if time.time_zone.is_some() => "join in windows of a time zone",
        JoinScope::Tumbling { .. } => "join in windows",
        JoinScope::Overlapping { time, .. } if time.processing => "join in windows that overlap, of processing time",
        JoinScope::Overlapping { time, .. } if time.time_zone.is_some() => "join in windows that overlap, of a time zone",
        JoinScope::Overlapping { windows: WindowSpec::Cumulate { .. }, .. } => "join in windows that grow",
        JoinScope::Overlapping { .. } => "join in windows that overlap",
        JoinScope::Same => "join in the same windows",
        JoinScope::Within { .. } => "join in an interval",
        JoinScope::Standing { ttl_ms: Some(_), .. } => "join of rows that expire",
        JoinScope::Standing { left_unique: None, right_unique: None, .. } => "join of rows",
        JoinScope::Standing { .. } => "join of changes",
        JoinScope::Lookup { whole: true, .. } => "lookup join, table read first",
        JoinScope::Lookup { .. } if join.right.changelog => "lookup join, table of changes",
        JoinScope::Lookup { .. } => "lookup join, table as it is",
    };
    vec![format!("{scope}, {}", join.kind)]
}

fn of_top(top: &TopSpec) -> Vec<String> {
    let mut found = vec![match (&top.window, top.is_append(), top.order.is_empty()) {
        (Some(TopWindow::Overlapping { .. }), ..) if top.is_by_clock() => "best of windows that overlap, of processing time",
        (Some(TopWindow::Overlapping { .. }), ..) => "best of windows that overlap",
        (Some(_), ..) if top.is_by_clock() => "best of a window of processing time",
        (Some(_), ..) => "best of a window",
        (None, true, _) => "first rows",
        (None, false, true) => "last row",
        (None, false, false) => "best rows",
    }];
    found.extend(top.place.as_ref().map(|_| "best rows with their places"));
    found.extend(top.ttl_ms.map(|_| "best rows that expire"));
    found.extend(top.with_ties.then_some("best of a window with ties"));
    let zone = top.window.as_ref().and_then(TopWindow::time).filter(|time| time.time_zone.is_some());
    found.extend(zone.map(|time| match time.processing {
        true => "best of a window of processing time in a time zone",
        false => "best of a window in a time zone",
    }));
    found.into_iter().map(str::to_owned).collect()
}

/// What a function in windows is by these, and by what of them it gets when.
fn of_windows(process: &ProcessSpec, window: &ProcessWindow) -> Vec<String> {
    let what = if process.second.is_some() { "co-group" } else { "function" };
    let name = match &window.window {
        WindowSpec::Tumbling { .. } => "tumbling",
        WindowSpec::Sliding { .. } => "sliding",
        WindowSpec::Cumulate { .. } => "cumulate",
        WindowSpec::Session { gap: SessionGap::Fixed { .. } } => "session",
        WindowSpec::Session { gap: SessionGap::Column { .. } } => "session by column",
        WindowSpec::Same => "same",
        WindowSpec::Running | WindowSpec::Count { .. } | WindowSpec::Global => panic!("a function has no such windows"),
    };
    let name = if window.time.processing { format!("{name} of processing time") } else { name.into() };
    let mut found = vec![format!("{what} in {name}")];
    let mut with = |has: bool, part: &str| found.extend(has.then(|| format!("{what} in {name} {part}")));
    with(window.time.time_zone.is_some(), "in a time zone");
    with(window.trigger.is_some(), "with a trigger");
    with(window.trigger.as_ref().is_some_and(|trigger| trigger.function.event_timers), "with timers");
    with(window.evictor.is_some(), "with an evictor");
    with(matches!(window.evict, Some(Evict::Rows { .. })), "of the last rows");
    with(matches!(window.evict, Some(Evict::Time { .. })), "of the last time");
    if let Some(firing) = &window.firing {
        with(firing.lateness_ms > 0, "with lateness");
        with(firing.early.is_some_and(|early| early.rows.is_some()), "early by rows");
        with(firing.early.is_some_and(|early| early.every_ms.is_some()), "early by time");
        with(firing.late.is_some(), "with late results");
        with(!firing.accumulate, "in parts");
    }
    found
}

fn found() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for job in jobs() {
        let plan = job.plan(1, BackendKind::Memory);
        for operator in plan.vertices.iter().flat_map(|vertex| &vertex.operators) {
            found.extend(operator.sides.iter().map(|side| format!("output {}", side.name)));
            found.extend(match &operator.kind {
                OperatorKind::Aggregate(aggregate) if aggregate.phase == AggregatePhase::Partial => Vec::new(),
                OperatorKind::Aggregate(aggregate) => of_aggregate(aggregate),
                OperatorKind::Join(join) => of_join(join),
                OperatorKind::Process(process) => match &process.window {
                    Some(window) => of_windows(process, window),
                    None => vec![process.function.kind.to_string()],
                },
                OperatorKind::Top(top) if top.local => Vec::new(),
                OperatorKind::Top(top) => of_top(top),
                OperatorKind::Distinct(_) => vec!["distinct".into()],
                OperatorKind::Split { .. } => vec!["split".into()],
                OperatorKind::Watermark(_) | OperatorKind::Filter { .. } | OperatorKind::Project { .. } => Vec::new(),
                OperatorKind::Assign(_) => Vec::new(),
            });
        }
    }
    found
}

const WANTED: &[&str] = &[
    "running",
    "running full",
    "running over changes",
    "global",
    "same",
    "count",
    "count that slides",
    "tumbling",
    "tumbling in a time zone",
    "tumbling of processing time",
    "tumbling of processing time in a time zone",
    "sliding",
    "sliding in a time zone",
    "sliding of processing time",
    "cumulate",
    "cumulate in a time zone",
    "cumulate of processing time",
    "session",
    "session by column",
    "session of processing time",
    "session by column of processing time",
    "tumbling early by time",
    "tumbling early by rows",
    "tumbling late by time",
    "tumbling late by rows",
    "tumbling with lateness",
    "tumbling in parts",
    "sliding early by rows",
    "sliding with lateness",
    "sliding in parts",
    "cumulate early by time",
    "cumulate with lateness",
    "session early by rows",
    "session early by time",
    "session with lateness",
    "session by column early by rows",
    "global early by rows",
    "global early by time",
    "global in parts",
    "tumbling of processing time early by time",
    "tumbling of processing time early by rows",
    "sliding of processing time early by rows",
    "sliding of processing time in parts",
    "same of processing time early by time",
    "session of processing time early by rows",
    "session by column of processing time early by time",
    "tumbling full",
    "sliding full",
    "cumulate full",
    "session full",
    "global full",
    "tumbling with a trigger",
    "tumbling with a trigger that sets timers",
    "tumbling with a trigger and lateness",
    "tumbling with a trigger in parts",
    "tumbling of processing time with a trigger",
    "sliding with a trigger",
    "cumulate with a trigger",
    "session with a trigger",
    "session with a trigger and lateness",
    "session by column with a trigger",
    "session of processing time with a trigger",
    "same with a trigger",
    "global with a trigger",
    "global with a trigger in parts",
    "count()",
    "sum()",
    "min()",
    "max()",
    "avg()",
    "first()",
    "last()",
    "stddev()",
    "array_agg()",
    "median()",
    "distinct",
    "split",
    "output late",
    "output late_left",
    "output late_right",
    "first rows",
    "last row",
    "best rows",
    "best rows with their places",
    "best rows that expire",
    "best of a window",
    "best of a window with ties",
    "best of a window of processing time",
    "best of a window in a time zone",
    "best of a window of processing time in a time zone",
    "best of windows that overlap",
    "best of windows that overlap, of processing time",
    "join in windows of a time zone, inner",
    "join in windows of processing time, inner",
    "join in windows of processing time, full",
    "join in windows that overlap, of a time zone, inner",
    "join in windows that overlap, of processing time, left",
    "join in windows that grow, inner",
    "join in windows that grow, full",
    "join in the same windows, inner",
    "join of changes, inner",
    "join of changes, left",
    "join of changes, full",
    "join of rows that expire, inner",
    "join of rows that expire, left",
    "join in the same windows, left",
    "same early by rows",
    "lookup join, table read first, inner",
    "lookup join, table read first, left",
    "lookup join, table read first, semi",
    "lookup join, table read first, anti",
    "lookup join, table as it is, inner",
    "lookup join, table as it is, left",
    "lookup join, table of changes, left",
    "function in tumbling",
    "function in sliding",
    "function in cumulate",
    "function in same",
    "function in session",
    "function in session by column",
    "function in tumbling of processing time",
    "function in tumbling in a time zone",
    "function in cumulate in a time zone",
    "function in tumbling of processing time in a time zone",
    "function in sliding of processing time",
    "function in cumulate of processing time",
    "function in session of processing time",
    "function in session by column of processing time",
    "function in session of processing time with a trigger",
    "function in session of processing time of the last time",
    "function in session of processing time early by time",
    "function in tumbling of processing time with a trigger",
    "function in tumbling of processing time with an evictor",
    "function in sliding of processing time with a trigger",
    "function in tumbling of the last rows",
    "function in tumbling of the last time",
    "function in tumbling with a trigger",
    "function in tumbling with timers",
    "function in tumbling with an evictor",
    "function in tumbling with lateness",
    "function in tumbling with late results",
    "function in tumbling early by time",
    "function in sliding with a trigger",
    "function in cumulate early by rows",
    "function in cumulate in parts",
    "function in session with a trigger",
    "function in session with an evictor",
    "function in session with lateness",
    "function in session early by rows",
    "co-group in tumbling",
    "co-group in sliding of processing time",
    "co-group in session",
    "co-group in session of processing time",
    "co-group in session with lateness",
];

#[test]
fn there_is_a_golden_job_of_each_kind() {
    let found = found();
    let scopes = ["join in windows", "join in windows that overlap", "join in an interval", "join of rows"];
    let joins = scopes.into_iter().flat_map(|scope| JoinKind::ALL.map(|kind| format!("{scope}, {kind}")));
    let missing: Vec<String> =
        WANTED.iter().map(|name| (*name).to_owned()).chain(joins).filter(|name| !found.contains(name)).collect();
    assert!(missing.is_empty(), "no golden job has {missing:?}; what there is:\n{found:#?}");
}
