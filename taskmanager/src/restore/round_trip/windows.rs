//! The windows of the round trip that are not just over once: those that give results early and late, of rows, of a zone's and of the
//! process's clock; and functions that get a whole window.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::{
    AggregateSpec, Evict, FiringSpec, OperatorKind, OperatorSpec, ProcessSpec, ProcessWindow, SecondInput, SessionGap, Trigger,
    WindowSpec,
};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_engine::function::{CoGroupFunction, FunctionError, Output, RegisteredFunction, Rows, WindowFunction, WindowGroup};

use super::functions::functions;
use super::specs::{WINDOW_MS, aggregate, input, spec};

pub const WHOLE: &str = "whole";
const PAIRED: &str = "paired";

/// Millisecond of processing time between two feeds, twice.
const CLOCK_WINDOW_MS: i64 = 1_800;

fn tumbling() -> WindowSpec {
    WindowSpec::Tumbling { size_ms: WINDOW_MS, offset_ms: 0 }
}

fn sliding() -> WindowSpec {
    WindowSpec::Sliding { size_ms: 300, slide_ms: 100, offset_ms: 0 }
}

fn session() -> WindowSpec {
    WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 100 } }
}

/// An aggregation with something changed.
pub fn with(uid: &str, window: WindowSpec, change: impl FnOnce(&mut AggregateSpec)) -> OperatorSpec {
    let mut spec = aggregate(uid, window);
    let OperatorKind::Aggregate(aggregate) = &mut spec.kind else { unreachable!("it is one") };
    change(aggregate);
    spec.output.changelog = aggregate.is_changelog();
    spec
}

fn early(accumulate: bool) -> Option<FiringSpec> {
    let rows = |rows| Some(Trigger { every_ms: None, rows: Some(rows) });
    Some(FiringSpec { early: rows(2), lateness_ms: 300, late: rows(3), accumulate })
}

/// A function in tumbling windows.
pub fn windowed(uid: &str, name: &str, second: Option<SecondInput>, evict: Option<Evict>) -> OperatorSpec {
    let function = functions()[name].declaration().clone();
    let times = ["window_start", "window_end", "window_time"].map(|name| Column::new(name, LogicalType::Timestamp, false));
    let key = input().columns[0].clone();
    let columns = std::iter::once(key.clone()).chain(times).chain(function.outputs.clone()).collect();
    let output = StreamSchema { event_time: Some("window_time".into()), ..StreamSchema::append(columns) };
    let window = Some(ProcessWindow::once(tumbling(), evict));
    let process = ProcessSpec { function, options: Default::default(), keys: vec![key], broadcast: None, second, window };
    spec(uid, OperatorKind::Process(Box::new(process)), output)
}

/// The operators.
pub fn specs() -> Vec<OperatorSpec> {
    let second = SecondInput { schema: input(), keys: vec!["k".into()] };
    vec![
        with("early", tumbling(), |spec| spec.firing = early(true)),
        with("parts", tumbling(), |spec| spec.firing = early(false)),
        with("early_sliding", sliding(), |spec| spec.firing = early(true)),
        with("early_sessions", session(), |spec| spec.firing = early(true)),
        with("chunks", WindowSpec::Count { size: 4, slide: 2 }, |_| ()),
        with("zoned", tumbling(), |spec| spec.time.time_zone = Some("Europe/Berlin".into())),
        with("by_clock", WindowSpec::Tumbling { size_ms: CLOCK_WINDOW_MS, offset_ms: 0 }, |spec| spec.time.processing = true),
        with("sessions_by_clock", WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: 1_000 } }, |spec| {
            spec.time.processing = true;
        }),
        windowed(WHOLE, WHOLE, None, Some(Evict::Rows { rows: 3 })),
        windowed(PAIRED, PAIRED, Some(second), None),
    ]
}

/// The functions.
pub fn registered() -> Vec<RegisteredFunction> {
    let whole = FunctionDeclaration::new(WHOLE, FunctionKind::Window)
        .input("v", LogicalType::Int64)
        .output("rows", LogicalType::Int64)
        .output("last", LogicalType::Int64);
    let paired = FunctionDeclaration::new(PAIRED, FunctionKind::CoGroup)
        .input("v", LogicalType::Int64)
        .second_input("t", LogicalType::Int64)
        .output("first", LogicalType::Int64)
        .output("second", LogicalType::Int64);
    let registered = [RegisteredFunction::window(whole, |_| Ok(Whole)), RegisteredFunction::co_group(paired, |_| Ok(Paired))];
    registered.map(|function| function.expect("its declaration fits it")).into()
}

/// The number of rows, and the last one's value.
struct Whole;

impl WindowFunction for Whole {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        let values = rows.column::<i64>("v")?.values();
        out.push((rows.len() as i64, values.last().copied().unwrap_or_default()))
    }
}

/// The sum of the values of the first input, and of the times of the second.
struct Paired;

impl CoGroupFunction for Paired {
    fn co_group(
        &mut self,
        _group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (first, second) = (first.column::<i64>("v")?, second.column::<i64>("t")?);
        out.push((first.values().iter().sum::<i64>(), second.values().iter().sum::<i64>()))
    }
}
