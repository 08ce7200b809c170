//! Property: a graph that is written and read again is the same graph.

use proptest::prelude::*;
use serde_json::Value;

use super::super::*;
use crate::declaration::Options;
use crate::human::HumanDuration;
use crate::plan::{BackendKind, CheckpointMode, RestartSettings};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_]{1,8}",
        "[ -~]{1,20}".prop_filter("an expression is not blank", |text| !text.trim().is_empty()),
        "\\PC{1,10}".prop_filter("an expression is not blank", |text| !text.trim().is_empty()),
        "[\\x00-\\x{2030}\"'\\\\#:{}\\[\\],&*!|>%@`\\-?]{1,12}"
            .prop_filter("an expression is not blank", |text| !text.trim().is_empty()),
        prop::sample::select(vec!["true", "1", "0x1f", "1e5", ".inf", "off", "- a", "a: b", "a #b", "a\nb\n", " a "])
            .prop_map(str::to_owned),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,6}", "\\PC{1,8}", "[ -~]{1,8}"]
        .prop_filter("a name is a name", |name| Uid::defect(name).is_none() && name != "<<" && name != "_op")
}

fn ms(min: u64) -> impl Strategy<Value = u64> {
    prop_oneof![min..min + 100_000, min..=HumanDuration::MAX_MS]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter_map("JSON has finite numbers only", |number| serde_json::Number::from_f64(number).map(Value::Number)),
        prop_oneof![text(), Just(String::new()), Just("null".into()), Just("~".into())].prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn options() -> impl Strategy<Value = Options> {
    prop::collection::vec((name(), json()), 0..4).prop_map(|entries| entries.into_iter().collect())
}

fn columns() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::btree_map(name(), text(), 1..4).prop_map(|columns| columns.into_iter().rev().collect())
}

fn bad_records() -> impl Strategy<Value = BadRecordPolicy> {
    prop_oneof![Just(BadRecordPolicy::Fail), Just(BadRecordPolicy::Drop)]
}

fn checkpoint() -> impl Strategy<Value = GraphCheckpoint> {
    let dir = prop::option::of("[a-zäö %#]{1,8}".prop_map(|name| format!("file:///data/{name}")));
    let mode = prop::option::of(prop_oneof![Just(CheckpointMode::ExactlyOnce), Just(CheckpointMode::AtLeastOnce)]);
    (
        prop::option::of(prop::option::of(ms(10))),
        prop::option::of(ms(10)),
        prop::option::of(ms(0)),
        prop::option::of(any::<u32>()),
        prop::option::of(1u32..=1_000),
        dir,
        mode,
        prop::option::of(any::<bool>()),
    )
        .prop_map(|(interval_ms, timeout_ms, min_pause_ms, tolerable_failures, num_retained, dir, mode, retain)| {
            GraphCheckpoint { interval_ms, timeout_ms, min_pause_ms, tolerable_failures, num_retained, dir, mode, retain }
        })
}

fn settings() -> impl Strategy<Value = GraphSettings> {
    let restart = prop_oneof![
        Just(RestartSettings::None),
        (1..=u32::MAX, ms(0)).prop_map(|(attempts, delay_ms)| RestartSettings::FixedDelay { attempts, delay_ms }),
    ];
    (
        prop::option::of(1u32..=100),
        prop::option::of(100u32..=32_768),
        prop::option::of(prop_oneof![Just(BackendKind::Memory), Just(BackendKind::Fs), Just(BackendKind::Rocksdb)]),
        prop::option::of(0u64..=1 << 30),
        prop::option::of(0u64..=1 << 20),
        prop::option::of(checkpoint()),
        prop::option::of(restart),
        prop::option::of(1usize..=65_536),
        prop::option::of(ms(0)),
    )
        .prop_map(|(parallelism, max_parallelism, backend, max_state, inline, checkpoint, restart, rows, timeout)| {
            GraphSettings {
                parallelism,
                max_parallelism,
                backend,
                max_state_size_bytes: max_state,
                inline_threshold_bytes: inline,
                checkpoint,
                restart,
                batch_rows_max: rows,
                buffer_timeout_ms: timeout,
            }
        })
}

fn watermark() -> impl Strategy<Value = WatermarkSetting> {
    let ms_i64 = || prop::option::of(ms(0).prop_map(|ms| ms as i64));
    let column = (prop::option::of(name()), ms_i64(), ms_i64(), prop::option::of(prop::option::of(ms(1))));
    prop_oneof![
        Just(WatermarkSetting::Default),
        Just(WatermarkSetting::None),
        column.prop_map(|(column, disorder_ms, step_ms, idleness_ms)| WatermarkSetting::Column {
            column,
            disorder_ms,
            step_ms,
            idleness_ms
        }),
    ]
}

