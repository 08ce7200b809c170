//! The exchange between processes: inputs frozen for alignment, many channels, a window of millions of keys before a slow sink.

use std::fs;
use std::time::{Duration, Instant};

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_proto::v1::{JobState, JobStatus};

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_completes_while_inputs_are_frozen_for_alignment() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = format!(
        "version: 1
name: frozen
settings:
  parallelism: 4
  checkpoint: {{ interval: 100ms, timeout: 60s }}
sources:
  fast:
    generate: {{ from: 0, to: 4000000, columns: {{ n: n % 1000 }} }}
  late:
    sluggish: {{}}
transforms:
  counts:
    inputs: [fast, late]
    key_by: [n]
    window: global
    aggregate: {{ rows: count(*) }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        out.display()
    );
    let job = cluster.submit(&graph).await?;
    cluster.wait_for_checkpoints(&job, 3).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
    let rows = output_lines(&out)?;
    let total: u64 = rows
        .iter()
        .map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON")["rows"].as_u64().expect("a count"))
        .sum();
    assert_eq!((rows.len(), total), (1000, 4_000_000 + 4 * 20));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_by_sixty_four_channels_run() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 2, slots: 32, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = format!(
        "version: 1
name: wide
settings:
  parallelism: 64
  checkpoint: {{ interval: 500ms }}
sources:
  numbers:
    generate: {{ from: 0, to: 1000000, columns: {{ k: n % 5000, v: n }} }}
transforms:
  sums:
    inputs: [numbers]
    key_by: [k]
    window: global
    aggregate: {{ n: count(*), total: sum(v) }}
sinks:
  out:
    inputs: [sums]
    file: {{ path: \"{}\", format: ndjson }}
",
        out.display()
    );
    let job = cluster.submit(&graph).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}\n{}", status.failure, cluster.logs());
    let mut expected: Vec<String> =
        (0..5000u64).map(|key| format!("{{\"k\":{key},\"n\":200,\"total\":{}}}", 200 * key + 5000 * (199 * 200 / 2))).collect();
    expected.sort_unstable();
    assert!(output_lines(&out)? == expected, "the sums differ");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_of_five_million_keys_fires_within_memory_and_can_be_cancelled() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    let control = cluster.path("rate");
    fs::write(&control, "20000")?;
    let graph = format!(
        "version: 1
name: large-window
settings:
  parallelism: 1
sources:
  numbers:
    generate: {{ from: 0, to: 5000001, columns: {{ k: n, ts: \"case when n < 5000000 then 0 else 100000 end\" }} }}
    watermark: {{ column: ts }}
transforms:
  counts:
    inputs: [numbers]
    key_by: [k]
    window: {{ tumbling: {{ size: 10s }} }}
    aggregate: {{ n: count(*) }}
sinks:
  out:
    inputs: [counts]
    slow: {{ control: \"{}\" }}
",
        control.display()
    );
    let job = cluster.submit(&graph).await?;
    let fired = |status: &JobStatus| status.nodes.iter().any(|node| node.uid == "out" && node.rows_in > 0);
    cluster.wait_until(&job, "the window fires", fired).await?;
    let pid = cluster.task_manager_pid(0).expect("it runs");
    let memory = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = memory
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .and_then(|line| line.split_whitespace().nth(1))
        .expect("Linux shows it");
    // Keys, counts and index of the window itself are about 40 bytes a key; its rows as a whole would be 48 more.
    assert!(peak.parse::<u64>()? < 420 << 10, "the TaskManager held {peak} KiB");
    let start = Instant::now();
    cluster.client().await?.cancel(&job).await?;
    assert_eq!(cluster.wait(&job).await?.state(), JobState::Canceled);
    assert!(start.elapsed() < Duration::from_secs(5), "cancelled after {:?}", start.elapsed());
    Ok(())
}
