//! Joins: where they stand in a plan, and every way in which two sides do not fit.

use super::*;

/// Two streams with keys, times and a value; a changelog; a stream in windows.
fn joined(transforms: &str, last: &str) -> String {
    format!(
        "
version: 1
name: joined
sources:
  people: {{ rows: {{ columns: {{ id: INT64 NOT NULL, name: STRING, at: TIMESTAMP, age: INT32 }} }}, watermark: {{ column: at }} }}
  sales: {{ rows: {{ columns: {{ id: INT64 NOT NULL, seller: INT64, price: INT64, at: TIMESTAMP, tags: LIST(STRING) }} }}, watermark: {{ column: at }} }}
  timeless: {{ rows: {{ columns: {{ seller: INT64 NOT NULL, x: INT64 }} }} }}
transforms:
  totals: {{ inputs: [sales], key_by: [seller], aggregate: {{ n: count(*) }} }}
  hourly: {{ inputs: [sales], key_by: [seller], window: {{ tumbling: {{ size: 1h }} }}, aggregate: {{ n: count(*) }} }}
{transforms}
sinks:
  out: {{ inputs: [{last}], file: {{}} }}
  rest: {{ inputs: [totals], file: {{}} }}
  more: {{ inputs: [hourly], file: {{}} }}
  last: {{ inputs: [timeless], file: {{}} }}
  first: {{ inputs: [people], file: {{}} }}
"
    )
}

#[test]
fn plans_of_joins() {
    let cases = [
        "  j: { inputs: [people], join: { with: [sales], kind: semi, on: { id: seller } }, window: { tumbling: { size: 10s } }, select: { id: id, name: name } }",
        "  j: { inputs: [people], join: { with: [sales], kind: left, on: { id: seller }, within: { from: -5s, to: 1h }, take: { sale: id, price: price } }, select: { name: name, price: price, at: at } }",
        "  j: { inputs: [hourly], join: { with: [hourly], kind: full, on: [seller], take: { m: n } }, window: same }",
        "  j: { inputs: [people], join: { with: [timeless], on: { id: seller } }, window: { tumbling: { size: 10s }, time: processing }, select: { id: id, x: x } }",
        "  j: { inputs: [people], join: { with: [sales], kind: full, on: { id: seller }, take: { price: price } }, window: { sliding: { size: 10s, slide: 4s, offset: 1s } }, select: { name: name, price: price, from: window_start } }",
        "  j: { inputs: [people], join: { with: [sales], kind: anti, on: { id: seller } }, window: { cumulate: { size: 1d, step: 6h }, time_zone: Europe/Berlin }, select: { id: id, at: window_time } }",
        "  j: { inputs: [people], join: { with: [timeless], on: { id: seller } }, window: { sliding: { size: 1m, slide: 10s }, time: processing }, select: { id: id, x: x } }",
    ];
    let mut text = String::new();
    for case in cases {
        for parallelism in [1, 2] {
            text.push_str(&explain(&planned(&joined(case, "j"), parallelism)));
            text.push('\n');
        }
    }
    golden("joins", &text);
}

