//! Joins with a table: where they stand in a plan, what a table may be, and what would wait for itself.

use levada_common::plan::{JoinScope, JoinSpec};

use super::*;

/// Orders that do not end, a table that does, one that does not, a changelog by one column and one by two.
fn job(transforms: &str, last: &str) -> String {
    format!(
        "
version: 1
name: lookups
sources:
  orders: {{ socket: {{ columns: {{ id: INT64 NOT NULL, customer: INT64, zone: STRING, at: TIMESTAMP NOT NULL }} }}, watermark: {{ column: at }} }}
  customers: {{ rows: {{ columns: {{ customer: INT64 NOT NULL, name: STRING NOT NULL, zone: STRING, at: TIMESTAMP NOT NULL }} }}, watermark: {{ column: at }} }}
  rates: {{ socket: {{ columns: {{ zone: STRING, rate: INT64 NOT NULL, customer: INT64 }} }} }}
transforms:
  totals: {{ inputs: [rates], key_by: [zone], aggregate: {{ most: max(rate) }} }}
  pairs: {{ inputs: [rates], key_by: [zone, customer], aggregate: {{ most: max(rate) }} }}
{transforms}
sinks:
  out: {{ inputs: [{last}], file: {{}} }}
  o: {{ inputs: [orders], file: {{}} }}
  c: {{ inputs: [customers], file: {{}} }}
  t: {{ inputs: [totals], file: {{}} }}
  p: {{ inputs: [pairs], file: {{}} }}
"
    )
}

fn lookup(plan: &Plan) -> &JoinSpec {
    let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators);
    let mut joins = operators.filter_map(|operator| match &operator.kind {
        OperatorKind::Join(join) => Some(join),
        _ => None,
    });
    joins.next_back().expect("it has a join")
}

#[test]
fn plans_of_lookups() {
    let cases = [
        "  j: { inputs: [orders], join: { with: [customers], lookup: true, on: [customer], take: { name: name } } }",
        "  j: { inputs: [orders], where: id > 7, join: { with: [rates], kind: left, lookup: true, on: [zone], take: { rate: rate } }, select: { at: at, rate: rate } }",
        "  j: { inputs: [orders], join: { with: [totals], kind: anti, lookup: true, on: [zone] } }",
    ];
    let mut text = String::new();
    for case in cases {
        for parallelism in [1, 2] {
            text.push_str(&explain(&planned(&job(case, "j"), parallelism)));
            text.push('\n');
        }
    }
    golden("lookups", &text);
}

#[test]
fn rows_of_a_key_come_from_one_sender_and_left_rows_stay_where_they_are() {
    let by_key = "  k: { inputs: [orders], key_by: [zone], window: { tumbling: { size: 1s } }, aggregate: { n: count(*) } }";
    let again = "  a: { inputs: [j], key_by: [zone], window: same, aggregate: { m: sum(n) } }";
    let with = |table: &str, on: &str| {
        let join = format!("  j: {{ inputs: [k], join: {{ with: [{table}], kind: semi, lookup: true, on: {{ zone: {on} }} }} }}");
        planned(&job(&format!("{by_key}\n{join}\n{again}"), "a"), 3)
    };
    let hashes = |plan: &Plan| {
        let hashes = plan.edges.iter().filter_map(|edge| match &edge.partition {
            Partition::Hash { columns } => Some(columns.join(",")),
            _ => None,
        });
        hashes.collect::<Vec<_>>()
    };
    let exchanges = |plan: &Plan| hashes(plan).into_iter().filter(|columns| columns == "zone").count();
    let endless = with("totals", "zone");
    // Of the totals and their orders: the aggregates' own exchanges, none for the table, none behind the lookup.
    assert_eq!(exchanges(&endless), 2, "{}", explain(&endless));
    let ends = with("customers", "zone");
    // Rows that wait may come back elsewhere, so what is behind finds its rows by itself; the table's rows are brought together.
    assert_eq!(exchanges(&ends), exchanges(&endless) + 2, "{}", explain(&ends));
    for (plan, is_whole) in [(&endless, false), (&ends, true)] {
        let JoinScope::Lookup { whole, moves: false } = lookup(plan).scope else { panic!("it looks up") };
        assert_eq!(whole, is_whole);
        let waiting: Vec<String> = plan.states().into_iter().map(|state| state.name).filter(|name| name == "waiting").collect();
        assert_eq!(waiting.len(), usize::from(is_whole));
    }
}

