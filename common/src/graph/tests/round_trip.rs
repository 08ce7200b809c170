//! Property: a graph that is written and read again is the same graph.

use proptest::prelude::*;
use serde_json::Value;

use super::super::*;
use crate::declaration::Options;
use crate::human::HumanDuration;
use crate::plan::{
    AlignSpec, BackendKind, CheckpointMode, Evict, FiringSpec, FutureRows, JoinKind, RestartSettings, TimeUnit, TopSpec, Trigger,
    WindowTime,
};

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
    let ms_i64 = || ms(0).prop_map(|ms| ms as i64);
    let units = vec![TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds];
    let format = prop_oneof![
        Just((None, None)),
        prop::sample::select(units).prop_map(|unit| (Some(unit), None)),
        prop::sample::select(vec!["Europe/Berlin", "+02:00"]).prop_map(|zone| (None, Some(zone.to_owned()))),
    ];
    let rule = prop_oneof![
        Just((None, None)),
        ms_i64().prop_map(|disorder| (Some(disorder), None)),
        text().prop_map(|sql| (None, Some(sql))),
    ];
    let future = prop_oneof![
        Just((None, None)),
        Just((Some(None), None)),
        (prop::option::of(ms(0)), prop::sample::select(vec![FutureRows::Pass, FutureRows::BadRecord]))
            .prop_map(|(max, rows)| (max.map(Some), Some(rows))),
    ];
    let align = (name(), ms(1)).prop_map(|(group, max_drift_ms)| AlignSpec { group, max_drift_ms });
    let pace = (prop::option::of(ms_i64()), prop::option::of(prop::option::of(ms(1))), prop::option::of(align));
    let event = (prop::option::of(name()), format, rule, future, pace).prop_map(|(column, format, rule, future, pace)| {
        let ((unit, time_zone), (disorder_ms, expression), (max_future_ms, future_rows)) = (format, rule, future);
        let (step_ms, idleness_ms, align) = pace;
        let watermark = GraphWatermark {
            column,
            unit,
            time_zone,
            disorder_ms,
            expression,
            step_ms,
            idleness_ms,
            max_future_ms,
            future_rows,
            align,
        };
        WatermarkSetting::Event(watermark)
    });
    prop_oneof![Just(WatermarkSetting::Default), Just(WatermarkSetting::None), event]
}

fn window() -> BoxedStrategy<GraphWindow> {
    let window = prop_oneof![
        Just(GraphWindow::Same),
        Just(GraphWindow::Global),
        (ms(1), 0.0..1.0).prop_map(|(size, part)| GraphWindow::Tumbling {
            size_ms: size as i64,
            offset_ms: (size as f64 * part * 0.9) as i64
        }),
        (ms(1), 0.0..1.0, 0.0..1.0).prop_map(|(size, one, other)| {
            let slide_ms = ((size as f64 * one) as i64).max(1);
            GraphWindow::Sliding { size_ms: size as i64, slide_ms, offset_ms: (slide_ms as f64 * other * 0.9) as i64 }
        }),
        (1i64..10_000, 1i64..50, 0.0..1.0).prop_map(|(step_ms, steps, part)| {
            let size_ms = step_ms * steps;
            GraphWindow::Cumulate { size_ms, step_ms, offset_ms: (size_ms as f64 * part * 0.9) as i64 }
        }),
        (1u32..u32::MAX, 0.0..1.0)
            .prop_map(|(size, part)| GraphWindow::Count { size, slide: ((f64::from(size) * part) as u32).max(1) }),
        ms(1).prop_map(|ms| GraphWindow::Session { gap: GraphGap::Fixed { ms: ms as i64 } }),
        text().prop_map(|sql| GraphWindow::Session { gap: GraphGap::Sql(format!("x + {sql}")) }),
    ];
    window.boxed()
}