#[test]
fn sides_that_do_not_fit_are_refused() {
    let within = "within: { to: 1s }";
    let cases = [
        (
            format!("inputs: [people], join: {{ with: [sales], on: {{ idd: seller }}, {within} }}"),
            "join.on: left side: column \"idd\" not found",
        ),
        (
            format!("inputs: [people], join: {{ with: [sales], on: {{ id: sellr }}, {within} }}"),
            "join.on: right side: column \"sellr\" not found",
        ),
        (
            format!("inputs: [people], join: {{ with: [sales], on: {{ name: tags }}, {within} }}"),
            "right side: \"tags\" is LIST(STRING); a key is a plain value",
        ),
        (
            format!("inputs: [people], join: {{ with: [sales], on: {{ age: seller }}, {within}, take: {{ price: price }} }}"),
            "\"age\" is INT32 on the left side and \"seller\" INT64 on the right; cast one in a `select` before",
        ),
        (
            format!(
                "inputs: [people], join: {{ with: [sales], on: {{ id: seller, age: seller }}, {within}, take: {{ price: price }} }}"
            ),
            "right column \"seller\" stands here twice",
        ),
        (
            format!("inputs: [people], join: {{ with: [sales], on: {{ id: seller }}, {within}, take: {{ at: at }} }}"),
            "join.take.at: both sides have a column \"at\"; name what comes of the right side, as in `take: { right_at: at }`",
        ),
        (
            format!("inputs: [people], join: {{ with: [sales], on: {{ id: seller }}, {within}, take: {{ at2: att }} }}"),
            "join.take.at2: right side: column \"att\" not found",
        ),
        (
            format!("inputs: [people], join: {{ with: [timeless], on: {{ id: seller }}, {within} }}"),
            "join.within: an interval needs event time on both sides, and the right one has none: source \"timeless\" sets no `watermark`",
        ),
        (
            "inputs: [people], join: { with: [timeless], on: { id: seller } }, window: { tumbling: { size: 1s } }".into(),
            "j.window: a window needs event time on both sides, and the right one has none: source \"timeless\" sets no `watermark`; or \
             write `time: processing`, for windows of when rows come in",
        ),
        (
            "inputs: [people], join: { with: [hourly], on: { id: seller } }, window: same".into(),
            "passed on unchanged; the left side has none",
        ),
        (
            "inputs: [people], join: { with: [hourly], on: { id: seller } }, window: global".into(),
            "a join in one window over everything would keep every row",
        ),
        (
            "inputs: [people], join: { with: [hourly], on: { id: seller } }, window: { session: { gap: 1m } }".into(),
            "j.window: rows meet in tumbling, sliding or cumulating windows, in the `same` window, or `within: { from, to }` of each other; \
             for the rows of both sides in a session write a `CoGroupFunction` (`process` beside `with`)",
        ),
        (
            "inputs: [people], join: { with: [hourly], on: { id: seller } }, window: { count: { size: 3 } }".into(),
            "j.window: rows of two sides have no common count; rows meet in windows of time",
        ),
        (
            "inputs: [people], join: { with: [timeless], on: { id: seller } }, window: { sliding: { size: 2s, slide: 1s } }"
                .into(),
            "j.window: a window needs event time on both sides, and the right one has none: source \"timeless\" sets no `watermark`; or \
             write `time: processing`",
        ),
        (
            "inputs: [people], join: { with: [totals], on: { id: seller } }, window: { cumulate: { size: 2s, step: 1s } }".into(),
            "the right side is a changelog",
        ),
        (
            "inputs: [people], join: { with: [totals], on: { id: seller } }, window: { tumbling: { size: 1s } }".into(),
            "the right side is a changelog",
        ),
    ];
    for (clauses, part) in cases {
        let errors = planned_at(&joined(&format!("  j: {{ {clauses} }}"), "j"), 2).expect_err(&clauses);
        assert!(errors.contains(part), "{clauses}\n{errors}");
    }
}

#[test]
fn the_event_time_of_a_join_is_that_of_the_rows_that_are_always_there() {
    let time = |kind: &str, rest: &str| {
        let join = format!(
            "  j: {{ inputs: [people], join: {{ with: [sales], kind: {kind}, on: {{ id: seller }}, within: {{ to: 1s }}{rest} }} }}"
        );
        let plan = planned(&joined(&join, "j"), 1);
        let join = plan.vertices.iter().find(|vertex| vertex.name == "j -> out").expect("the join begins a vertex");
        join.operators[0].output.event_time.clone()
    };
    let take = ", take: { price: price, sold: at }";
    assert_eq!(["inner", "left"].map(|kind| time(kind, take)), [Some("at".into()), Some("at".into())]);
    assert_eq!(["semi", "anti"].map(|kind| time(kind, "")), [Some("at".into()), Some("at".into())]);
    assert_eq!(
        [time("right", take), time("right", ", take: { price: price }"), time("full", take)],
        [Some("sold".into()), None, None]
    );
}

/// Rows are kept with when they came in; nothing of it is an event time, or late.
#[test]
fn joins_in_windows_of_processing_time_need_no_event_time_and_give_none() {
    let by_clock = "  j: { inputs: [people], join: { with: [timeless], on: { id: seller } }, window: { tumbling: { size: 10s }, time: processing } }";
    let plan = planned(&joined(by_clock, "j"), 2);
    let join = plan.vertices.iter().find(|vertex| vertex.name == "j -> out").expect("the join begins a vertex");
    let join = &join.operators[0];
    assert_eq!((join.output.event_time.as_deref(), join.sides.len()), (None, 0));
    assert_eq!(join.state_names(), ["left", "right", "processing_time", "row_numbers"]);
    let OperatorKind::Join(spec) = &join.kind else { panic!("it is a join") };
    let values = spec.state(JoinSide::Right, &spec.right).schema.values;
    assert_eq!(values.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["x", "_arrived"]);

    let refused = |transforms: &str, part: &str| {
        let errors = planned_at(&joined(transforms, "k"), 2).expect_err(transforms);
        assert!(errors.contains(part), "{transforms}\n{errors}");
    };
    let why = "transform \"j\" has windows of processing time, and their results have no event time";
    for window in ["same", "{ tumbling: { size: 1m } }"] {
        refused(&format!("{by_clock}\n  k: {{ inputs: [j], window: {window}, aggregate: {{ n: count(*) }} }}"), why);
    }
    refused(&format!("{by_clock}\n  k: {{ inputs: [j/late_left] }}"), "late_left");
    refused(
        "  came: { inputs: [timeless], select: { seller: seller, _arrived: x } }\n  k: { inputs: [people], join: { with: [came], on: { id: \
         seller } }, window: { tumbling: { size: 1s }, time: processing } }",
        "k.window: \"_arrived\" is what the state calls when a row of a window of processing time came in, and the right input",
    );
}