#[test]
fn a_table_whose_updates_change_the_key_has_the_replaced_rows_come_too() {
    let join = |on: &str| format!("  j: {{ inputs: [orders], join: {{ with: [totals], kind: semi, lookup: true, on: {on} }} }}");
    let plan = planned(&job(&join("{ zone: zone, customer: most }"), "j"), 2);
    assert!(matches!(lookup(&plan).scope, JoinScope::Lookup { whole: false, moves: true }));
    assert!(plan.changelogs.values().any(|changes| changes.full), "{}", explain(&plan));
}

#[test]
fn what_cannot_be_looked_up_is_refused() {
    let align = |group: &str| format!("watermark: {{ column: at, align: {{ group: {group}, max_drift: 1s }} }}");
    let aligned = |document: String| document.replace("watermark: { column: at }", &align("all"));
    let lookup = "lookup: true, on: [customer], take: { name: name }";
    let cases = [
        (job("  j: { inputs: [orders], join: { with: [customers], lookup: true } }", "j"), "`on` is missing"),
        (
            job("  j: { inputs: [orders], join: { with: [customers], lookup: true, on: { zone: customer } } }", "j"),
            "\"zone\" is STRING on the left side and \"customer\" INT64 on the right",
        ),
        (
            job("  j: { inputs: [orders], join: { with: [customers], lookup: true, on: [customer] } }", "j"),
            "both sides have a column \"zone\"; name what comes of the right side",
        ),
        (
            job(&format!("  j: {{ inputs: [orders], join: {{ with: [customers], kind: full, {lookup} }} }}"), "j"),
            "j.join.kind: rows of a table go out with the left rows that meet them only; a lookup is inner, left, semi or anti, not full",
        ),
        (
            job("  j: { inputs: [totals], join: { with: [customers], kind: semi, lookup: true, on: [zone] } }", "j"),
            "j.inputs: the left side is a changelog, and what a row met could not be taken back",
        ),
        (
            job("  j: { inputs: [orders], join: { with: [pairs], kind: semi, lookup: true, on: [zone] } }", "j"),
            "j.join.on: the table is a changelog by the key zone, customer, so that several of its rows may be found",
        ),
        (
            job(
                &format!(
                    "  j: {{ inputs: [customers], join: {{ with: [customers], {} }} }}",
                    lookup.replace("name: name", "n: name")
                ),
                "j",
            ),
            "j.join.with: left rows wait until the table has been read whole, and source \"customers\" is read by both sides",
        ),
        (
            aligned(job(&format!("  j: {{ inputs: [orders], join: {{ with: [customers], {lookup} }} }}"), "j")),
            "its source \"customers\" waits for \"orders\", in another lookup or a group of sources that keep pace",
        ),
        (
            job(
                "  two: { inputs: [customers], select: { customer: customer, zone: zone } }\n  \
                   j: { inputs: [other], join: { with: [two], kind: semi, lookup: true, on: [customer] } }\n  \
                   k: { inputs: [two], join: { with: [other], kind: semi, lookup: true, on: [customer] } }",
                "j, k",
            )
            .replace("sources:\n", "sources:\n  other: { rows: { columns: { customer: INT64 NOT NULL, zone: STRING } } }\n"),
            "k.join.with: left rows wait until the table has been read whole, and its source \"other\" waits for \"customers\"",
        ),
    ];
    for (document, part) in cases {
        let errors = match levada_common::graph::parse(&document) {
            Ok(_) => planned_at(&document, 2).expect_err(&document),
            Err(errors) => errors.to_string(),
        };
        assert!(errors.contains(part), "{document}\n{errors}");
    }
    // In groups of their own they keep pace with others only.
    let apart = job(&format!("  j: {{ inputs: [orders], join: {{ with: [customers], {lookup} }} }}"), "j");
    planned(
        &apart.replacen("watermark: { column: at }", &align("one"), 1).replace("watermark: { column: at }", &align("other")),
        2,
    );
}

#[test]
fn a_table_is_on_the_heap_and_its_join_takes_part_in_the_memory_of_all() {
    let join = "  j: { inputs: [orders], join: { with: [rates], kind: semi, lookup: true, on: [zone] } }";
    let rocksdb = job(join, "j")
        .replace("sources:\n", "settings: { state: { backend: rocksdb }, checkpoint: { dir: \"file:///tmp/c\" } }\nsources:\n");
    let warnings = planned(&rocksdb, 2).warnings;
    let warned = |warning: &String| warning.contains("\"j\": the table of a lookup is on the heap, in every instance");
    assert!(warnings.iter().any(warned), "{warnings:?}");
}
