//! Plans of the benchmarks' graphs as golden text, every error at once, and what is refused.
//!
//! `LEVADA_BLESS=1 cargo test -p levada-sql` writes the golden files anew.

mod changes;
mod join;
mod lookup;
mod outputs;
mod process;
mod top;
mod triggers;
mod watermark;
mod windows;

use std::path::PathBuf;
use std::sync::Arc;

use levada_common::declaration::{Declarations, OptionError, SinkDeclaration, SourceDeclaration, SourceShape};
use levada_common::graph::parse;
use levada_common::plan::{AggregatePhase, DistinctSpec, JoinSide, OperatorKind, Partition, Plan, WatermarkRule};
use levada_common::types::{Column, LogicalType, parse_column_type};
use levada_engine::expr::ExpressionCompiler;

use super::{PlanOverrides, explain, plan};
use crate::Compiler;

fn source(
    options: &[&str],
    read: impl Fn(&levada_common::declaration::Options) -> Result<SourceShape, Vec<OptionError>> + Send + Sync + 'static,
) -> SourceDeclaration {
    SourceDeclaration {
        options: options.iter().map(ToString::to_string).collect(),
        path_options: Vec::new(),
        read: Arc::new(read),
        splits: Arc::new(|_, _| Ok(Vec::new())),
    }
}

fn shape(columns: Vec<Column>) -> SourceShape {
    SourceShape { columns, computed: Vec::new(), event_time: None, bounded: true, replayable: true, parallelism_max: None }
}

fn sink(options: &[&str], changelog: bool) -> SinkDeclaration {
    SinkDeclaration {
        options: options.iter().map(ToString::to_string).collect(),
        path_options: Vec::new(),
        changelog,
        exactly_once: true,
        read: Arc::new(|options, _| match options.get("format").and_then(|format| format.as_str()) {
            None | Some("ndjson") => Ok(()),
            Some(other) => Err(vec![OptionError::new("format", format!("\"{other}\" is not a format; formats: ndjson"))]),
        }),
    }
}

fn written_columns(options: &levada_common::declaration::Options) -> Vec<Column> {
    let columns = options.get("columns").and_then(|columns| columns.as_object()).expect("columns");
    columns
        .iter()
        .map(|(name, ty)| {
            let (ty, nullable) = parse_column_type(ty.as_str().unwrap()).unwrap();
            Column::new(name, ty, nullable)
        })
        .collect()
}

fn declarations() -> Declarations {
    let int = |name: &str| Column::new(name, LogicalType::Int64, false);
    let bid = move || {
        vec![
            int("auction"),
            int("bidder"),
            int("price"),
            Column::new("dateTime", LogicalType::Timestamp, false),
            Column::new("extra", LogicalType::String, false),
        ]
    };
    let nexmark = source(&["events", "table", "rate"], move |_| {
        Ok(SourceShape { event_time: Some(("dateTime".into(), 0)), ..shape(bid()) })
    });
    let text = source(&["path", "format"], |_| Ok(shape(vec![Column::new("line", LogicalType::String, false)])));
    let rows = source(&["columns"], |options| Ok(shape(written_columns(options))));
    let socket = source(&["columns"], |options| {
        Ok(SourceShape { bounded: false, replayable: false, parallelism_max: Some(1), ..shape(written_columns(options)) })
    });
    let generate = source(&["from", "to", "columns"], move |options| {
        let columns = options.get("columns").and_then(|columns| columns.as_object()).expect("columns");
        let computed = columns.iter().map(|(name, sql)| (name.clone(), sql.as_str().unwrap().to_string())).collect();
        Ok(SourceShape { computed, ..shape(vec![int("n")]) })
    });
    let mut declarations = Declarations::default();
    for (name, declaration) in [("nexmark", nexmark), ("file", text), ("rows", rows), ("socket", socket), ("generate", generate)]
    {
        declarations.sources.insert(name.into(), declaration);
    }
    for (name, declaration) in
        [("tally", sink(&["hash", "last_by"], true)), ("file", sink(&["path", "format"], true)), ("rows", sink(&[], false))]
    {
        declarations.sinks.insert(name.into(), declaration);
    }
    declarations
}

