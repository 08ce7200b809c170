//! Aggregates in windows with a trigger of a user: how they are planned, and what does not fit.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::{AggregatePhase, AggregateSpec, OperatorSpec};
use levada_common::state_schema::{StateDeclaration, StateSchema, StateShape};

use super::process::{functions, plan_with};
use super::*;

/// Those of functions, and one that keeps something.
fn triggers() -> Declarations {
    let mut declarations = functions();
    let state = |name: &str| StateDeclaration {
        name: name.into(),
        kind: levada_common::checkpoint::StateKind::Keyed,
        schema: StateSchema { shape: StateShape::Value, windowed: true, ..StateSchema::default() },
    };
    let keeping = |name: &str, kept: &str| FunctionDeclaration {
        states: vec![state(kept)],
        ..FunctionDeclaration::new(name, FunctionKind::Trigger)
    };
    let declared = declarations.functions.get_or_insert_default();
    for function in [keeping("keeping", "seen"), keeping("colliding", "panes")] {
        declared.insert(function.name.clone(), function);
    }
    declarations
}

fn document(watermark: &str, window: &str, aggregate: &str) -> String {
    let t = format!("  t: {{ inputs: [bids], key_by: [bidder], window: {window}, aggregate: {{ {aggregate} }} }}");
    bids("triggers", watermark, &t, "t").replace("hash: [price]", "hash: [bidder]")
}

fn aggregate_of(plan: &Plan) -> (&OperatorSpec, &AggregateSpec) {
    let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
    let found: Vec<_> = operators
        .filter_map(|operator| match &operator.kind {
            OperatorKind::Aggregate(spec) => Some((operator, spec)),
            _ => None,
        })
        .collect();
    assert_eq!(found.len(), 1, "rows go over the exchange whole: {}", explain(plan));
    found[0]
}

#[test]
fn an_aggregate_with_a_trigger_takes_rows_and_gives_changes() {
    let clock = "time: processing, trigger: timely";
    for (window, states, text) in [
        (
            "{ tumbling: { size: 10s }, trigger: { function: eager, options: { rows: 3 } } }",
            &["panes", "watermark", "windows", "_timers.event", "given"][..],
            "tumbling 10 s, trigger \"eager\"",
        ),
        (
            "{ sliding: { size: 10s, slide: 5s }, trigger: keeping, allowed_lateness: 5s }",
            &["panes", "watermark", "windows", "seen", "given"],
            "sliding 10 s by 5 s up to 5 s late with each batch, trigger \"keeping\"",
        ),
        (
            "{ cumulate: { size: 10s, step: 5s }, trigger: keeping, accumulate: false }",
            &["panes", "watermark", "windows", "seen"],
            "cumulating 10 s by 5 s in parts, trigger \"keeping\"",
        ),
        (
            "{ session: { gap: auction }, trigger: joining }",
            &["sessions", "session_bounds", "watermark", "windows", "given"],
            "session gap of auction ms, trigger \"joining\"",
        ),
        (
            "{ global: {}, trigger: keeping }",
            &["aggregate", "watermark", "windows", "seen", "given"],
            "global window, trigger \"keeping\"",
        ),
        (
            &format!("{{ session: {{ gap: 1s }}, {clock} }}"),
            &["sessions", "session_bounds", "processing_time", "windows", "_timers.processing", "given"],
            "session gap 1 s of processing time, trigger \"timely\"",
        ),
    ] {
        let by_clock = window.contains("processing");
        let calls = "n: count(*), large: count(*) filter (where auction > 3), most: max(auction), odd: stddev(auction)";
        let document = document(if by_clock { ", watermark: none" } else { "" }, window, calls);
        let plan = plan_with(&document, &triggers()).unwrap_or_else(|errors| panic!("{window}: {errors}"));
        check(&plan);
        let (operator, spec) = aggregate_of(&plan);
        let in_parts = window.contains("accumulate");
        assert_eq!((spec.phase, operator.output.changelog), (AggregatePhase::Single, !in_parts), "{window}");
        assert_eq!(operator.state_names(), states, "{window}");
        let trigger = &spec.trigger.as_ref().expect("it has one").part.function;
        assert!(trigger.inputs.iter().all(|column| operator.input.column(&column.name).is_some()), "{window}");
        let most = operator.output.column("most").expect("it is a result");
        assert_eq!(most.nullable, window.contains("session"), "{window}: a session that was purged may be taken back");
        let explained = explain(&plan);
        assert!(explained.contains(text), "{window}: {explained}");
    }
}

