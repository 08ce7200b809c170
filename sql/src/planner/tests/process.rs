//! Functions of users: where they stand in a plan, and every way in which one does not fit.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::ProcessSpec;

use super::*;

fn function(name: &str, kind: FunctionKind) -> FunctionDeclaration {
    FunctionDeclaration::new(name, kind).input("price", LogicalType::Int64)
}

pub(super) fn functions() -> Declarations {
    use FunctionKind::{BroadcastProcess, FlatMap, KeyedProcess, Reduce};
    let detect = function("detect", KeyedProcess).options(["limit"]).input("dateTime", LogicalType::Timestamp).event_timers();
    let odd = |function: FunctionDeclaration| function.side_output("odd", "price", LogicalType::Int64);
    let functions = [
        detect.output("who", LogicalType::Int64).output("at", LogicalType::Timestamp).event_time("at"),
        odd(function("split", FlatMap).output("half", LogicalType::Int64)),
        function("total", Reduce).output("price", LogicalType::Int64),
        function("rate", BroadcastProcess).broadcast_input("auction", LogicalType::Int64).output("x", LogicalType::Int64),
        function("text", FlatMap).input("extra", LogicalType::Int64).output("x", LogicalType::Int64),
    ];
    let functions = functions.into_iter().map(|function| (function.name.clone(), function)).collect();
    Declarations { functions: Some(functions), ..declarations() }
}

pub(super) fn plan_with(document: &str, declarations: &Declarations) -> Result<Plan, String> {
    let graph = parse(document).unwrap_or_else(|errors| panic!("{document}\n{errors}"));
    let overrides = PlanOverrides { parallelism: Some(2), ..PlanOverrides::default() };
    plan(&graph, declarations, &overrides).map_err(|errors| errors.to_string())
}

fn job(watermark: &str, clauses: &str, column: &str) -> String {
    let document = bids("functions", watermark, &format!("  f: {{ inputs: [bids], {clauses} }}"), "f");
    document.replace("hash: [price]", &format!("hash: [{column}]"))
}

fn errors(watermark: &str, clauses: &str) -> String {
    plan_with(&job(watermark, clauses, "x"), &functions()).err().unwrap_or_else(|| panic!("{clauses} is planned"))
}

fn process_of(plan: &Plan) -> (u32, OperatorSpecOf<'_>) {
    let found = plan.vertices.iter().find_map(|vertex| {
        vertex.operators.iter().find_map(|operator| match &operator.kind {
            OperatorKind::Process(spec) => Some((vertex.id.0, (operator, &**spec))),
            _ => None,
        })
    });
    found.expect("the plan has a function")
}

type OperatorSpecOf<'a> = (&'a levada_common::plan::OperatorSpec, &'a ProcessSpec);

#[test]
fn a_keyed_function_stands_behind_an_exchange_and_reads_what_it_declares() {
    let plan = plan_with(&job("", "key_by: [bidder], process: { function: detect, options: { limit: 3 } }", "who"), &functions());
    let plan = plan.unwrap();
    check(&plan);
    let (vertex, (operator, spec)) = process_of(&plan);
    let edge = plan.inputs(levada_common::ids::VertexId(vertex)).next().unwrap();
    assert_eq!(edge.partition, Partition::Hash { columns: vec!["bidder".into()] });
    assert_eq!(operator.input.names(), "bidder, price, dateTime", "what no one reads is not made");
    assert_eq!(operator.output.event_time.as_deref(), Some("at"));
    assert_eq!((spec.keys[0].name.as_str(), &spec.options["limit"]), ("bidder", &3.into()));
    assert!(explain(&plan).contains("process of \"f\": keyed process \"detect\", by bidder"), "{}", explain(&plan));
}

#[test]
fn a_reduce_gives_its_key_first_and_is_not_exchanged_again() {
    let transforms = "  f: { inputs: [bids], key_by: [bidder], process: total }
  g: { inputs: [f], key_by: [bidder], process: { function: total } }";
    let plan = plan_with(&bids("functions", "", transforms, "g"), &functions()).unwrap();
    check(&plan);
    assert_eq!(plan.vertices.len(), 2, "{}", explain(&plan));
    assert_eq!(process_of(&plan).1.0.output.names(), "bidder, price");
}