fn planned_at(document: &str, parallelism: u32) -> Result<Plan, String> {
    let graph = parse(document).unwrap_or_else(|errors| panic!("{document}\n{errors}"));
    let overrides = PlanOverrides { parallelism: Some(parallelism), ..PlanOverrides::default() };
    plan(&graph, &declarations(), &overrides).map_err(|errors| errors.to_string())
}

fn planned(document: &str, parallelism: u32) -> Plan {
    let plan = planned_at(document, parallelism).unwrap_or_else(|errors| panic!("{document}\n{errors}"));
    check(&plan);
    plan
}

/// What holds for every plan: expressions compile over the schemas that the plan gives them, edges join what they carry,
/// and the plan survives its JSON.
fn check(plan: &Plan) {
    let compiler = Compiler::new();
    for vertex in &plan.vertices {
        let mut schema = match &vertex.source {
            Some(source) => source.schema.clone(),
            None => {
                let (second, edges): (Vec<_>, Vec<_>) = plan.inputs(vertex.id).partition(|edge| edge.input == 1);
                let operator = vertex.operators.first().and_then(|operator| operator.kind.second_input());
                assert_eq!(second.first().map(|edge| &edge.schema), operator, "{}", vertex.name);
                assert!(second.len() < 2 && edges.iter().all(|edge| edge.partition != Partition::Broadcast), "{}", vertex.name);
                for edge in edges.iter().chain(&second) {
                    assert!(edge.input == 1 || edge.schema.columns == edges[0].schema.columns, "{}", vertex.name);
                    assert!(edge.from.0 < vertex.id.0, "vertices stand in topological order");
                    if let Partition::Hash { columns } = &edge.partition {
                        assert!(columns.iter().all(|column| edge.schema.column(column).is_some()));
                    }
                    if edge.partition == Partition::Forward {
                        assert_eq!(plan.vertex(edge.from).parallelism, vertex.parallelism);
                    }
                }
                edges[0].schema.clone()
            }
        };
        for operator in &vertex.operators {
            assert_eq!(operator.input.columns, schema.columns, "{} {}", vertex.name, operator.clause);
            let event_time = operator.output.event_time.as_ref();
            assert!(event_time.is_none_or(|column| operator.output.column(column).is_some()), "{}", vertex.name);
            match &operator.kind {
                OperatorKind::Filter { predicate, .. } => {
                    compiler.compile(predicate, &operator.input, &LogicalType::Boolean).unwrap();
                }
                OperatorKind::Project { columns, unnest } => {
                    for (at, (name, sql)) in columns.iter().enumerate() {
                        let ty = operator.output.columns[at].ty.clone();
                        assert_eq!(operator.output.columns[at].name, *name);
                        let ty = if *unnest == Some(at) { LogicalType::List(Box::new(ty)) } else { ty };
                        compiler.compile(sql, &operator.input, &ty).unwrap();
                    }
                }
                OperatorKind::Assign(spec) => assert_eq!(operator.output, spec.output(&operator.input), "{}", vertex.name),
                OperatorKind::Distinct(spec) => {
                    for column in spec.keys.iter().chain(&spec.values) {
                        assert!(operator.input.column(column).is_some(), "{} reads {column}", vertex.name);
                    }
                    assert_eq!(operator.output, spec.output(&operator.input), "{}", vertex.name);
                }
                OperatorKind::Aggregate(spec) => {
                    let rows = spec.phase != AggregatePhase::Final;
                    let arguments = spec.calls.iter().filter(|_| rows).flat_map(|call| call.reads());
                    let input = DistinctSpec::marked(&spec.distinct, &operator.input);
                    for column in spec.keys.iter().chain(arguments).chain(&spec.distinct) {
                        assert!(input.column(column).is_some(), "{} reads {column}", vertex.name);
                    }
                    assert!(!rows || !spec.is_over_event_time() || operator.input.event_time.is_some());
                }
                OperatorKind::Split { branches, .. } => {
                    for predicate in branches.iter().filter_map(|branch| branch.predicate.as_ref()) {
                        compiler.compile(predicate, &operator.input, &LogicalType::Boolean).unwrap();
                    }
                }
                OperatorKind::Process(spec) => {
                    for column in spec.keys.iter().chain(&spec.function.inputs) {
                        assert!(
                            operator.input.column(&column.name).is_some_and(|found| found.ty == column.ty),
                            "{}",
                            vertex.name
                        );
                    }
                }
                OperatorKind::Top(spec) => {
                    let read = spec.keys.iter().chain(spec.order.iter().map(|by| &by.column));
                    assert!(read.into_iter().all(|column| operator.input.column(column).is_some()), "{}", vertex.name);
                    let columns = operator.input.columns.len() + usize::from(spec.place.is_some());
                    assert!(spec.window.is_some() || operator.output.columns.len() == columns, "{}", vertex.name);
                }
                OperatorKind::Join(spec) => {
                    for (side, input) in JoinSide::ALL.into_iter().zip([&operator.input, &spec.right]) {
                        let read = spec.reads(side, input.event_time.as_ref());
                        assert!(read.iter().all(|column| input.column(column).is_some()), "{}: {read:?}", vertex.name);
                    }
                    assert_eq!(spec.columns.len(), operator.output.columns.len());
                }
                OperatorKind::Watermark(spec) => {
                    assert!(operator.input.column(&spec.column).is_some());
                    if let WatermarkRule::Expression { sql } = &spec.rule {
                        compiler.compile(sql, &operator.output, &LogicalType::Timestamp).unwrap();
                    }
                }
            }
            schema = operator.output.clone();
        }
        let sides = vertex.operators.last().map_or(&[][..], |operator| operator.sides.as_slice());
        for edge in plan.outputs(vertex.id) {
            let given = (edge.output as usize).checked_sub(1).map_or(&schema, |side| &sides[side].schema);
            assert_eq!(edge.schema, *given, "{}", vertex.name);
        }
        for (at, operator) in vertex.operators.iter().enumerate().filter(|(_, operator)| !operator.sides.is_empty()) {
            assert!(at + 1 == vertex.operators.len() && vertex.sink.is_none(), "{} has outputs on its way", vertex.name);
            for (place, side) in operator.sides.iter().enumerate() {
                assert!(plan.outputs(vertex.id).any(|edge| edge.output as usize == place + 1), "nothing reads {}", side.name);
                assert!(side.schema.event_time.as_ref().is_none_or(|time| side.schema.column(time).is_some()));
            }
        }
        if let Some(sink) = &vertex.sink {
            assert_eq!(sink.input, schema);
        }
        assert!(vertex.sink.is_some() || plan.outputs(vertex.id).count() > 0, "{}", vertex.name);
    }
    let json = serde_json::to_string(plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), *plan);
}