/// Clauses of a transform, such that they make sense together.
fn clauses() -> impl Strategy<Value = TransformNode> {
    let window = prop_oneof![
        Just(GraphWindow::Same),
        Just(GraphWindow::Global),
        (ms(1), 0.0..1.0).prop_map(|(size, part)| GraphWindow::Tumbling {
            size_ms: size as i64,
            offset_ms: (size as f64 * part * 0.9) as i64
        }),
    ];
    let grouped = (
        prop::option::of(prop::collection::btree_set(name(), 1..3)),
        prop::option::of(window),
        columns(),
        prop::option::of(text()),
        any::<bool>(),
    );
    let process = (prop::option::of(prop::collection::btree_set(name(), 1..3)), text(), options());
    let worker = prop_oneof![
        Just((None, None)),
        grouped.prop_map(|grouped| (Some(grouped), None)),
        process.prop_map(|process| (None, Some(process))),
    ];
    (prop::option::of(text()), worker, prop::option::of(columns()), bad_records(), prop::option::of(1u32..=100)).prop_map(
        |(filter, (grouped, process), select, bad_records, parallelism)| {
            let mut node = TransformNode {
                uid: Uid::new(""),
                inputs: Vec::new(),
                filter,
                key_by: None,
                window: None,
                aggregate: None,
                having: None,
                process: None,
                broadcast: Vec::new(),
                select,
                changelog_full: false,
                bad_records,
                parallelism,
            };
            if let Some((key_by, window, aggregate, having, full)) = grouped {
                node.key_by = key_by.map(|columns| columns.into_iter().collect());
                node.changelog_full = full && window.is_none();
                node.window = window;
                node.aggregate = Some(aggregate);
                node.having = having;
            }
            if let Some((key_by, function, options)) = process {
                node.key_by = key_by.map(|columns| columns.into_iter().collect());
                node.process = Some(GraphProcess { function, options });
            }
            node
        },
    )
}

/// A graph in which each node reads some nodes before it, and a last sink reads all.
fn graph() -> impl Strategy<Value = JobGraph> {
    let source = ("[a-z]{3,9}", options(), watermark(), bad_records(), prop::option::of(1u32..=100));
    let sources = prop::collection::vec(source, 1..4);
    let transforms = prop::collection::vec((clauses(), any::<prop::sample::Index>()), 0..4);
    (name(), settings(), prop::collection::btree_set(name(), 8), sources, transforms, options(), bad_records()).prop_map(
        |(job, settings, names, sources, transforms, options, bad_records)| {
            let mut names = names.into_iter().map(Uid::new);
            let mut next = || names.next().expect("there are eight names");
            let mut outputs: Vec<Uid> = Vec::new();
            let sources: Vec<SourceNode> = sources
                .into_iter()
                .map(|(connector, options, watermark, bad_records, parallelism)| {
                    outputs.push(next());
                    let connector = format!("x{connector}");
                    let uid = outputs[outputs.len() - 1].clone();
                    SourceNode { uid, connector, options, watermark, bad_records, parallelism }
                })
                .collect();
            let transforms: Vec<TransformNode> = transforms
                .into_iter()
                .map(|(clauses, input)| {
                    let uid = next();
                    let inputs = outputs[input.index(outputs.len())..].to_vec();
                    let broadcast =
                        if clauses.process.is_some() { outputs[..outputs.len() - inputs.len()].to_vec() } else { vec![] };
                    outputs.push(uid.clone());
                    TransformNode { uid, inputs, broadcast, ..clauses }
                })
                .collect();
            let sink =
                SinkNode { uid: next(), inputs: outputs, connector: "xprint".into(), options, bad_records, parallelism: None };
            JobGraph { name: job, settings, sources, transforms, sinks: vec![sink], lines: Lines::default() }
        },
    )
}

fn reread(document: &str) -> JobGraph {
    let mut graph = parse(document).unwrap_or_else(|errors| panic!("{errors}\n{document}"));
    graph.lines = Lines::default();
    graph
}

proptest! {
    #[test]
    fn what_is_written_is_read(graph in graph()) {
        let json = graph.to_json();
        prop_assert_eq!(&reread(&json), &graph, "{}", json);
        let yaml = graph.to_yaml();
        prop_assert_eq!(&reread(&yaml), &graph, "{}", yaml);
    }
}
