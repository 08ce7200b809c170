//! Windows that go by clocks on real processes, with a kill in the middle: days of a time zone, and windows of processing time.

use std::collections::BTreeMap;
use std::path::Path;

use levada_common::time::calendar::parse_timestamp;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_proto::v1::JobStatus;
use serde_json::Value;

/// Rows of three keys, counted in a window; `ts` is SQL of the row's number `n`.
fn graph(cluster: &Processes, backend: &str, (rows, rate): (u64, u64), ts: &str, window: &str, out: &Path) -> String {
    format!(
        "version: 1
name: clocks
settings:
  parallelism: 3
  batch: {{ rows: 64, timeout: 10ms }}
  state: {{ backend: {backend}, inline_threshold: 0 }}
  checkpoint: {{ interval: 50ms, dir: \"file://{}\" }}
  restart: {{ strategy: fixed-delay, delay: 10ms, attempts: 10 }}
sources:
  numbers:
    generate: {{ from: 0, to: {rows}, rate: {rate}, columns: {{ k: n % 3, ts: \"{ts}\" }} }}
    watermark: {{ column: ts, disorder: 1d }}
transforms:
  counts:
    inputs: [numbers]
    key_by: [k]
    window: {window}
    aggregate: {{ n: count(*) }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        cluster.path("checkpoints").display(),
        out.display()
    )
}

/// Runs a job, kills a TaskManager in the middle, and gives count by key and window.
async fn finish_after_a_kill(cluster: &mut Processes, graph: &str, out: &Path) -> anyhow::Result<BTreeMap<(i64, i64, i64), u64>> {
    let job = cluster.submit(graph).await?;
    cluster.wait_for_checkpoints(&job, 3).await?;
    cluster.kill_task_manager(cluster.running()[0])?;
    cluster.start_task_manager()?;
    let status: JobStatus = cluster.finish(&job).await?;
    assert_eq!(status.restarts, 1, "{}", status.failure);
    let mut counts = BTreeMap::new();
    for line in output_lines(out)? {
        let row: Value = serde_json::from_str(&line)?;
        let time = |name: &str| row[name].as_str().and_then(parse_timestamp).expect("a time");
        let window = (row["k"].as_i64().expect("a key"), time("window_start"), time("window_end"));
        let before = counts.insert(window, row["n"].as_u64().expect("a count"));
        assert_eq!(before, None, "{window:?} fired twice");
    }
    Ok(counts)
}

/// Ten minutes between two rows, from a midnight before the clocks are put back on.
#[tokio::test(flavor = "multi_thread")]
async fn days_of_a_time_zone_are_those_of_its_calendar() -> anyhow::Result<()> {
    const DAYS: u64 = 20;
    let first = parse_timestamp("2026-10-15T22:00:00Z").expect("a time");
    let ts = format!("{first} + n * 600000");
    for backend in ["fs", "rocksdb"] {
        let mut cluster = Processes::start(Setup::default()).await?;
        let out = cluster.path("out");
        let window = "{ tumbling: { size: 1d }, time_zone: Europe/Berlin }";
        let graph = graph(&cluster, backend, (DAYS * 144 + 6, 2_000), &ts, window, &out);
        let counts = finish_after_a_kill(&mut cluster, &graph, &out).await?;
        let mut start = first;
        for day in 0..DAYS as i64 {
            let hours = if day == 9 { 25 } else { 24 };
            let end = start + hours * 3_600_000;
            for key in 0..3 {
                assert_eq!(counts.get(&(key, start, end)), Some(&(hours as u64 * 2)), "{backend}: day {day}, key {key}");
            }
            start = end;
        }
        assert_eq!(counts.len() as u64, DAYS * 3, "{backend}");
    }
    Ok(())
}

/// Every row is in one window, whenever a TaskManager is killed, and no window fires twice; all rows are older than any clock.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_processing_time_have_every_row_once() -> anyhow::Result<()> {
    const ROWS: u64 = 30_000;
    let windows = [
        ("memory", "{ tumbling: { size: 100ms }, time: processing }"),
        ("rocksdb", "{ tumbling: { size: 100ms }, time: processing }"),
        ("fs", "{ cumulate: { size: 1h, step: 1h }, time: processing }"),
        ("fs", "{ session: { gap: 300ms }, time: processing }"),
    ];
    for (at, (backend, window)) in windows.into_iter().enumerate() {
        let mut cluster = Processes::start(Setup::default()).await?;
        let out = cluster.path(&format!("out-{at}"));
        let graph = graph(&cluster, backend, (ROWS, 15_000), "n", window, &out);
        let counts = finish_after_a_kill(&mut cluster, &graph, &out).await?;
        assert_eq!(counts.values().sum::<u64>(), ROWS, "{window} on {backend}: {counts:?}");
        let is_now = |(_, start, _): &(i64, i64, i64)| *start > parse_timestamp("2020-01-01T00:00:00Z").expect("a time");
        assert!(counts.keys().all(is_now), "{window}: {counts:?}");
        assert!(at > 1 || counts.len() > 9, "{window} on {backend}: {counts:?}");
    }
    Ok(())
}