/// Compares with `golden/<name>.txt`, or writes it.
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.txt"));
    if std::env::var_os("LEVADA_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} differs; found:\n{text}", path.display());
}

const BIDS: &str = "
version: 1
name: NAME
sources:
  bids: { nexmark: { events: 1000, table: bid } WATERMARK }
transforms:
TRANSFORMS
sinks:
  out: { inputs: [LAST], tally: { hash: [price] } }
";

fn bids(name: &str, watermark: &str, transforms: &str, last: &str) -> String {
    let document = BIDS.replace("NAME", name).replace("WATERMARK", watermark);
    document.replace("TRANSFORMS", transforms).replace("LAST", last)
}

#[test]
fn plans_of_the_benchmarks() {
    let no_time = ", watermark: none";
    let q7 = "first(bidder order by price desc, dateTime, auction, bidder)";
    let documents = [
        bids(
            "q1",
            no_time,
            "  q1: { inputs: [bids], select: { auction: auction, bidder: bidder, price: price * 908 / 1000, dateTime: dateTime, extra: extra } }",
            "q1",
        ),
        bids(
            "q2",
            no_time,
            "  q2: { inputs: [bids], where: auction % 123 = 0, select: { auction: auction, price: price } }",
            "q2",
        ),
        bids(
            "q7",
            "",
            &format!(
                "  q7:\n    inputs: [bids]\n    window: {{ tumbling: {{ size: 10s }} }}\n    aggregate:\n      auction: {}\n      bidder: {q7}\n      dateTime: {}\n      price: max(price)",
                q7.replace("first(bidder", "first(auction"),
                q7.replace("first(bidder", "first(dateTime"),
            ),
            "q7",
        ),
        bids(
            "q7k",
            "",
            &format!(
                "  each:\n    inputs: [bids]\n    key_by: [auction]\n    window: {{ tumbling: {{ size: 10s }} }}\n    aggregate:\n      bidder: {k}\n      dateTime: {kd}\n      price: max(price)\n  q7k:\n    inputs: [each]\n    window: same\n    aggregate:\n      auction: {a}\n      bidder: {q7}\n      dateTime: {d}\n      price: max(price)",
                k = "first(bidder order by price desc, dateTime, bidder)",
                kd = "first(dateTime order by price desc, dateTime, bidder)",
                a = q7.replace("first(bidder", "first(auction"),
                d = q7.replace("first(bidder", "first(dateTime"),
            ),
            "q7k",
        ),
        bids(
            "q12e",
            "",
            "  q12e: { inputs: [bids], key_by: [bidder], window: { tumbling: { size: 10s } }, aggregate: { bids: count(*) } }",
            "q12e",
        ),
        "
version: 1
name: words
settings: { checkpoint: { interval: 5s } }
sources:
  lines: { file: { path: /text.txt, format: text } }
transforms:
  words: { inputs: [lines], select: { word: \"unnest(string_to_array(line, ' '))\" } }
  counts: { inputs: [words], key_by: [word], aggregate: { n: count(*) } }
sinks:
  out: { inputs: [counts], tally: { last_by: [word], hash: [word, n] } }
"
        .to_string(),
    ];
    let mut text = String::new();
    for document in documents {
        for parallelism in [1, 2] {
            text.push_str(&explain(&planned(&document, parallelism)));
            text.push('\n');
        }
    }
    golden("plans", &text);
}

#[test]
fn every_error_is_reported_at_once() {
    let document = "\
version: 1
name: broken
sources:
  bids:
    nexmark: { events: 10, tabel: bid }
    watermark: { column: dateTim }
  lines: { fil: { path: /x } }
  nums:
    rows: { columns: { k: STRING, v: INT64 } }
transforms:
  words:
    inputs: [bids]
    where: price
    select:
      word: lin
      shout: uppr(extra)
      good: auction + 1
      both: word || extra
  counted:
    inputs: [words]
    key_by: [wrd]
    window: { tumbling: { size: 10s } }
    aggregate:
      n: cont(*)
      s: sum(word)
      t: sum(good)
      u: sum(distinct good)
    having: n > 'x' and s > 1 and nn > 1
  mixed:
    inputs: [nums, bids]
    where: true
  chained:
    inputs: [nums]
    key_by: [k]
    aggregate: { n: count(*) }
  wrong:
    inputs: [chained]
    window: { tumbling: { size: 1s } }
    aggregate: { n: count(*) }
  from_lines:
    inputs: [lines]
    select: { x: nonsense }
sinks:
  a: { inputs: [counted], file: { path: /out, format: xml, kompression: zstd } }
  b: { inputs: [mixed], tallyy: {} }
  c: { inputs: [wrong], rows: {} }
  d: { inputs: [chained], rows: {} }
  e: { inputs: [from_lines], file: { foo: 1 } }
";
    golden("errors", &format!("{}\n", planned_at(document, 2).expect_err("broken")));
}

/// A graph with one transform chain over typed rows: `a BIGINT, k STRING, ts TIMESTAMP, l LIST(STRING)`.
fn rows(transforms: &str, last: &str) -> String {
    format!(
        "
version: 1
name: rows
sources:
  rows: {{ rows: {{ columns: {{ a: INT64, k: STRING, ts: TIMESTAMP, l: LIST(STRING) }} }}, watermark: {{ column: ts, disorder: 1s }} }}
  more: {{ rows: {{ columns: {{ a: INT64 NOT NULL, k: STRING, ts: TIMESTAMP, l: LIST(STRING) }} }}, watermark: {{ column: ts }} }}
transforms:
{transforms}
sinks:
  out: {{ inputs: [{last}], file: {{}} }}
  rest: {{ inputs: [rows, more], file: {{}} }}
"
    )
}

#[test]
fn what_would_mislead_is_refused() {
    let cases = [
        (
            "  t: { inputs: [rows], select: { x: a }, }\n  u: { inputs: [t], window: { tumbling: { size: 1s } }, aggregate: { n: count(*) } }",
            "u",
            "a window needs event time; transform \"t\" does not select its event-time column \"ts\" unchanged",
        ),
        (
            "  t: { inputs: [rows], select: { ts: ts + interval '1 day' } }\n  u: { inputs: [t], window: { tumbling: { size: 1s } }, aggregate: { n: count(*) } }",
            "u",
            "transform \"t\" does not select its event-time column \"ts\" unchanged",
        ),
        (
            "  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) } }\n  u: { inputs: [t], window: global, aggregate: { n: count(*) } }",
            "u",
            "a window over a changelog",
        ),
        (
            "  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) } }\n  u: { inputs: [t, rows], where: true }",
            "u",
            "\"t\" is a changelog and cannot be united",
        ),
        (
            "  t: { inputs: [rows], window: same, aggregate: { n: count(*) } }",
            "t",
            "needs the columns window_start and window_end",
        ),
        ("  t: { inputs: [rows], key_by: [l], aggregate: { n: count(*) } }", "t", "key \"l\" is LIST(STRING)"),
        ("  t: { inputs: [rows], key_by: [k], aggregate: { k: count(*) } }", "t", "\"k\" is also a key"),
        (
            "  t: { inputs: [rows], window: { tumbling: { size: 1s } }, aggregate: { window_end: count(*) } }",
            "t",
            "also a column of the window",
        ),
        ("  t: { inputs: [rows], aggregate: { n: avg(a), n.sum: count(*) } }", "t", "its state \"n.sum\""),
        ("  t: { inputs: [rows], select: { x: unnest(a) } }", "t", "unnest needs a list, and its argument is INT64"),
        ("  t: { inputs: [rows], select: { x: unnest(l), y: unnest(l) } }", "t", "unnest one list only"),
        ("  t: { inputs: [rows], aggregate: { n: sum(k) } }", "t", "sum needs a number, and its argument is STRING"),
        ("  t: { inputs: [rows], aggregate: { n: first(a order by l) } }", "t", "cannot order by \"l\""),
        (
            "  t: { inputs: [rows], select: { a: a, k: k } }\n  u: { inputs: [rows, t], where: true }",
            "u",
            "inputs of one node need the same columns: \"t\" has no \"ts\"; \"t\" has no \"l\"",
        ),
        (
            "  t: { inputs: [rows], select: { k: k, a: a, ts: ts, l: l } }\n  u: { inputs: [rows, t], where: true }",
            "u",
            "the order is a, k, ts, l in \"rows\" and k, a, ts, l in \"t\"",
        ),
        (
            "  t: { inputs: [rows], select: { a: k, k: k, ts: ts, l: l } }\n  u: { inputs: [rows, t], where: true }",
            "u",
            "\"a\" is INT64 in \"rows\" and STRING in \"t\"",
        ),
        (
            "  t: { inputs: [rows], aggregate: { n: count(*) } }\n  u: { inputs: [t], where: true, parallelism: 2 }",
            "u",
            "parallelism",
        ),
    ];
    for (transforms, last, part) in cases {
        let errors = planned_at(&rows(transforms, last), 2).expect_err(transforms);
        assert!(errors.contains(part), "{transforms}\n{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn what_does_not_mislead_is_allowed() {
    let cases = [
        (
            "  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) }, changelog: full, having: n < 3, select: { n: n } }",
            "t",
        ),
        ("  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) }, having: k > 'a', select: { key: k, n: n * 2 } }", "t"),
        (
            "  t: { inputs: [rows], select: { when: ts, a: a } }\n  u: { inputs: [t], window: { tumbling: { size: 1s } }, aggregate: { s: sum(a * 2), m: sum(a * 2), x: last(a) } }",
            "u",
        ),
        (
            "  t: { inputs: [rows, more], key_by: [k], window: { tumbling: { size: 1s, offset: 500ms } }, aggregate: { s: avg(a) } }",
            "t",
        ),
        ("  t: { inputs: [rows], window: global, aggregate: { s: avg(a), f: first(k) } }", "t"),
        ("  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) }, having: n < 3 }", "t"),
        ("  t: { inputs: [rows], key_by: [k], aggregate: { n: count(*) }, select: { n: n } }", "t"),
    ];
    for (transforms, last) in cases {
        for parallelism in [1, 2] {
            planned(&rows(transforms, last), parallelism);
        }
    }
}

#[test]
fn an_input_by_the_same_key_is_not_exchanged_again() {
    let forward = "  t: { inputs: [rows], key_by: [k], window: { tumbling: { size: 1s } }, aggregate: { n: count(*) }, select: { key: k, start: window_start, window_time: window_time, n: n } }
  u: { inputs: [t], key_by: [key], window: { tumbling: { size: 10s } }, aggregate: { n: sum(n) } }";
    let plan = planned(&rows(forward, "u"), 4);
    let last = plan.vertices.iter().find(|vertex| vertex.name == "t -> u -> out").expect("one chain");
    let phases = last.operators.iter().filter_map(|operator| match &operator.kind {
        OperatorKind::Aggregate(spec) => Some(spec.phase),
        _ => None,
    });
    assert_eq!(phases.collect::<Vec<_>>(), [AggregatePhase::Final, AggregatePhase::Single]);
    let changed = planned(&rows(&forward.replace("key: k,", "key: lower(k),"), "u"), 4);
    assert!(changed.vertices.iter().any(|vertex| vertex.name == "u -> out"));
}

#[test]
fn computed_columns_and_pruning() {
    let document = "
version: 1
name: a
sources:
  a:
    generate: { from: 0, to: 10, columns: { key: \"'k' || lpad((n % 100)::varchar, 2, '0')\", ts: to_timestamp_millis(n), v: n, unused: n * n } }
    watermark: { column: ts }
transforms:
  sums: { inputs: [a], key_by: [key], window: { tumbling: { size: 10s } }, aggregate: { n: count(*), sum: sum(v) } }
sinks:
  out: { inputs: [sums], file: {} }
";
    golden("generate", &explain(&planned(document, 2)));
}

#[test]
fn settings_are_resolved() {
    let graph = |settings: &str| {
        rows("  t: { inputs: [rows], where: true }", "t").replace("name: rows", &format!("name: rows\nsettings: {settings}"))
    };
    let plan = planned(&graph("{ parallelism: 3 }"), 1);
    assert_eq!((plan.settings.parallelism, plan.settings.checkpoint.interval_ms, plan.max_parallelism), (1, None, 128));
    let plan = planned(&graph("{ checkpoint: {}, max_parallelism: 7 }"), 7);
    assert_eq!((plan.settings.checkpoint.interval_ms, plan.settings.checkpoint.tolerable_failures), (Some(10_000), 3));
    assert!(plan.warnings.iter().any(|warning| warning.contains("lost with it")), "{:?}", plan.warnings);
    let errors = planned_at(&graph("{ checkpoint: {}, state: { backend: fs }, max_parallelism: 7 }"), 8).unwrap_err();
    assert!(errors.contains("settings.checkpoint: state backend fs needs a directory"), "{errors}");
    assert!(errors.contains("parallelism 8 is not between 1 and 7"), "{errors}");
}

#[test]
fn sources_that_cannot_be_replayed_are_warned_of() {
    let document = "
version: 1
name: s
settings: { checkpoint: { interval: 1s } }
sources:
  s: { socket: { columns: { a: STRING } }, parallelism: 2 }
transforms:
  t: { inputs: [s], select: { a: lower(a) } }
sinks:
  out: { inputs: [t], file: {} }
";
    let plan = planned(document, 2);
    assert!(plan.warnings.iter().any(|warning| warning.contains("lowered to 1")), "{:?}", plan.warnings);
    assert!(plan.warnings.iter().any(|warning| warning.contains("cannot read its input again")), "{:?}", plan.warnings);
    assert_eq!(plan.vertices[0].parallelism, 1);
    assert_eq!((plan.vertices[1].name.as_str(), plan.vertices[1].parallelism), ("t -> out", 2));
    assert_eq!(plan.edges[0].partition, Partition::Rebalance);
}