/// When a window gives results, where it says anything.
fn firing() -> BoxedStrategy<Option<FiringSpec>> {
    let trigger = || {
        prop_oneof![
            ms(1).prop_map(|ms| Trigger { every_ms: Some(ms as i64), rows: None }),
            (1..=u32::MAX).prop_map(|rows| Trigger { every_ms: None, rows: Some(rows) }),
            (ms(1), 1u32..5).prop_map(|(ms, rows)| Trigger { every_ms: Some(ms as i64), rows: Some(rows) }),
        ]
    };
    let spec = (prop::option::of(trigger()), ms(0), prop::option::of(trigger()), any::<bool>()).prop_map(
        |(early, lateness, late, accumulate)| {
            let lateness_ms = lateness as i64;
            let late = late.filter(|_| lateness_ms > 0);
            let says = early.is_some() || lateness_ms > 0;
            says.then_some(FiringSpec { early, lateness_ms, late, accumulate })
        },
    );
    prop::option::of(spec).prop_map(Option::flatten).boxed()
}

const DAY_MS: i64 = 86_400_000;

/// What time a window goes by, where that can be said.
fn window_time(window: &GraphWindow) -> impl Strategy<Value = WindowTime> + use<> {
    let (takes_time, takes_zone) = match window {
        GraphWindow::Same | GraphWindow::Global | GraphWindow::Count { .. } => (false, false),
        GraphWindow::Session { .. } => (true, false),
        GraphWindow::Tumbling { size_ms, .. } => (true, size_ms % DAY_MS == 0 || DAY_MS % size_ms == 0),
        GraphWindow::Cumulate { size_ms, step_ms, .. } => {
            (true, [size_ms, step_ms].into_iter().all(|ms| ms % DAY_MS == 0 || DAY_MS % ms == 0))
        }
        GraphWindow::Sliding { size_ms, slide_ms, .. } => (true, size_ms % DAY_MS == 0 && slide_ms % DAY_MS == 0),
    };
    (any::<bool>(), any::<bool>()).prop_map(move |(processing, zone)| WindowTime {
        processing: processing && takes_time,
        time_zone: (zone && takes_zone).then(|| "Europe/Berlin".into()),
    })
}

/// A window, and what time it goes by.
fn timed_window() -> impl Strategy<Value = (GraphWindow, WindowTime)> {
    let days = (1i64..9, 1i64..9).prop_map(|(slides, days)| GraphWindow::Sliding {
        size_ms: slides * days * DAY_MS,
        slide_ms: days * DAY_MS,
        offset_ms: 3_600_000,
    });
    prop_oneof![4 => window(), 1 => days].prop_flat_map(|window| {
        let time = window_time(&window);
        (Just(window), time)
    })
}

/// A join, whose right side is filled in later, and a window where it has no interval.
fn join() -> impl Strategy<Value = (GraphJoin, Option<GraphWindow>)> {
    let interval = (ms(0), ms(0), any::<bool>()).prop_map(|(one, other, negative)| {
        let (least, greatest) = (one.min(other) as i64, one.max(other) as i64);
        let (from_ms, to_ms) = if negative { (-greatest, -least) } else { (-least, greatest) };
        GraphInterval { from_ms, to_ms }
    });
    let scope = prop_oneof![
        any::<bool>().prop_map(|lookup| (None, None, lookup)),
        interval.prop_map(|interval| (Some(interval), None, false)),
        window().prop_map(|window| (None, Some(window), false)),
    ];
    let pairs = || prop::collection::btree_map(name(), name(), 1..4).prop_map(|pairs| pairs.into_iter().rev().collect());
    (prop::sample::select(JoinKind::ALL.to_vec()), pairs(), scope, prop::option::of(pairs())).prop_map(
        |(kind, on, (within, window, lookup), take)| {
            let take = take.filter(|_| kind.gives_pairs());
            (GraphJoin { with: Vec::new(), kind, on, within, lookup, take }, window)
        },
    )
}

