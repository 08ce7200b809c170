//! The operators that go through the round trip, all in one vertex: each kind that keeps a state across a checkpoint.

use std::sync::Arc;

use levada_common::ids::Uid;
use levada_common::plan::{
    AggregateCall, AggregateFunction as Call, AggregatePhase, AggregateSpec, BadRecordPolicy, JoinColumn, JoinKind, JoinScope,
    JoinSpec, OperatorKind, OperatorSpec, OrderSpec, ProcessSpec, ProcessWindow, SessionGap, TopSpec, TopWindow, WindowSpec,
    WindowTime,
};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::functions::{EVERYTHING, GATHERED, LISTS, functions};

/// Milliseconds of a tumbling window.
pub const WINDOW_MS: i64 = 200;

/// Millisecond of processing time between two feeds, twice.
pub const CLOCK_WINDOW_MS: i64 = 1_800;

/// How long a row of the regular join stands: longer than a run, so that it is stamped and never goes.
const STANDING_MS: i64 = 1_000_000_000;

fn columns(columns: &[(&str, LogicalType)]) -> Vec<Column> {
    columns.iter().map(|(name, ty)| Column::new(*name, ty.clone(), false)).collect()
}

/// Key, value, time: what all operators take.
pub fn input() -> StreamSchema {
    let columns = columns(&[("k", LogicalType::String), ("v", LogicalType::Int64), ("t", LogicalType::Int64)]);
    StreamSchema { event_time: Some("t".into()), ..StreamSchema::append(columns) }
}

/// What is broadcast.
pub fn rates() -> StreamSchema {
    StreamSchema::append(columns(&[("name", LogicalType::String), ("rate", LogicalType::Int64)]))
}

/// The operators of the vertex.
pub fn specs() -> Vec<OperatorSpec> {
    let specs = vec![
        function(EVERYTHING, EVERYTHING, &["k"], Some(rates())),
        function(LISTS, LISTS, &[], None),
        windowed(
            GATHERED,
            GATHERED,
            ProcessWindow::once(WindowSpec::Sliding { size_ms: 300, slide_ms: 100, offset_ms: 30 }, None),
        ),
        aggregate("running", WindowSpec::Running),
        aggregate("global", WindowSpec::Global),
        aggregate("panes", WindowSpec::Tumbling { size_ms: WINDOW_MS, offset_ms: 0 }),
        aggregate("slices", WindowSpec::Sliding { size_ms: 300, slide_ms: 100, offset_ms: 30 }),
        aggregate("grown", WindowSpec::Cumulate { size_ms: 400, step_ms: 100, offset_ms: 0 }),
        aggregate("sessions", WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 100 } }),
        join(
            "windows_by_clock",
            JoinKind::Full,
            JoinScope::Tumbling { size_ms: CLOCK_WINDOW_MS, offset_ms: 0, time: WindowTime::processing() },
        ),
        join("windows", JoinKind::Full, JoinScope::Tumbling { size_ms: WINDOW_MS, offset_ms: 50, time: WindowTime::default() }),
        join(
            "slides",
            JoinKind::Full,
            JoinScope::Overlapping {
                windows: WindowSpec::Sliding { size_ms: 300, slide_ms: 100, offset_ms: 30 },
                time: WindowTime::default(),
            },
        ),
        join("intervals", JoinKind::Left, JoinScope::Within { from_ms: -100, to_ms: 150 }),
        join(
            "standing",
            JoinKind::Left,
            JoinScope::Standing { ttl_ms: Some(STANDING_MS), left_unique: None, right_unique: None },
        ),
        join("looked_up", JoinKind::Left, JoinScope::Lookup { whole: false, moves: false }),
        top("best", TopSpec { order: vec![by_value()], limit: 3, place: Some("place".into()), ..arrived() }),
        top("first", arrived()),
        best_of("best_of_windows", TopWindow::Tumbling { size_ms: WINDOW_MS, offset_ms: 50, time: WindowTime::default() }),
        best_of(
            "best_of_slides",
            TopWindow::Overlapping {
                windows: WindowSpec::Sliding { size_ms: WINDOW_MS, slide_ms: WINDOW_MS / 2, offset_ms: 0 },
                time: WindowTime::default(),
            },
        ),
        best_of("best_by_clock", TopWindow::Tumbling { size_ms: CLOCK_WINDOW_MS, offset_ms: 0, time: WindowTime::processing() }),
    ];
    specs.into_iter().chain(super::windows::specs()).chain(super::changes::specs()).collect()
}

/// The compiler of operators that have no expressions.
pub fn compiler() -> Arc<levada_sql::Compiler> {
    Arc::new(levada_sql::Compiler::new())
}

/// An operator over `input`.
pub fn spec(uid: &str, kind: OperatorKind, output: StreamSchema) -> OperatorSpec {
    let (uid, clause, bad_records) = (Uid::new(uid), "test".into(), BadRecordPolicy::Fail);
    OperatorSpec { uid, clause, kind, input: input(), output, sides: Vec::new(), bad_records }
}

/// The operator `uid` that runs the function of this name.
pub fn function(uid: &str, name: &str, keys: &[&str], broadcast: Option<StreamSchema>) -> OperatorSpec {
    let function = functions()[name].declaration().clone();
    let output = StreamSchema::append(function.outputs.clone());
    let keys = keys.iter().map(|key| input().column(key).expect("a column").clone()).collect();
    let process = ProcessSpec { function, options: Default::default(), keys, broadcast, second: None, window: None };
    spec(uid, OperatorKind::Process(Box::new(process)), output)
}

