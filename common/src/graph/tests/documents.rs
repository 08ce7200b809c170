//! Good documents mean what they say.

use serde_json::json;

use super::super::*;
use super::GOOD;
use crate::plan::{
    AlignSpec, BackendKind, CheckpointMode, FiringSpec, FutureRows, RestartSettings, TimeUnit, Trigger, WindowTime,
};

#[test]
fn a_job_is_read() {
    let graph = parse(GOOD).expect("a good job");
    assert_eq!(graph.name, "words");
    assert_eq!(graph.sources[0].connector, "file");
    assert_eq!(graph.sources[0].options, *json!({ "path": "in.txt" }).as_object().expect("a map"));
    assert_eq!(graph.transforms[0].select, Some(vec![("word".into(), "unnest(split(line))".into())]));
    assert_eq!(graph.transforms[1].key_by, Some(vec!["word".into()]));
    assert_eq!(graph.transforms[1].aggregate, Some(vec![("n".into(), "count(*)".into())]));
    assert_eq!(graph.sinks[0].inputs, [InputRef::new("counts")]);
    assert_eq!(graph.lines.of("transforms.counts.aggregate.n"), 13);
    assert_eq!(graph.lines.of("transforms.counts.aggregate.n.deeper"), 13);
    assert_eq!(graph.lines.of("transforms.counts.key_by[0]"), 12);
}

#[test]
fn everything_that_can_be_set_is_read() {
    let document = "\
version: 1
name: all
settings:
  parallelism: 2
  max_parallelism: 256
  state: { backend: hashmap, max_state_size: 1MiB, inline_threshold: 0 }
  checkpoint:
    interval: 1h30m
    timeout: 10s
    min_pause: 100ms
    tolerable_failures: 0
    num_retained: 2
    dir: file:///var/ck
    mode: at-least-once
    retention: delete
  restart: { strategy: fixed-delay, attempts: 3, delay: 0s }
  batch: { rows: 100, timeout: 5ms }
sources:
  bids:
    nexmark: { events: 10, nested: { list: [1, 2.5, true, null, '3', -7] } }
    watermark: { column: dateTime, disorder: 2s, step: 0s, idleness: off }
    bad_records: drop
    parallelism: 4
transforms:
  per_minute:
    inputs: bids
    where: price > 100
    window: { tumbling: { size: 1m, offset: 10s } }
    aggregate: { z: count(*), a: max(price) }
    having: z > 1
    select:
      zero: 0
      text: 'it''s'
      nothing: null
sinks:
  out: { inputs: [per_minute], blackhole: }
";
    let graph = parse(document).expect("a good job");
    let settings = &graph.settings;
    assert_eq!((settings.parallelism, settings.max_parallelism), (Some(2), Some(256)));
    assert_eq!(settings.backend, Some(BackendKind::Fs));
    assert_eq!((settings.max_state_size_bytes, settings.inline_threshold_bytes), (Some(1 << 20), Some(0)));
    assert_eq!((settings.batch_rows_max, settings.buffer_timeout_ms), (Some(100), Some(5)));
    assert_eq!(settings.restart, Some(RestartSettings::FixedDelay { attempts: 3, delay_ms: 0 }));
    let checkpoint = GraphCheckpoint {
        interval_ms: Some(Some(5_400_000)),
        timeout_ms: Some(10_000),
        min_pause_ms: Some(100),
        tolerable_failures: Some(0),
        num_retained: Some(2),
        dir: Some("file:///var/ck".into()),
        mode: Some(CheckpointMode::AtLeastOnce),
        retain: Some(false),
    };
    assert_eq!(settings.checkpoint, Some(checkpoint));
    let source = &graph.sources[0];
    assert_eq!(source.options["nested"], json!({ "list": [1, 2.5, true, null, "3", -7] }));
    assert_eq!((source.bad_records, source.parallelism), (BadRecordPolicy::Drop, Some(4)));
    let watermark = GraphWatermark {
        column: Some("dateTime".into()),
        disorder_ms: Some(2_000),
        step_ms: Some(0),
        idleness_ms: Some(None),
        ..GraphWatermark::default()
    };
    assert_eq!(source.watermark, WatermarkSetting::Event(watermark));
    let transform = &graph.transforms[0];
    assert_eq!(transform.window, Some(GraphWindow::Tumbling { size_ms: 60_000, offset_ms: 10_000 }));
    let select = [("zero", "0"), ("text", "it's"), ("nothing", "null")];
    assert_eq!(transform.select, Some(select.map(|(name, sql)| (name.to_owned(), sql.to_owned())).to_vec()));
    assert_eq!(transform.aggregate.as_ref().map(|calls| calls[0].0.as_str()), Some("z"), "maps keep their order");
    assert!(graph.sinks[0].options.is_empty());
}