#[test]
fn a_broadcast_input_is_a_second_one_of_its_own_columns() {
    let sources = "sources:\n  rules: { nexmark: { events: 10, table: bid } }";
    let document = job("", "broadcast: [rules], process: rate", "x").replace("sources:", sources);
    let plan = plan_with(&document, &functions()).unwrap();
    check(&plan);
    let (vertex, (operator, spec)) = process_of(&plan);
    let inputs: Vec<_> = plan.inputs(levada_common::ids::VertexId(vertex)).collect();
    assert_eq!(inputs.iter().map(|edge| edge.input).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((&inputs[0].partition, &inputs[1].partition), (&Partition::Forward, &Partition::Broadcast));
    // The event time of a source stays for its watermark.
    assert_eq!(operator.input.names(), "price, dateTime");
    assert_eq!(spec.broadcast.as_ref(), Some(&inputs[1].schema));
    assert!(spec.broadcast.as_ref().unwrap().column("auction").is_some() && inputs[1].schema.column("extra").is_none());
    assert!(explain(&plan).contains("by broadcast"), "{}", explain(&plan));
}

#[test]
fn what_does_not_fit_is_said() {
    let none = ", watermark: none";
    for (watermark, clauses, expected) in [
        ("", "process: detekt", "no TaskManager has a function \"detekt\"; did you mean \"detect\"?; functions: detect, rate"),
        ("", "process: detect", "transforms.f: function \"detect\" keeps its state by key; `key_by` is missing"),
        ("", "key_by: [biddr], process: detect", "biddr"),
        ("", "key_by: [bidder], process: { function: detect, options: { limt: 1 } }", "did you mean \"limit\"?"),
        ("", "key_by: [bidder], process: split", "transforms.f.key_by: function \"split\" takes no key"),
        ("", "process: rate", "has a broadcast input; name the nodes"),
        ("", "broadcast: [bids], process: split", "transforms.f.broadcast: function \"split\" has no broadcast input"),
        ("", "process: text", "column \"extra\" is STRING, and the function takes INT64"),
        ("", "key_by: [price], process: total", "function \"total\" gives \"price\", which is also a key"),
        (none, "key_by: [bidder], process: detect", "function \"detect\" sets timers of event time;"),
    ] {
        let found = errors(watermark, clauses);
        assert!(found.contains(expected), "{clauses}: {found}");
    }
}

#[test]
fn inputs_are_checked_where_they_come_from() {
    let select = |columns: &str, process: &str| {
        let transforms =
            format!("  s: {{ inputs: [bids], select: {{ {columns} }} }}\n  f: {{ inputs: [s], process: {process} }}");
        let document = bids("functions", "", &transforms, "f").replace("hash: [price]", "hash: []");
        plan_with(&document, &functions()).err().unwrap_or_default()
    };
    assert_eq!(select("price: price", "split"), "");
    let nulls = select("price: 'nullif(price, 1)'", "split");
    assert!(nulls.contains("column \"price\" may be null") && nulls.contains("coalesce(price, ...)"), "{nulls}");
    let missing = select("prise: price", "split");
    assert!(missing.contains("column \"price\" not found; columns: prise"), "{missing}");
    let transforms =
        "  c: { inputs: [bids], key_by: [bidder], aggregate: { price: count(*) } }\n  f: { inputs: [c], process: split }";
    let changelog = plan_with(&bids("functions", "", transforms, "f"), &functions()).unwrap_err();
    assert!(changelog.contains("a function takes rows, not changes"), "{changelog}");
}

#[test]
fn without_a_cluster_no_function_is_known() {
    let error = plan_with(&job("", "process: split", "x"), &declarations()).unwrap_err();
    assert!(error.contains("function \"split\" is brought by a TaskManager's own binary, and without a cluster"), "{error}");
}
