//! Functions of users: where they stand in a plan, and every way in which one does not fit.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::ProcessSpec;

use super::*;

fn function(name: &str, kind: FunctionKind) -> FunctionDeclaration {
    FunctionDeclaration::new(name, kind).input("price", LogicalType::Int64)
}

pub(super) fn functions() -> Declarations {
    use FunctionKind::{
        BroadcastProcess, CoFlatMap, CoGroup, Evictor, FlatMap, KeyedCoProcess, KeyedProcess, Reduce, Trigger, Window,
    };
    let detect = function("detect", KeyedProcess).options(["limit"]).input("dateTime", LogicalType::Timestamp).event_timers();
    let odd = |function: FunctionDeclaration| function.side_output("odd", "price", LogicalType::Int64);
    let functions = [
        detect.output("who", LogicalType::Int64).output("at", LogicalType::Timestamp).event_time("at"),
        odd(function("split", FlatMap).output("half", LogicalType::Int64)),
        function("total", Reduce).output("price", LogicalType::Int64),
        function("rate", BroadcastProcess).broadcast_input("auction", LogicalType::Int64).output("x", LogicalType::Int64),
        function("text", FlatMap).input("extra", LogicalType::Int64).output("x", LogicalType::Int64),
        function("merge", CoFlatMap).second_input("extra", LogicalType::String).output("x", LogicalType::Int64),
        function("median", Window).output("middle", LogicalType::Int64),
        function("eager", Trigger).options(["rows"]).event_timers(),
        function("joining", Trigger).merging(),
        function("timely", Trigger).processing_timers().merging(),
        function("outliers", Evictor).options(["most"]).input("extra", LogicalType::String),
        function("compare", CoGroup).second_input("extra", LogicalType::String).output("x", LogicalType::Int64),
        function("match", KeyedCoProcess)
            .second_input("extra", LogicalType::String)
            .event_timers()
            .output("x", LogicalType::Int64),
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
fn two_inputs_without_a_key_stay_where_they_are() {
    let sources = "sources:\n  others: { nexmark: { events: 5, table: bid }, parallelism: 3 }";
    let job = |clauses: &str| job("", clauses, "x").replace("sources:", sources);
    let plan = plan_with(&job("with: [others], process: merge"), &functions()).unwrap();
    check(&plan);
    let (vertex, (operator, spec)) = process_of(&plan);
    let edges: Vec<_> = plan.inputs(levada_common::ids::VertexId(vertex)).map(|edge| edge.partition.clone()).collect();
    assert_eq!(edges, [Partition::Forward, Partition::Rebalance], "{}", explain(&plan));
    assert_eq!((operator.input.names().as_str(), spec.keys.len()), ("price, dateTime", 0));
    let second = spec.second.as_ref().unwrap();
    assert_eq!((second.schema.names().as_str(), second.keys.len()), ("dateTime, extra", 0));
    let errors = plan_with(&job("with: [others], key_by: [bidder], process: merge"), &functions()).expect_err("it has a key");
    assert!(errors.contains("f.key_by: function \"merge\" takes no key"), "{errors}");
}

/// Rows of both inputs go where their key is, under whatever name, and only what is read of them.
#[test]
fn a_second_input_is_spread_by_its_own_key() {
    let sources = "sources:\n  others: { nexmark: { events: 10, table: bid } }";
    let document = job("", "with: [others], key_by: { bidder: auction }, process: match", "x").replace("sources:", sources);
    let plan = plan_with(&document, &functions()).unwrap();
    check(&plan);
    let (vertex, (operator, spec)) = process_of(&plan);
    let inputs: Vec<_> = plan.inputs(levada_common::ids::VertexId(vertex)).collect();
    let hash = |column: &str| Partition::Hash { columns: vec![column.into()] };
    assert_eq!((&inputs[0].partition, &inputs[1].partition), (&hash("bidder"), &hash("auction")));
    assert_eq!(operator.input.names(), "bidder, price, dateTime");
    let second = spec.second.as_ref().unwrap();
    assert_eq!(
        (second.keys.as_slice(), second.schema.names().as_str()),
        (&["auction".to_string()][..], "auction, dateTime, extra")
    );
    for (clauses, expected) in [
        (
            "key_by: [bidder], process: match",
            "function \"match\" has a second input; name the nodes that it reads, as in `with: [payments]`",
        ),
        (
            "with: [others], key_by: { bidder: extra }, process: match",
            "\"bidder\" is INT64 in the first input and \"extra\" STRING in the second",
        ),
        (
            "with: [others], key_by: { bidder: auctio }, process: match",
            "transforms.f.key_by: second input: column \"auctio\" not found",
        ),
        ("with: [others], process: match", "`key_by` is missing"),
        ("with: [others], key_by: [bidder], process: total", "transforms.f.with: function \"total\" has no second input"),
        ("with: [othrs], key_by: [bidder], process: match", "othrs"),
        (
            "with: [timeless], key_by: [bidder], process: match",
            "on both inputs, and the second; source \"timeless\" has `watermark: none`",
        ),
    ] {
        let read = |name: &str| clauses.contains(name);
        let others = if read("others") { "\n  others: { nexmark: { events: 10, table: bid } }" } else { "" };
        let timeless =
            if read("timeless") { "\n  timeless: { nexmark: { events: 10, table: bid }, watermark: none }" } else { "" };
        let document = job("", clauses, "x").replace("sources:", &format!("sources:{others}{timeless}"));
        let found = match levada_common::graph::parse(&document) {
            Err(errors) => errors.to_string(),
            Ok(graph) => {
                let overrides = PlanOverrides { parallelism: Some(2), ..PlanOverrides::default() };
                plan_of(&graph, &overrides).err().unwrap_or_default()
            }
        };
        assert!(found.contains(expected), "{clauses}: {found}");
    }
}

fn plan_of(graph: &levada_common::graph::JobGraph, overrides: &PlanOverrides) -> Result<Plan, String> {
    plan(graph, &functions(), overrides).map_err(|errors| errors.to_string())
}

/// The key and the window stand before what the function gives, and are a window for whoever reads it.
#[test]
fn functions_get_whole_windows() {
    let tumbling = "window: { tumbling: { size: 10s } }";
    let median = format!("  f: {{ inputs: [bids], key_by: [bidder], {tumbling}, evict: {{ rows: 5 }}, process: median }}");
    let again = "  g: { inputs: [f], window: same, order_by: [middle desc], limit: 3, rank: place }";
    let late = "  h: { inputs: [f/late], select: { extra: extra } }";
    let document = bids("functions", "", &format!("{median}\n{again}\n{late}"), "g").replace("hash: [price]", "hash: [place]");
    let document = document.replace("sinks:", "sinks:\n  late: { inputs: [h], tally: {} }");
    let plan = plan_with(&document, &functions()).unwrap();
    check(&plan);
    let (_, (operator, spec)) = process_of(&plan);
    assert_eq!(operator.output.names(), "bidder, window_start, window_end, window_time, middle");
    assert_eq!(operator.input.names(), "bidder, price, dateTime, extra");
    let states = spec.window_states(&operator.input);
    let values: Vec<&str> = states[0].schema.values.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(values, ["price", "dateTime"], "what only late rows are read with is not kept");
    let text = explain(&plan);
    assert!(text.contains("window function \"median\", by bidder, tumbling 10 s, the last 5 rows"), "{text}");
    assert!(text.contains("the first 3, no key, same window, in order of middle desc, arrival, place as place"), "{text}");
    for clauses in [
        format!("with: [bids], key_by: [bidder], {tumbling}, process: compare"),
        format!("key_by: [bidder], {tumbling}, process: total"),
        "key_by: [bidder], window: { sliding: { size: 10s, slide: 2s } }, process: median".into(),
    ] {
        check(&plan_with(&job("", &clauses, "window_end"), &functions()).unwrap_or_else(|errors| panic!("{clauses}: {errors}")));
    }
}

#[test]
fn functions_in_windows_of_processing_time_need_no_event_time() {
    let by_clock = "window: { sliding: { size: 10s, slide: 5s }, time: processing }";
    let clauses = format!("key_by: [bidder], {by_clock}, evict: {{ time: 2s }}, process: median");
    let plan = plan_with(&job(", watermark: none", &clauses, "middle"), &functions()).unwrap();
    check(&plan);
    let (_, (operator, _)) = process_of(&plan);
    assert_eq!((operator.output.event_time.as_deref(), operator.sides.len()), (None, 0));
    let (states, columns) = kept(&plan);
    assert_eq!(states, ["rows", "processing_time", "row_numbers"]);
    assert_eq!(columns, ["price", "_arrived"]);
    let text = explain(&plan);
    assert!(text.contains("by bidder, sliding 10 s by 5 s of processing time, the last 2 s"), "{text}");

    let again =
        format!("  f: {{ inputs: [bids], {clauses} }}\n  g: {{ inputs: [f], window: same, order_by: [middle desc], limit: 3 }}");
    let found =
        plan_with(&bids("functions", "", &again, "g").replace("hash: [price]", "hash: [middle]"), &functions()).unwrap_err();
    assert!(found.contains("transform \"f\" has windows of processing time, and their results have no event time"), "{found}");
}

/// Sessions, triggers and evictors too: no row is late, and there is no event time behind them.
#[test]
fn windows_of_processing_time_whose_keys_give_their_rows_each_need_no_event_time() {
    for (window, evict, states, text) in [
        ("session: { gap: 1s }", "", &[][..], "session gap 1 s of processing time"),
        ("session: { gap: auction * 2 }", "evict: { time: 2s }, ", &[], "session gap of auction * 2 ms of processing time"),
        ("tumbling: { size: 1s }, trigger: timely", "", &["_timers.processing"], "of processing time, trigger \"timely\""),
        (
            "sliding: { size: 2s, slide: 1s }",
            "evict: { function: outliers, options: { most: 1 } }, ",
            &[],
            "evictor \"outliers\"",
        ),
        (
            "session: { gap: 1s }, early: { rows: 2 }, accumulate: false",
            "",
            &["results"],
            "of processing time early after 2 rows",
        ),
    ] {
        let clauses = format!("key_by: [bidder], window: {{ {window}, time: processing }}, {evict}process: median");
        let plan = plan_with(&job(", watermark: none", &clauses, "middle"), &functions());
        let plan = plan.unwrap_or_else(|errors| panic!("{clauses}: {errors}"));
        check(&plan);
        let (_, (operator, _)) = process_of(&plan);
        assert_eq!((operator.output.event_time.as_deref(), operator.sides.len()), (None, 0), "{clauses}");
        let (found, columns) = kept(&plan);
        let expected = ["rows", "windows"].iter().chain(states).chain(&["processing_time", "row_numbers", "placed_by"]);
        assert!(found.iter().eq(expected), "{clauses}: {found:?}");
        assert_eq!(columns.last().map(String::as_str), Some("_arrived"), "{clauses}: {columns:?}");
        let explained = explain(&plan);
        assert!(explained.contains(text), "{clauses}: {explained}");
    }
}

/// The names of the states of a plan's function, and of the columns of its rows.
fn kept(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let (_, (operator, spec)) = process_of(plan);
    let rows = spec.window_states(&operator.input);
    let names = |columns: &[levada_common::types::Column]| columns.iter().map(|column| column.name.clone()).collect();
    (operator.state_names(), names(&rows[0].schema.values))
}

#[test]
fn windows_of_functions_have_triggers_evictors_sessions_and_late_rows() {
    let trigger = "trigger: { function: eager, options: { rows: 3 } }";
    let clauses = format!(
        "key_by: [bidder], window: {{ tumbling: {{ size: 10s }}, {trigger}, allowed_lateness: 5s }}, \
         evict: {{ function: outliers, options: {{ most: 3 }} }}, process: median"
    );
    let plan = plan_with(&job("", &clauses, "middle"), &functions()).unwrap();
    check(&plan);
    let text = explain(&plan);
    let expected = "tumbling 10 s up to 5 s late with each batch, trigger \"eager\", evictor \"outliers\"";
    assert!(text.contains(expected), "{text}");
    let (states, columns) = kept(&plan);
    assert_eq!(states, ["rows", "windows", "_timers.event", "watermark", "row_numbers", "placed_by"]);
    assert_eq!(columns, ["price", "dateTime", "extra"], "what the evictor looks at waits with the rows");
    let (_, (_, spec)) = process_of(&plan);
    assert!(!spec.window_states(&process_of(&plan).1.0.input)[0].schema.windowed);

    for (gap, column) in [("1s", None), ("auction", Some("auction")), ("price * 2", Some("price * 2"))] {
        let clauses = format!("key_by: [bidder], window: {{ session: {{ gap: {gap} }}, trigger: joining }}, process: median");
        let plan = plan_with(&job("", &clauses, "middle"), &functions()).unwrap_or_else(|errors| panic!("{gap}: {errors}"));
        check(&plan);
        let (_, (operator, _)) = process_of(&plan);
        assert!(column.is_none_or(|column| operator.input.column(column).is_some()), "{gap}: {}", operator.input.names());
        assert_eq!(
            kept(&plan),
            (
                vec!["rows".into(), "windows".into(), "watermark".into(), "row_numbers".into(), "placed_by".into()],
                vec!["price".into(), "dateTime".into()]
            )
        );
    }
    for clauses in [
        "with: [bids], key_by: [bidder], window: { session: { gap: auction } }, process: compare",
        "with: [bids], key_by: [bidder], window: { session: { gap: auction + 1 } }, process: compare",
        "key_by: [bidder], window: { session: { gap: 1s }, allowed_lateness: 1s }, process: total",
        "key_by: [bidder], window: { session: { gap: 1s }, early: { every: 1s, rows: 9 }, accumulate: false }, process: median",
        "key_by: [bidder], window: { sliding: { size: 10s, slide: 2s }, trigger: eager }, process: median",
    ] {
        check(&plan_with(&job("", clauses, "window_end"), &functions()).unwrap_or_else(|errors| panic!("{clauses}: {errors}")));
    }
}

#[test]
fn windows_that_do_not_fit_are_said() {
    let tumbling = "window: { tumbling: { size: 10s } }";
    for (watermark, clauses, expected) in [
        (
            "",
            "key_by: [bidder], process: median".into(),
            "function \"median\" is a window function and takes the rows of windows; `window` is missing",
        ),
        (
            "",
            format!("key_by: [bidder], {tumbling}, process: detect"),
            "function \"detect\" is a keyed process and takes rows as they come",
        ),
        (
            "",
            "key_by: [bidder], window: { count: { size: 10 } }, process: median".into(),
            "over everything, and by count, write a `KeyedProcessFunction`",
        ),
        ("", "key_by: [bidder], window: same, process: median".into(), "`window: same` needs the columns window_start"),
        (", watermark: none", format!("key_by: [bidder], {tumbling}, process: median"), "a window needs event time;"),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 10s }, early: { rows: 3 }, trigger: eager }, process: median".into(),
            "the `trigger` says when the window gives its rows",
        ),
        (
            "",
            "key_by: [bidder], window: { session: { gap: 1s }, trigger: eager }, process: median".into(),
            "transforms.f.window.trigger: trigger \"eager\" does not merge windows, and sessions become one",
        ),
        (
            "",
            "key_by: [bidder], window: { session: { gap: extra } }, process: median".into(),
            "transforms.f.window.session.gap: a gap is an integer, in milliseconds, and this one is STRING",
        ),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 1s }, trigger: { function: eager, options: { row: 1 } } }, process: median"
                .into(),
            "unknown option \"row\" of trigger \"eager\"; did you mean \"rows\"?",
        ),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 1s }, trigger: outliers }, process: median".into(),
            "\"outliers\" is registered as evictor, not as trigger; it belongs under `evict.function`",
        ),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 1s }, trigger: eagre }, process: median".into(),
            "no TaskManager has a trigger \"eagre\"; did you mean \"eager\"?; triggers: eager, joining, timely",
        ),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 1s } }, process: eager".into(),
            "\"eager\" is registered as trigger, not as function; it belongs under `window.trigger`",
        ),
        (
            "",
            format!("with: [bids], key_by: [bidder], {tumbling}, evict: {{ function: outliers }}, process: compare"),
            "has two inputs, and `evict` is for one",
        ),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 10s }, early: { rows: 10 } }, order_by: [price], limit: 2".into(),
            "the best rows are given once",
        ),
        (
            "",
            "key_by: [bidder], window: { tumbling: { size: 1s }, time: processing, trigger: eager }, process: median".into(),
            "transforms.f.window.trigger: trigger \"eager\" sets timers of event time, and these windows go by processing time",
        ),
        ("", format!("key_by: [bidder], {tumbling}, process: compare"), "function \"compare\" has a second input"),
        (
            "",
            format!("with: [bids], key_by: [bidder], {tumbling}, evict: {{ rows: 3 }}, process: compare"),
            "has two inputs, and `evict` is for one",
        ),
        (
            "",
            format!("key_by: [bidder], {tumbling}, order_by: [price], limit: 2, rank: window_end"),
            "the window has a column \"window_end\"",
        ),
        (
            "",
            "key_by: [bidder], window: { session: { gap: 1s } }, order_by: [price], limit: 2".into(),
            "take the best of that in the `same` window",
        ),
        (", watermark: none", format!("key_by: [bidder], {tumbling}, order_by: [price], limit: 2"), "a window needs event time;"),
    ] {
        let found = errors(watermark, &clauses);
        assert!(found.contains(expected), "{clauses}: {found}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let none = ", watermark: none";
    for (watermark, clauses, expected) in [
        (
            "",
            "process: detekt",
            "no TaskManager has a function \"detekt\"; did you mean \"detect\"?; functions: compare, detect, match",
        ),
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