#[test]
fn short_forms_are_read() {
    let with = |setting: &str| {
        parse(&GOOD.replace("name: words", &format!("name: words\nsettings: {{ {setting} }}"))).expect(setting).settings
    };
    assert_eq!(with("checkpoint:").checkpoint, Some(GraphCheckpoint::default()));
    assert_eq!(with("checkpoint: {}").checkpoint, Some(GraphCheckpoint::default()));
    assert_eq!(with("checkpoint: false").checkpoint, None);
    assert_eq!(with("checkpoint: { interval: off }").checkpoint.and_then(|checkpoint| checkpoint.interval_ms), Some(None));
    assert_eq!(with("restart: none").restart, Some(RestartSettings::None));
    let window = |window: &str| {
        let document = GOOD.replace("key_by: [word]", &format!("window: {window}"));
        parse(&document).expect(window).transforms[1].window.clone()
    };
    assert_eq!(window("same"), Some(GraphWindow::Same));
    assert_eq!(window("global"), Some(GraphWindow::Global));
    let sliding = GraphWindow::Sliding { size_ms: 10_000, slide_ms: 2_000, offset_ms: 500 };
    assert_eq!(window("{ sliding: { size: 10s, slide: 2s, offset: 500ms } }"), Some(sliding));
    let cumulate = GraphWindow::Cumulate { size_ms: 3_600_000, step_ms: 300_000, offset_ms: 0 };
    assert_eq!(window("{ cumulate: { size: 1h, step: 5m } }"), Some(cumulate));
    assert_eq!(window("{ session: { gap: 10s } }"), Some(GraphWindow::Session { gap: GraphGap::Fixed { ms: 10_000 } }));
    assert_eq!(window("{ count: { size: 10 } }"), Some(GraphWindow::Count { size: 10, slide: 10 }));
    assert_eq!(window("{ count: { size: 10, slide: 3 } }"), Some(GraphWindow::Count { size: 10, slide: 3 }));
    let sql = GraphGap::Sql("(10 * n)".into());
    assert_eq!(window("{ session: { gap: (10 * n) } }"), Some(GraphWindow::Session { gap: sql }));
    let firing = |window: &str| {
        let document = GOOD.replace("key_by: [word]", &format!("window: {window}"));
        let graph = parse(&document).expect(window);
        (graph.transforms[1].window.clone(), graph.transforms[1].firing)
    };
    let trigger = |every_ms, rows| Some(Trigger { every_ms, rows });
    let full = "{ same: {}, early: { every: 10s, rows: 1000 }, allowed_lateness: 5m, late: { rows: 7 }, accumulate: false }";
    let spec = FiringSpec {
        early: trigger(Some(10_000), Some(1000)),
        lateness_ms: 300_000,
        late: trigger(None, Some(7)),
        accumulate: false,
    };
    assert_eq!(firing(full), (Some(GraphWindow::Same), Some(spec)));
    let spec = FiringSpec { early: None, lateness_ms: 1, late: None, accumulate: true };
    assert_eq!(firing("{ global: , allowed_lateness: 1ms }"), (Some(GraphWindow::Global), Some(spec)));
    assert_eq!(firing("{ global: {}, allowed_lateness: 0s }"), (Some(GraphWindow::Global), None));
    let time = |window: &str| {
        let document = GOOD.replace("key_by: [word]", &format!("window: {window}"));
        parse(&document).expect(window).transforms[1].window_time.clone()
    };
    let zone = WindowTime { processing: false, time_zone: Some("Europe/Berlin".into()) };
    assert_eq!(time("{ tumbling: { size: 1d }, time_zone: Europe/Berlin }"), zone);
    assert_eq!(time("{ cumulate: { size: 1d, step: 15m }, time: event, time_zone: Europe/Berlin }"), zone);
    let processing = WindowTime { processing: true, time_zone: None };
    assert_eq!(time("{ session: { gap: 5m }, time: processing }"), processing);
    assert_eq!(time("{ sliding: { size: 5m, slide: 1m } }"), WindowTime::default());
    let source =
        parse(&GOOD.replace("file: { path: in.txt }", "file: { path: in.txt }\n    watermark: none")).expect("no watermark");
    assert_eq!(source.sources[0].watermark, WatermarkSetting::None);
    let watermark = |written: &str| {
        let document = GOOD.replace("file: { path: in.txt }", &format!("file: {{ path: in.txt }}\n    watermark: {written}"));
        parse(&document).expect(written).sources[0].watermark.clone()
    };
    let ascending = GraphWatermark { disorder_ms: Some(0), ..GraphWatermark::default() };
    assert_eq!(watermark("{ disorder: ascending }"), WatermarkSetting::Event(ascending));
    let full = GraphWatermark {
        column: Some("t".into()),
        unit: Some(TimeUnit::Microseconds),
        expression: Some("t - interval '5 s'".into()),
        max_future_ms: Some(Some(60_000)),
        future_rows: Some(FutureRows::BadRecord),
        align: Some(AlignSpec { group: "g".into(), max_drift_ms: 60_000 }),
        ..GraphWatermark::default()
    };
    let written = "{ column: t, unit: µs, expression: \"t - interval '5 s'\", max_future: 1m, future_rows: bad_record, align: { group: g, max_drift: 1m } }";
    assert_eq!(watermark(written), WatermarkSetting::Event(full));
}