fn top() -> impl Strategy<Value = GraphTop> {
    let order = prop::collection::btree_map("[a-z_]{1,6}", any::<bool>(), 1..4).prop_map(|order| order.into_iter().collect());
    (order, 1..=TopSpec::LIMIT_MAX, prop::option::of(name())).prop_map(|(order, limit, rank)| GraphTop {
        order,
        limit,
        rank,
        with_ties: false,
    })
}

/// Names and conditions, `else` among the last ones.
fn split() -> impl Strategy<Value = Vec<(String, Option<String>)>> {
    (columns(), any::<bool>()).prop_map(|(branches, with_else)| {
        let last = branches.len() - 1;
        let sql = |at: usize, sql: String| (!(with_else && at == last)).then(|| format!("x + {sql}"));
        branches.into_iter().enumerate().map(|(at, (name, text))| (name, sql(at, text))).collect()
    })
}

fn part() -> impl Strategy<Value = GraphProcess> {
    (text(), options()).prop_map(|(function, options)| GraphProcess { function, options })
}

fn evict() -> impl Strategy<Value = GraphEvict> {
    prop_oneof![
        (1..=u32::MAX).prop_map(|rows| GraphEvict::Last(Evict::Rows { rows })),
        ms(1).prop_map(|ms| GraphEvict::Last(Evict::Time { ms: ms as i64 })),
        part().prop_map(GraphEvict::Function),
    ]
}

/// What a transform does beside filtering and selecting.
#[derive(Debug, Clone)]
enum Work {
    Nothing,
    Group(
        Option<Vec<String>>,
        Option<(GraphWindow, WindowTime, Option<FiringSpec>)>,
        Vec<(String, String)>,
        Option<String>,
        bool,
    ),
    Process(Option<Vec<String>>, String, Options, bool),
    ProcessWindow(String, GraphWindow, Option<GraphEvict>, Option<GraphProcess>),
    Join(GraphJoin, Option<GraphWindow>, u64),
    Top(Option<Vec<String>>, GraphTop, bool),
    WindowTop(Option<Vec<String>>, GraphTop, GraphWindow),
    Deduplicate(Vec<String>, GraphDeduplicate, Option<u64>),
}

