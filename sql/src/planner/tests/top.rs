//! Regular joins, running top-N and deduplication: what they give, and what they refuse.

use super::*;

fn job(transforms: &str, last: &str) -> String {
    format!(
        "
version: 1
name: best
sources:
  rows: {{ rows: {{ columns: {{ a: INT64, k: STRING, ts: TIMESTAMP, l: LIST(STRING) }} }}, watermark: {{ column: ts }} }}
  others: {{ rows: {{ columns: {{ k: STRING, x: INT64 }} }} }}
transforms:
  totals: {{ inputs: [rows], key_by: [k], aggregate: {{ n: count(*) }} }}
  pairs: {{ inputs: [rows], key_by: [k, a], aggregate: {{ n: count(*) }} }}
{transforms}
sinks:
  out: {{ inputs: [{last}], file: {{}} }}
  rest: {{ inputs: [totals], file: {{}} }}
  more: {{ inputs: [pairs], file: {{}} }}
  last: {{ inputs: [others], file: {{}} }}
"
    )
}

#[test]
fn plans_of_what_stands() {
    let cases = [
        "  t: { inputs: [rows], key_by: [k], order_by: [a desc, ts], limit: 3, rank: place, select: { k: k, place: place, a: a } }",
        "  t: { inputs: [rows], key_by: [k], order_by: [a desc], limit: 3, ttl: 1h }",
        "  t: { inputs: [rows], order_by: [a], limit: 1, changelog: full }",
        "  t: { inputs: [rows], key_by: [k], deduplicate: first }\n  u: { inputs: [t], key_by: [k], window: { tumbling: { size: 1s } }, aggregate: { n: count(*) } }",
        "  t: { inputs: [rows], key_by: [k], deduplicate: { keep: last, by: event_time }, ttl: 1d }",
        "  t: { inputs: [rows], join: { with: [others], on: [k] }, ttl: 1h, select: { a: a, x: x } }",
        "  t: { inputs: [rows], join: { with: [others], kind: full, on: [k] } }",
        "  t: { inputs: [pairs], join: { with: [totals], kind: left, on: [k], take: { all: n } } }",
    ];
    let mut text = String::new();
    for case in cases {
        let last = if case.contains("  u: ") { "u" } else { "t" };
        text.push_str(&explain(&planned(&job(case, last), 2)));
        text.push('\n');
    }
    golden("standing", &text);
}

/// What cannot be among the best does not go over the exchange: where there is one, no key, and no one reads late rows.
#[test]
fn the_best_rows_of_windows_without_a_key_are_found_in_two_phases() {
    let phases = |clauses: &str, parallelism: u32| {
        let plan = planned(
            &job(&format!("  t: {{ inputs: [rows], {clauses}, order_by: [a desc], limit: 3, rank: place }}"), "t"),
            parallelism,
        );
        check(&plan);
        let of_vertex = |vertex: &levada_common::plan::Vertex| {
            let tops = vertex.operators.iter().filter_map(|operator| match &operator.kind {
                OperatorKind::Top(spec) => Some((vertex.parallelism, spec.local, operator.state_names().len())),
                _ => None,
            });
            tops.collect::<Vec<_>>()
        };
        plan.vertices.iter().flat_map(of_vertex).collect::<Vec<_>>()
    };
    let tumbling = "window: { tumbling: { size: 10s } }";
    assert_eq!(phases(tumbling, 2), [(2, true, 0), (1, false, 3)]);
    assert_eq!(phases(tumbling, 1), [(1, false, 3)]);
    assert_eq!(phases(&format!("key_by: [k], {tumbling}"), 2), [(2, false, 3)]);
    let late = "\n  u: { inputs: [t/late], select: { a: a } }";
    let document = job(&format!("  t: {{ inputs: [rows], {tumbling}, order_by: [a desc], limit: 3 }}{late}"), "t");
    let plan = planned(&document.replace("sinks:", "sinks:\n  late: { inputs: [u], file: {} }"), 2);
    let locals = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
    assert!(!locals.into_iter().any(|operator| matches!(&operator.kind, OperatorKind::Top(spec) if spec.local)));
    let text = explain(&planned(&job(&format!("  t: {{ inputs: [rows], {tumbling}, order_by: [a desc], limit: 3 }}"), "t"), 2));
    assert!(text.contains("local order_by of \"t\": the first 3, no key, tumbling 10 s, in order of a desc, arrival"), "{text}");
}