#[test]
fn json_is_read_with_its_escapes_tabs_and_lines() {
    let document = "{\n\t\"version\": 1, \"name\": \"\\ud83d\\ude00 \\u00e4\\n\",\n\t\"sources\": { \"a\": { \"generate\": { \"n\": 1e3, \"rate\": -0.5, \"big\": 18446744073709551615 } } },\r\n\t\"sinks\": { \"b\": { \"inputs\": [\"a\"],\n\t\t\"print\": null } } }\n";
    let message = super::errors(document);
    assert_eq!(message, "line 2: name: a name must not contain \\n");
    let graph = parse(&document.replace("\\n\"", "\"")).expect("a good job");
    assert_eq!(graph.name, "😀 ä");
    assert_eq!(graph.sources[0].options["big"], json!(u64::MAX));
    assert_eq!(graph.sources[0].options["n"], json!(1000.0));
    assert_eq!(graph.lines.of("sinks.b.print"), 5);
}

#[test]
fn braces_without_quotes_are_yaml() {
    parse("{version: 1, name: x, sources: {a: {generate: {}}}, sinks: {b: {inputs: [a], print: {},},},}").expect("flow style");
}

#[test]
fn unusual_names_are_names() {
    for name in ["ä", "😀", "a b", "x.y", "123", "on", "~x"] {
        let graph = parse(&GOOD.replace("counts", &format!("\"{name}\""))).expect(name);
        assert_eq!(graph.transforms[1].uid.as_str(), name);
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_do_no_harm() {
    let graph = parse(&format!("\u{feff}{}", GOOD.replace('\n', "\r\n"))).expect("a good job");
    assert_eq!(graph.lines.of("sinks.out"), 15);
}
