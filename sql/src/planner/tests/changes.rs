//! Aggregates over changelogs, `distinct` and `filter`: the plans, and what is refused by name.

use levada_common::ids::Uid;
use levada_common::plan::OperatorKind;

use super::*;

fn job(transforms: &str, last: &str) -> String {
    format!(
        "
version: 1
name: changes
sources:
  rows: {{ rows: {{ columns: {{ a: INT64, k: STRING, ts: TIMESTAMP, l: LIST(STRING) }} }}, watermark: {{ column: ts }} }}
transforms:
  counts: {{ inputs: [rows], key_by: [k], aggregate: {{ n: count(*), most: max(a) }} }}
  best: {{ inputs: [rows], key_by: [k], order_by: [a desc], limit: 3 }}
{transforms}
sinks:
  out: {{ inputs: [{last}], file: {{}} }}
  rest: {{ inputs: [counts], file: {{}} }}
  more: {{ inputs: [best], file: {{}} }}
"
    )
}

#[test]
fn plans_of_what_counts_values_and_takes_changes() {
    let cases = [
        "  t: { inputs: [counts], key_by: [n], aggregate: { keys: count(*), least: min(k), total: sum(most), mean: avg(most) } }",
        "  t: { inputs: [best], aggregate: { n: count(distinct a), spread: max(a - 1) }, changelog: full }",
        "  t: { inputs: [counts], where: n > 2 and k <> 'x', key_by: [n], aggregate: { m: sum(most) filter (where most > 1) }, having: m > 5 }",
        "  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) filter (where a > 1), d: count(distinct a), e: sum(distinct a) filter (where a > 2) } }",
        "  t: { inputs: [rows], key_by: [k], window: { tumbling: { size: 1s } }, aggregate: { d: count(distinct a), m: max(distinct a) } }",
        "  t: { inputs: [rows], window: global, aggregate: { d: avg(distinct a) } }",
        "  t: { inputs: [rows], key_by: [k], window: { sliding: { size: 3s, slide: 1s } }, aggregate: { d: count(distinct a), n: count(*) } }",
        "  t: { inputs: [rows], key_by: [k], window: { sliding: { size: 3s, slide: 1s }, early: { every: 1s }, allowed_lateness: 5s }, aggregate: { d: count(distinct a) } }",
        "  t: { inputs: [rows], key_by: [k], window: { tumbling: { size: 3s }, allowed_lateness: 5s }, aggregate: { d: count(distinct a) } }",
        "  t: { inputs: [rows], key_by: [k], window: { tumbling: { size: 3s }, time: processing }, aggregate: { d: count(distinct a) } }",
        "  t: { inputs: [rows], key_by: [k], window: { cumulate: { size: 3s, step: 1s }, time: processing, time_zone: Europe/Berlin }, aggregate: { d: count(distinct a) } }",
        "  t: { inputs: [rows], key_by: [k], window: { session: { gap: 2s } }, aggregate: { d: count(distinct a), e: avg(distinct a + 1), n: count(*) } }",
        "  t: { inputs: [rows], window: { count: { size: 5, slide: 2 } }, aggregate: { d: sum(distinct a) } }",
        "  t: { inputs: [rows], key_by: [k], aggregate: { s: stddev(a), c: \"corr(a, a * 2) filter (where a > 1)\", l: \"string_agg(k, '; ' order by a desc)\" } }",
        "  e: { inputs: [rows], key_by: [k], window: { tumbling: { size: 1h }, early: { every: 1s } }, aggregate: { n: count(*) } }\n  t: { inputs: [e], key_by: [k], aggregate: { s: sum(n), windows: count(*) } }",
    ];
    let mut text = String::new();
    for case in cases {
        text.push_str(&explain(&planned(&job(case, "t"), 2)));
        text.push('\n');
    }
    golden("changes", &text);
}

#[test]
fn a_reader_that_needs_replaced_rows_gets_them() {
    let full = |transforms: &str| {
        let plan = planned(&job(transforms, "t"), 2);
        let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
        operators
            .filter(|operator| operator.uid.as_str() == "counts" && operator.output.changelog)
            .any(|operator| matches!(&operator.kind, OperatorKind::Aggregate(spec) if spec.changelog_full))
    };
    assert!(full("  t: { inputs: [counts], aggregate: { n: count(*) } }"));
    assert!(full("  t: { inputs: [counts], where: n > 1 }"));
    assert!(full("  t: { inputs: [counts], select: { n: n } }"));
    assert!(full(
        "  s: { inputs: [counts], select: { key: k, n: n } }\n  t: { inputs: [s], where: key > 'a', aggregate: { n: sum(n) } }"
    ));
    assert!(!full("  t: { inputs: [counts], where: k > 'a', select: { k: k, n: n } }"));
}

/// A condition on the key parts no update; one on more than it needs the rows that updates replace, and says so where there are none.
#[test]
fn a_split_of_changes_parts_updates() {
    let split = |condition: &str| {
        let plan =
            planned(&job(&format!("  t: {{ inputs: [counts], split: {{ some: {condition}, rest: else }} }}"), "t/some"), 2);
        let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators).map(|operator| &operator.kind);
        let parts = operators.clone().any(|kind| matches!(kind, OperatorKind::Split { parts_updates: true, .. }));
        let full = operators.clone().any(|kind| matches!(kind, OperatorKind::Aggregate(spec) if spec.changelog_full));
        (parts, full)
    };
    assert_eq!(split("k > 'a'"), (false, false));
    assert_eq!(split("n > 2"), (true, true));
}

