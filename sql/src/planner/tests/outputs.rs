//! Outputs beside the main one: who reads them, what they carry, and what is refused.

use super::process::{functions, plan_with};
use super::*;

/// Bids with sinks for these inputs.
fn job(transforms: &str, inputs: &[&str]) -> String {
    let document = bids("outputs", "", transforms, "bids");
    let sinks = document.find("sinks:").expect("it has sinks");
    let outs = inputs.iter().enumerate().map(|(at, input)| format!("  out{at}: {{ inputs: [{input}], tally: {{}} }}\n"));
    format!("{}sinks:\n{}", &document[..sinks], outs.collect::<String>())
}

fn sides(plan: &Plan) -> Vec<(String, String)> {
    let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
    operators.flat_map(|operator| &operator.sides).map(|side| (side.name.clone(), side.schema.names())).collect()
}

#[test]
fn plans_with_outputs_beside_the_main_one() {
    let tumbling = "key_by: [bidder], window: { tumbling: { size: 10s } }, aggregate: { total: sum(price * 2) }";
    let documents = [
        job(&format!("  counts: {{ inputs: [bids], {tumbling}, having: total > 10 }}"), &["counts", "counts/late"]),
        job(
            "  parts: { inputs: [bids], select: { price: price, auction: auction }, split: { large: price > 100, odd: auction % 2 = 1 } }",
            &["parts", "parts/large", "parts/odd"],
        ),
        job("  f: { inputs: [bids], process: split }", &["f/odd"]),
    ];
    let mut text = String::new();
    for document in &documents {
        let plan = plan_with(document, &functions()).unwrap_or_else(|errors| panic!("{document}\n{errors}"));
        check(&plan);
        text.push_str(document);
        text.push_str(&explain(&plan));
    }
    golden("outputs", &text);
}

/// What is not read of it is not made, and with an unread output all is as without.
#[test]
fn an_output_costs_nothing_where_nothing_reads_it() {
    let tumbling = "key_by: [bidder], window: { tumbling: { size: 10s } }, aggregate: { total: sum(price) }";
    let counts = format!("  counts: {{ inputs: [bids], {tumbling} }}");
    let without = planned(&job(&counts, &["counts"]), 2);
    assert_eq!(sides(&without), []);
    assert_eq!(without.vertices.len(), 2, "two phases, as ever");
    let late = "  late: { inputs: [counts/late], select: { extra: extra } }";
    let with = planned(&job(&format!("{counts}\n{late}"), &["counts", "late"]), 2);
    assert_eq!(sides(&with), [("late".into(), "extra".into())], "{}", explain(&with));
    let function = "  f: { inputs: [bids], process: split }";
    let unread = plan_with(&job(function, &["f"]), &functions()).unwrap();
    assert_eq!((sides(&unread), unread.vertices.len()), (vec![], 1), "{}", explain(&unread));
}

/// What the clauses do with a main output that nothing reads is not done.
#[test]
fn an_output_may_be_the_only_one_that_is_read() {
    let counts = "  counts: { inputs: [bids], key_by: [bidder], window: { session: { gap: price } }, aggregate: { n: count(*) }, having: n > 1 }";
    let plan = planned(&job(counts, &["counts/late"]), 3);
    assert!(!explain(&plan).contains("having"), "{}", explain(&plan));
    assert_eq!(sides(&plan), [("late".into(), "auction, bidder, price, dateTime, extra".into())]);
}

/// Late rows have the event time of the input, and windows upstream are theirs too.
#[test]
fn an_output_is_a_stream_like_any_other() {
    let again = "key_by: [auction], window: { tumbling: { size: 1h } }, aggregate: { n: count(*) }";
    let split =
        format!("  s: {{ inputs: [bids], split: {{ cheap: price < 10, dear: else }} }}\n  c: {{ inputs: [s/cheap], {again} }}");
    let join = "  j: { inputs: [s/dear], join: { with: [s/cheap], on: [auction], within: { to: 1s }, take: { other: price } } }";
    let late = format!("  l: {{ inputs: [j/late_left, j/late_right], {again} }}");
    planned(&job(&format!("{split}\n{join}\n{late}"), &["c", "j", "l"]), 2);
    let same = "  w: { inputs: [bids], window: { tumbling: { size: 1s } }, key_by: [auction], aggregate: { n: count(*) } }
  x: { inputs: [w], window: same, aggregate: { n: max(n) } }
  y: { inputs: [x/late], window: same, aggregate: { n: count(*) } }";
    planned(&job(same, &["x", "y"]), 2);
}

#[test]
fn what_is_no_output_is_said() {
    let tumbling = "  w: { inputs: [bids], key_by: [bidder], window: { tumbling: { size: 10s } }, aggregate: { n: count(*) } }";
    let running = "  r: { inputs: [bids], key_by: [bidder], aggregate: { n: count(*) } }";
    let split = "  s: { inputs: [bids], split: { large: price > 100, small: else } }";
    for (transforms, inputs, expected) in [
        (
            tumbling,
            "w, w/lat",
            "line 9: sinks.out0.inputs[1]: \"w\" has no output \"lat\"; did you mean \"late\"?; it has the outputs late",
        ),
        (running, "r/late", "\"r\" has no output \"late\"; it has no output beside its main one"),
        (tumbling, "w, bids/late", "\"bids\" has no output \"late\"; it has no output beside its main one"),
        (split, "s", "the `split` of \"s\" leaves no row for its main output; read \"s/small\""),
        (split, "s/lage", "\"s\" has no output \"lage\"; did you mean \"large\"?; it has the outputs large, small"),
        (
            "  s: { inputs: [bids], split: { large: price } }",
            "s/large",
            "transforms.s.split.large: the condition is INT64, not BOOLEAN",
        ),
        (
            "  s: { inputs: [bids], split: { large: prize > 1 } }",
            "s/large",
            "transforms.s.split.large: column \"prize\" not found",
        ),
    ] {
        let found = planned_at(&job(transforms, &[inputs]), 2).expect_err(transforms);
        assert!(found.contains(expected), "{expected}\n{found}");
    }
}
