//! G47: a source that is read faster than another piles up windows, unless the two keep pace.

use std::sync::atomic::{AtomicU64, Ordering};

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_proto::v1::{JobState, JobStatus};

use super::node;

/// Rows of each source: two hours of event time.
const ROWS: u64 = 16_666;

/// Rows of a source in a minute of event time, each of another key.
const ROWS_A_MINUTE: u64 = 139;

/// Two sources of the same rows, one of them slow, counted in windows of a minute; `align` as written.
fn graph(cluster: &Processes, name: &str, align: &str) -> String {
    let source = |options: &str| {
        format!(
            "generate: {{ from: 0, to: {ROWS}, columns: {{ k: n % 1000, ts: n * 432 }}{options} }}\n    watermark: {{ column: ts, idleness: off{align} }}"
        )
    };
    format!(
        "version: 1
name: {name}
settings:
  batch: {{ rows: 32, timeout: 10ms }}
  checkpoint: {{ interval: 100ms }}
  restart: {{ strategy: fixed-delay, delay: 10ms, attempts: 10 }}
sources:
  fast:
    {}
  slow:
    {}
transforms:
  counts:
    inputs: [fast, slow]
    key_by: [k]
    window: {{ tumbling: {{ size: 1m }} }}
    aggregate: {{ n: count(*) }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        source(""),
        source(", rate: 4000"),
        cluster.path(name).display()
    )
}

/// The sum of all counts that the job published.
fn total(cluster: &Processes, name: &str) -> anyhow::Result<u64> {
    let count = |row: &String| {
        let row: serde_json::Value = serde_json::from_str(row)?;
        Ok(row["n"].as_u64().unwrap_or_default())
    };
    output_lines(&cluster.path(name))?.iter().map(count).sum()
}

/// Remembers the greatest number of keys that `counts` has had.
fn watch<'a>(keys: &'a AtomicU64, until: impl Fn(&JobStatus) -> bool + 'a) -> impl Fn(&JobStatus) -> bool + 'a {
    move |status| {
        keys.fetch_max(node(status, "counts").state_keys, Ordering::Relaxed);
        until(status)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g47_sources_that_keep_pace_do_not_pile_up_windows() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 1, ..Setup::default() }).await?;
    let apart = AtomicU64::new(0);
    let job = cluster.submit(&graph(&cluster, "apart", "")).await?;
    let held_back = |status: &JobStatus| status.tasks.iter().any(|task| task.held_back_by.starts_with("\"slow"));
    cluster.wait_until(&job, "time that the slow source holds back", watch(&apart, held_back)).await?;
    let done = |status: &JobStatus| status.state() == JobState::Finished;
    cluster.wait_until(&job, "the end", watch(&apart, done)).await?;
    assert_eq!(total(&cluster, "apart")?, 2 * ROWS);
    assert!(apart.load(Ordering::Relaxed) > 10 * ROWS_A_MINUTE, "the slow source is not slow: {apart:?} keys");

    let together = AtomicU64::new(0);
    let job = cluster.submit(&graph(&cluster, "together", ", align: { group: g, max_drift: 1m }")).await?;
    let paused = |status: &JobStatus| status.tasks.iter().any(|task| task.paused_for == "g");
    let status = cluster.wait_until(&job, "a source that waits", watch(&together, paused)).await?;
    let held = |task: &levada_proto::v1::TaskStatus| task.watermark_lag_ms.is_some() || task.watermark_ms.is_none();
    assert!(status.tasks.iter().all(held), "{:?}", status.tasks);
    let read = |status: &JobStatus| {
        node(status, "slow").rows_out > ROWS / 4 && status.checkpoints.as_ref().is_some_and(|all| all.completed > 2)
    };
    cluster.wait_until(&job, "a quarter read", watch(&together, read)).await?;
    cluster.kill_task_manager(cluster.running()[0])?;
    cluster.start_task_manager()?;
    let status = cluster.wait_until(&job, "the end", watch(&together, done)).await?;
    assert_eq!((total(&cluster, "together")?, status.restarts), (2 * ROWS, 1));
    let keys = together.load(Ordering::Relaxed);
    assert!(keys > 0 && keys <= 4 * ROWS_A_MINUTE, "{keys} keys; a minute of both sources has {}", 2 * ROWS_A_MINUTE);
    Ok(())
}