#[test]
fn what_a_trigger_of_an_aggregate_cannot_be_is_said() {
    let refused = |watermark: &str, window: &str, aggregate: &str, expected: &str| {
        let errors = plan_with(&document(watermark, window, aggregate), &triggers()).expect_err(window);
        assert!(errors.contains(expected), "{window}: {errors}");
    };
    let no_time = ", watermark: none";
    for (watermark, window, expected) in [
        (
            "",
            "{ tumbling: { size: 1s }, early: { rows: 3 }, trigger: keeping }",
            "transforms.t.window: the `trigger` says when the window gives its result; leave `early` and `late` out",
        ),
        (
            "",
            "{ tumbling: { size: 1s }, allowed_lateness: 1s, late: { rows: 3 }, trigger: keeping }",
            "leave `early` and `late` out, or the trigger",
        ),
        ("", "{ count: { size: 3 }, trigger: keeping }", "transforms.t.window.trigger: a count window gives its result when"),
        ("", "{ session: { gap: 1s }, trigger: keeping }", "trigger \"keeping\" does not merge windows, and sessions become one"),
        (
            "",
            "{ session: { gap: 1s }, trigger: joining, accumulate: false }",
            "transforms.t.window.accumulate: a session grows with its rows",
        ),
        (
            "",
            "{ global: {}, trigger: keeping, allowed_lateness: 1s }",
            "transforms.t.window.allowed_lateness: a global window is over at the end of the data",
        ),
        (no_time, "{ global: {}, trigger: eager }", "transforms.t.window.trigger: function \"eager\" sets timers of event time"),
        (
            "",
            "{ tumbling: { size: 1s }, time: processing, trigger: eager }",
            "trigger \"eager\" sets timers of event time, and these windows go by processing time",
        ),
        ("", "{ tumbling: { size: 1s }, trigger: outliers }", "\"outliers\" is registered as evictor, not as trigger"),
        ("", "{ tumbling: { size: 1s }, trigger: eagre }", "no TaskManager has a trigger \"eagre\"; did you mean \"eager\"?"),
        (
            "",
            "{ tumbling: { size: 1s }, trigger: colliding }",
            "trigger \"colliding\" has a state \"panes\", which is what the aggregation calls its own (panes, given)",
        ),
    ] {
        refused(watermark, window, "n: count(*)", expected);
    }
    let tumbling = "{ tumbling: { size: 1s }, trigger: keeping }";
    refused(
        "",
        tumbling,
        "n: count(distinct auction)",
        "transforms.t.window.trigger: DISTINCT is not supported with a `trigger`",
    );

    let changes = "  t: { inputs: [bids], key_by: [bidder], window: { tumbling: { size: 1s }, trigger: keeping }, aggregate: { n: count(*) } }
  u: { inputs: [t], split: { some: n > 2 } }";
    let document = bids("triggers", "", changes, "u/some").replace("hash: [price]", "hash: [bidder]");
    let errors = plan_with(&document, &triggers()).expect_err("its updates are not full");
    assert!(errors.contains("a window with a `trigger`, which does not give the rows that its updates replace"), "{errors}");
}

#[test]
fn state_on_the_heap_is_warned_of() {
    let document = document("", "{ tumbling: { size: 1s }, trigger: keeping }", "n: count(*)");
    let settings = "settings: { state: { backend: rocksdb }, checkpoint: { dir: file:///ck } }\nsources:";
    let plan = plan_with(&document.replace("sources:", settings), &triggers()).unwrap_or_else(|errors| panic!("{errors}"));
    let expected = "a window with a trigger keeps what its rows have come to on the heap";
    assert!(plan.warnings.iter().any(|warning| warning.contains(expected)), "{:?}", plan.warnings);
}