/// The operator `uid` that hands the function of this name the rows of each key in these windows.
pub fn windowed(uid: &str, name: &str, window: ProcessWindow) -> OperatorSpec {
    let spec = function(uid, name, &["k"], None);
    let OperatorKind::Process(process) = spec.kind else { panic!("it is a function") };
    let times = ["window_start", "window_end", "window_time"].map(|name| Column::new(name, LogicalType::Timestamp, false));
    let columns = process.keys.iter().cloned().chain(times).chain(process.function.outputs.iter().cloned()).collect();
    let process = ProcessSpec { window: Some(window), ..*process };
    let output = StreamSchema { event_time: Some("window_time".into()), ..StreamSchema::append(columns) };
    OperatorSpec { kind: OperatorKind::Process(Box::new(process)), output, ..spec }
}

/// The largest value first.
fn by_value() -> OrderSpec {
    OrderSpec { column: "v".into(), ty: LogicalType::Int64, nullable: false, descending: true }
}

/// An aggregation of `input` by key.
pub fn aggregate(uid: &str, window: WindowSpec) -> OperatorSpec {
    let call = |name: &str, function, result| AggregateCall {
        name: name.into(),
        function,
        argument: (function != Call::Count).then(|| "v".into()),
        argument_type: (function != Call::Count).then_some(LogicalType::Int64),
        argument_nullable: false,
        order: Vec::new(),
        result,
        library: None,
    };
    let calls = vec![
        call("n", Call::Count, LogicalType::Int64),
        call("total", Call::Sum, LogicalType::Decimal(38, 0)),
        call("least", Call::Min, LogicalType::Int64),
        call("mean", Call::Avg, LogicalType::Float64),
        AggregateCall { argument: Some("t".into()), order: vec![by_value()], ..call("when", Call::First, LogicalType::Int64) },
    ];
    let times: &[&str] = if window.is_windowed() { &["window_start", "window_end", "window_time"] } else { &[] };
    let times = times.iter().map(|name| Column::new(*name, LogicalType::Timestamp, false));
    let results = calls.iter().map(|call| Column::new(&call.name, call.result.clone(), true));
    let columns = std::iter::once(input().columns[0].clone()).chain(times).chain(results).collect();
    let output = StreamSchema { changelog: window == WindowSpec::Running, ..StreamSchema::append(columns) };
    let (keys, phase) = (vec!["k".into()], AggregatePhase::Single);
    let (time, firing) = (WindowTime::default(), None);
    let aggregate = AggregateSpec {
        keys,
        window,
        time,
        phase,
        calls,
        changelog_full: false,
        firing,
        trigger: None,
        takes_changes: false,
        distinct: Vec::new(),
    };
    spec(uid, OperatorKind::Aggregate(aggregate), output)
}

/// A join of the input with rows of the same columns.
fn join(uid: &str, kind: JoinKind, scope: JoinScope) -> OperatorSpec {
    let column = |name: &str, ty: LogicalType, from: JoinColumn| (Column::new(name, ty, true), from);
    let (columns, origins) = [
        column("k", LogicalType::String, JoinColumn::Key(0)),
        column("v", LogicalType::Int64, JoinColumn::Left("v".into())),
        column("t", LogicalType::Int64, JoinColumn::Left("t".into())),
        column("right_v", LogicalType::Int64, JoinColumn::Right("v".into())),
        column("right_t", LogicalType::Int64, JoinColumn::Right("t".into())),
    ]
    .into_iter()
    .unzip();
    let changelog = matches!(scope, JoinScope::Standing { .. });
    let keys = || vec!["k".to_owned()];
    let join = JoinSpec { kind, left_keys: keys(), right_keys: keys(), scope, right: input(), columns: origins };
    spec(uid, OperatorKind::Join(Box::new(join)), StreamSchema { changelog, ..StreamSchema::append(columns) })
}

/// The best rows of windows.
pub fn best_of(uid: &str, window: TopWindow) -> OperatorSpec {
    let place = Some("place".into());
    top(uid, TopSpec { order: vec![by_value()], limit: 2, place, window: Some(window), changelog_full: false, ..arrived() })
}

/// The first ten rows of each key.
fn arrived() -> TopSpec {
    TopSpec {
        keys: vec!["k".into()],
        order: Vec::new(),
        newest_wins: false,
        limit: 10,
        place: None,
        changelog_full: true,
        ttl_ms: None,
        window: None,
        with_ties: false,
        local: false,
    }
}

fn top(uid: &str, top: TopSpec) -> OperatorSpec {
    let place = top.place.as_ref().map(|place| Column::new(place, LogicalType::Int64, false));
    let window: &[&str] = if top.window.is_some() { &["window_start", "window_end", "window_time"] } else { &[] };
    let window = window.iter().map(|name| Column::new(*name, LogicalType::Timestamp, false));
    let columns = input().columns.into_iter().chain(place).chain(window).collect();
    let output = StreamSchema { changelog: top.is_changelog(), ..StreamSchema::append(columns) };
    spec(uid, OperatorKind::Top(top), output)
}