/// Early and late results come with the rows that they replace where a reader needs these, as those of a running aggregate do.
#[test]
fn results_of_a_window_come_with_those_that_they_replace() {
    let full = |window: &str, reader: &str| {
        let early =
            format!("  e: {{ inputs: [rows], key_by: [k], window: {{ {window} }}, aggregate: {{ n: count(*), m: max(a) }} }}");
        let plan = planned(&job(&format!("{early}\n  t: {{ inputs: [e], {reader} }}"), "t"), 2);
        let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
        let fulls = operators.filter(|operator| operator.uid.as_str() == "e" && operator.output.changelog);
        let fulls: Vec<bool> = fulls
            .filter_map(|operator| match &operator.kind {
                OperatorKind::Aggregate(spec) => Some((spec.changelog_full, spec.result_column().is_some())),
                _ => None,
            })
            .map(|(full, keeps)| {
                assert_eq!(full, keeps, "{window}");
                full
            })
            .collect();
        assert_eq!(fulls.len(), 1, "{window}: the final half alone gives results");
        assert_eq!(plan.changelogs[&Uid::new("e")].full, fulls[0], "{window}, {reader}");
        fulls[0]
    };
    let windows = [
        "tumbling: { size: 1h }, early: { every: 1s }",
        "sliding: { size: 1h, slide: 10m }, allowed_lateness: 1h",
        "cumulate: { size: 1h, step: 10m }, early: { rows: 3 }",
        "global: {}, early: { rows: 3 }",
        "session: { gap: 1m }, early: { every: 1s }, allowed_lateness: 1h",
    ];
    for window in windows {
        for reader in
            ["key_by: [k], aggregate: { s: sum(n), best: max(m) }", "where: n > 2", "select: { n: n }", "split: { some: n > 2 }"]
        {
            assert!(full(window, reader), "{window}, {reader}");
        }
        assert!(!full(window, "where: k > 'a'"), "{window}");
    }
}

#[test]
fn what_cannot_be_taken_back_or_told_apart_is_refused_by_name() {
    let cases = [
        ("inputs: [counts], key_by: [n], aggregate: { x: first(k) }", "t.aggregate.x: first over a changelog is not supported"),
        ("inputs: [counts], key_by: [n], aggregate: { \"count(*)\": count(*) }", "is the name of what is kept over a changelog"),
        ("inputs: [counts], window: global, aggregate: { x: count(*) }", "t.window: a window over a changelog"),
        ("inputs: [rows], aggregate: { x: count(distinct l) }", "DISTINCT needs a plain value, and its argument is LIST(STRING)"),
        ("inputs: [rows], aggregate: { x: sum(a) filter (where a) }", "the condition of FILTER is INT64, not BOOLEAN"),
        ("inputs: [rows], aggregate: { x: sum(a) filter (where b > 1) }", "column \"b\" not found"),
    ];
    for (clauses, part) in cases {
        let errors = planned_at(&job(&format!("  t: {{ {clauses} }}"), "t"), 2).expect_err(clauses);
        assert!(errors.contains(part), "{clauses}\n{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn state_on_the_heap_beside_a_store_is_warned_of() {
    let cases = [
        ("inputs: [rows], window: { session: { gap: 2s } }, aggregate: { n: count(distinct a) }", None),
        ("inputs: [rows], window: { session: { gap: 2s }, early: { rows: 1 } }, aggregate: { n: count(*) }", None),
        ("inputs: [counts], aggregate: { n: count(*), s: sum(n), d: count(distinct n) }", None),
        (
            "inputs: [counts], aggregate: { n: max(n), d: count(distinct n) }",
            Some("an aggregate with min or max over a changelog without a key keeps its values on the heap"),
        ),
        ("inputs: [counts], key_by: [k], aggregate: { n: max(n), d: count(distinct n) }", None),
        ("inputs: [rows], window: { sliding: { size: 4s, slide: 2s } }, aggregate: { n: count(distinct a) }", None),
        ("inputs: [rows], window: { count: { size: 4 } }, aggregate: { n: count(*) }", None),
        ("inputs: [rows], window: { count: { size: 4 } }, aggregate: { n: count(distinct a) }", None),
        ("inputs: [rows], window: { count: { size: 4, slide: 2 } }, aggregate: { n: count(*) }", None),
        ("inputs: [rows], window: { session: { gap: 2s }, time: processing }, aggregate: { n: count(*) }", None),
    ];
    for (clauses, part) in cases {
        let job = job(&format!("  t: {{ {clauses} }}"), "t");
        let job = job
            .replace("sources:", "settings: { state: { backend: rocksdb }, checkpoint: { dir: \"file:///tmp/c\" } }\nsources:");
        let plan = planned(&job, 2);
        let warnings: Vec<&String> =
            plan.warnings.iter().filter(|warning| warning.contains("\"t\"") && warning.contains("heap")).collect();
        match part {
            Some(part) => assert!(warnings.len() == 1 && warnings[0].contains(part), "{clauses}: {warnings:?}"),
            None => assert!(warnings.is_empty(), "{clauses}: {warnings:?}"),
        }
    }
}

#[test]
fn late_rows_are_read_where_values_are_told_apart() {
    for window in ["tumbling: { size: 3s }", "sliding: { size: 3s, slide: 1s }", "session: { gap: 2s }"] {
        let late = "  l: { inputs: [t/late], select: { a: a, k: k, l: l } }";
        let t =
            format!("  t: {{ inputs: [rows], key_by: [k], window: {{ {window} }}, aggregate: {{ d: count(distinct a + 1) }} }}");
        let plan = planned(&job(&format!("{t}\n{late}"), "l"), 2);
        let mut sides = plan.vertices.iter().flat_map(|vertex| &vertex.operators).flat_map(|operator| &operator.sides);
        let side = sides.next().expect("late rows go out");
        assert_eq!(side.schema.names(), "a, k, l", "{window}");
    }
}