/// Rows are in the window that is open when they come, need no time of their own, and what comes of them has none.
#[test]
fn the_best_rows_of_windows_of_processing_time_need_no_event_time_and_give_none() {
    let window = "window: { tumbling: { size: 10s }, time: processing }, order_by: [x desc], limit: 3, rank: place";
    let best = format!("  t: {{ inputs: [others], key_by: [k], {window} }}");
    let plan = planned(&job(&best, "t"), 2);
    check(&plan);
    let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
    let top = operators.into_iter().find(|operator| operator.uid.as_str() == "t").expect("it is planned");
    assert_eq!(top.state_names(), ["top", "processing_time", "placed_by"]);
    assert_eq!((&top.output.event_time, top.sides.len()), (&None, 0));
    let text = explain(&plan);
    let says = "the first 3, by k, tumbling 10 s of processing time, in order of x desc, arrival, place as place";
    assert!(text.contains(says), "{text}");
    let rows = format!("  t: {{ inputs: [rows], {} }}", window.replace('x', "a"));
    let text = explain(&planned(&job(&rows, "t"), 2));
    assert!(text.contains("local order_by of \"t\": the first 3, no key, tumbling 10 s of processing time"), "{text}");
    let refused = |transforms: String, part: &str| {
        let errors = planned_at(&job(&transforms, "u"), 2).expect_err(part);
        assert!(errors.contains(part), "{errors}");
    };
    let why = "transform \"t\" has windows of processing time, and their results have no event time";
    for window in ["same", "{ tumbling: { size: 1m } }"] {
        refused(format!("{best}\n  u: {{ inputs: [t], key_by: [k], window: {window}, order_by: [x], limit: 1 }}"), why);
    }
    refused(format!("{best}\n  u: {{ inputs: [t/late] }}"), "transforms.u.inputs");
    let named = "  t: { inputs: [others], select: { k: k, _arrived: x } }";
    refused(
        format!("{named}\n  u: {{ inputs: [t], {} }}", window.replace("x desc", "_arrived")),
        "transforms.u.window: \"_arrived\" is what the state calls when a row of a window of processing time came in",
    );
}

/// A row is kept in each of its windows, which is no part of its own columns.
#[test]
fn the_best_rows_of_windows_that_overlap_and_of_a_time_zone_are_planned() {
    let text = |window: &str| {
        let plan = planned(&job(&format!("  t: {{ inputs: [rows], window: {window}, order_by: [a desc], limit: 3 }}"), "t"), 2);
        check(&plan);
        explain(&plan)
    };
    let sliding = text("{ sliding: { size: 10s, slide: 4s }, time: processing }");
    for half in ["local order_by", "order_by"] {
        let says =
            format!("{half} of \"t\": the first 3, no key, sliding 10 s by 4 s of processing time, in order of a desc, arrival");
        assert!(sliding.contains(&says), "{sliding}");
    }
    let days = text("{ cumulate: { size: 1d, step: 1h }, time_zone: Europe/Berlin }");
    assert!(days.contains("the first 3, no key, cumulating 1440 min by 60 min in Europe/Berlin, in order of a desc"), "{days}");
    assert!(days.contains("event time window_time"), "{days}");
    assert!(text("{ tumbling: { size: 1d }, time_zone: Europe/Berlin }").contains("tumbling 1440 min in Europe/Berlin"));
    let refused = |transforms: &str, part: &str| {
        let errors = planned_at(&job(transforms, "t"), 2).expect_err(part);
        assert!(errors.contains(part), "{errors}");
    };
    let named = "  s: { inputs: [rows], select: { k: k, a: a, ts: ts, _window_end: ts } }\n";
    refused(
        &format!("{named}  t: {{ inputs: [s], window: {{ sliding: {{ size: 10s, slide: 4s }} }}, order_by: [a], limit: 1 }}"),
        "transforms.t.window: \"_window_end\" is what the state calls a bound of the window that a row is kept in",
    );
    refused(
        "  t: { inputs: [rows], key_by: [k], window: { session: { gap: 10s } }, order_by: [a], limit: 1 }",
        "transforms.t.window: the best rows are found in tumbling, sliding and cumulating windows",
    );
    refused(
        "  t: { inputs: [others], window: { cumulate: { size: 10s, step: 5s } }, order_by: [x], limit: 1 }",
        "needs event time",
    );
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let cases = [
        ("inputs: [rows], key_by: [k], order_by: [b], limit: 1", "order_by: column \"b\" not found"),
        ("inputs: [rows], key_by: [k], order_by: [l], limit: 1", "cannot order by \"l\", which is LIST(STRING)"),
        ("inputs: [rows], key_by: [k], order_by: [a], limit: 1, rank: k", "rank: the input has a column \"k\""),
        ("inputs: [totals], key_by: [k], order_by: [n], limit: 1", "`order_by` takes rows, not changes"),
        ("inputs: [others], key_by: [k], deduplicate: { keep: last, by: event_time }", "there is no event time to go by"),
        ("inputs: [totals], key_by: [k], deduplicate: last", "`deduplicate` takes rows, not changes"),
        (
            "inputs: [rows], join: { with: [totals], on: { a: n }, take: { m: n } }",
            "and its \"n\" may change; join on columns of its key",
        ),
    ];
    for (clauses, part) in cases {
        let errors = planned_at(&job(&format!("  t: {{ {clauses} }}"), "t"), 2).expect_err(clauses);
        assert!(errors.contains(part), "{clauses}\n{errors}");
    }
    let loose =
        "  s: { inputs: [rows], key_by: [k], order_by: [a], limit: 3 }\n  t: { inputs: [s], join: { with: [others], on: [k] } }";
    let errors = planned_at(&job(loose, "t"), 2).expect_err(loose);
    assert!(errors.contains("rows have no key of their own"), "{errors}");
}