/// Clauses of a transform, such that they make sense together.
fn clauses() -> impl Strategy<Value = TransformNode> {
    let keys = || prop::option::of(prop::collection::btree_set(name(), 1..3).prop_map(|keys| keys.into_iter().collect()));
    let timed = (timed_window(), firing()).prop_map(|((window, time), firing)| {
        let firing = firing.filter(|_| !time.processing);
        (window, time, firing)
    });
    let grouped = (keys(), prop::option::of(timed), columns(), prop::option::of(text()), any::<bool>());
    let work = prop_oneof![
        Just(Work::Nothing),
        grouped.prop_map(|(keys, window, calls, having, full)| Work::Group(keys, window, calls, having, full)),
        (keys(), text(), options(), any::<bool>()).prop_map(|(keys, function, options, connects)| {
            let connects = connects && keys.is_some();
            Work::Process(keys, function, options, connects)
        }),
        (text(), window(), prop::option::of(evict()), prop::option::of(part()))
            .prop_map(|(function, window, evict, trigger)| { Work::ProcessWindow(function, window, evict, trigger) }),
        (join(), ms(1)).prop_map(|((join, window), ttl)| Work::Join(join, window, ttl)),
        (keys(), top(), any::<bool>()).prop_map(|(keys, top, full)| Work::Top(keys, top, full)),
        (keys(), top(), any::<bool>(), window())
            .prop_map(|(keys, top, with_ties, window)| { Work::WindowTop(keys, GraphTop { with_ties, ..top }, window) }),
        (prop::collection::btree_set(name(), 1..3), any::<[bool; 2]>(), prop::option::of(ms(1))).prop_map(
            |(keys, [last, by_event_time], ttl)| {
                Work::Deduplicate(keys.into_iter().collect(), GraphDeduplicate { last, by_event_time }, ttl)
            }
        ),
    ];
    let rows = (prop::option::of(text()), prop::option::of(columns()), prop::option::of(split()));
    (rows, work, bad_records(), prop::option::of(1u32..=100)).prop_map(
        |((filter, select, split), work, bad_records, parallelism)| {
            let mut node = TransformNode {
                uid: Uid::new(""),
                inputs: Vec::new(),
                filter,
                join: None,
                evict: None,
                with: Vec::new(),
                key_by: None,
                with_key: None,
                window: None,
                firing: None,
                trigger: None,
                window_time: WindowTime::default(),
                aggregate: None,
                having: None,
                process: None,
                broadcast: Vec::new(),
                top: None,
                deduplicate: None,
                ttl_ms: None,
                select,
                split,
                changelog_full: false,
                bad_records,
                parallelism,
            };
            match work {
                Work::Nothing => {}
                Work::Group(key_by, window, aggregate, having, full) => {
                    (node.key_by, node.aggregate, node.having) = (key_by, Some(aggregate), having);
                    let replaces = |(_, _, firing): &(_, _, Option<FiringSpec>)| firing.is_some_and(|firing| firing.accumulate);
                    node.changelog_full = full && window.as_ref().is_none_or(replaces);
                    if let Some((window, time, firing)) = window {
                        (node.window, node.window_time, node.firing) = (Some(window), time, firing);
                    }
                }
                Work::Process(key_by, function, options, connects) => {
                    // Names of the second input, which is filled in later.
                    let others = |keys: &Vec<String>| keys.iter().map(|key| format!("other {key}")).collect();
                    node.with_key = key_by.as_ref().filter(|_| connects).map(others);
                    (node.key_by, node.process) = (key_by, Some(GraphProcess { function, options }));
                }
                Work::ProcessWindow(function, window, evict, trigger) => {
                    node.trigger = trigger;
                    let process = GraphProcess { function, options: Options::new() };
                    (node.process, node.window, node.evict) = (Some(process), Some(window), evict);
                }
                Work::Join(join, window, ttl_ms) => {
                    node.ttl_ms = (window.is_none() && join.within.is_none() && !join.lookup).then_some(ttl_ms);
                    (node.join, node.window) = (Some(join), window);
                }
                Work::Top(key_by, top, full) => (node.key_by, node.top, node.changelog_full) = (key_by, Some(top), full),
                Work::WindowTop(key_by, top, window) => {
                    (node.key_by, node.top, node.window) = (key_by, Some(top), Some(window));
                }
                Work::Deduplicate(key_by, deduplicate, ttl_ms) => {
                    (node.key_by, node.deduplicate, node.ttl_ms) = (Some(key_by), Some(deduplicate), ttl_ms);
                }
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
            let mut outputs: Vec<InputRef> = Vec::new();
            let sources: Vec<SourceNode> = sources
                .into_iter()
                .map(|(connector, options, watermark, bad_records, parallelism)| {
                    let uid = next();
                    outputs.push(InputRef { node: uid.clone(), output: None });
                    let connector = format!("x{connector}");
                    SourceNode { uid, connector, options, watermark, bad_records, parallelism }
                })
                .collect();
            let transforms: Vec<TransformNode> = transforms
                .into_iter()
                .map(|(mut clauses, input)| {
                    let uid = next();
                    if let Some(join) = &mut clauses.join {
                        join.with = vec![outputs[0].clone()];
                    }
                    let with = if clauses.with_key.is_some() { vec![outputs[0].clone()] } else { Vec::new() };
                    let inputs = outputs[input.index(outputs.len())..].to_vec();
                    let broadcast =
                        if clauses.process.is_some() { outputs[..outputs.len() - inputs.len()].to_vec() } else { vec![] };
                    outputs.push(InputRef { node: uid.clone(), output: None });
                    let sides = clauses.split.iter().flatten().map(|(output, _)| output.clone());
                    outputs.extend(sides.map(|output| InputRef { node: uid.clone(), output: Some(output) }));
                    TransformNode { uid, inputs, with, broadcast, ..clauses }
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
