//! Aggregates whose state does not fit the memory that they have: in databases, whenever a TaskManager is killed.

use std::path::Path;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_proto::v1::{JobState, JobStatus};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const ROWS: u64 = 240_000;

/// Counts per key in windows of 60,000 rows, running and at the end; each key comes once in 20,000 rows.
fn graph(backend: &str, checkpoints: &Path, out: &Path) -> String {
    let (checkpoints, out) = (checkpoints.display(), out.display());
    format!(
        "version: 1
name: databases
settings:
  parallelism: 2
  state: {{ backend: {backend}, inline_threshold: 0 }}
  checkpoint: {{ interval: 250ms, dir: \"file://{checkpoints}\" }}
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 50ms }}
sources:
  numbers:
    generate: {{ from: 0, to: {ROWS}, rate: 60000, columns: {{ k: n % 20000, ts: n, v: n }} }}
    watermark: {{ column: ts, disorder: 0s }}
transforms:
  windows:
    inputs: [numbers]
    key_by: [k]
    window: {{ tumbling: {{ size: 60s }} }}
    aggregate: {{ n: count(*), total: sum(v), last: last(v order by ts) }}
  everything:
    inputs: [numbers]
    key_by: [k]
    window: global
    aggregate: {{ n: count(*), total: sum(v), least: min(v) }}
sinks:
  windows_out:
    inputs: [windows]
    file: {{ path: \"{out}/windows\", format: ndjson }}
  everything_out:
    inputs: [everything]
    file: {{ path: \"{out}/everything\", format: ndjson }}
"
    )
}

/// What both sinks have published.
fn published(out: &Path) -> anyhow::Result<[Vec<String>; 2]> {
    Ok([output_lines(&out.join("windows"))?, output_lines(&out.join("everything"))?])
}

fn rows_read(status: &JobStatus) -> u64 {
    status.nodes.iter().find(|node| node.uid == "numbers").map_or(0, |node| node.rows_out)
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_larger_than_memory_give_the_same_whenever_a_task_manager_is_killed() -> anyhow::Result<()> {
    let mut settings = Setup::default().settings;
    // The overlays have a tenth of what the groups take.
    settings.extend(["taskmanager.memory.total=256MiB", "rocksdb.memory_fraction=0.005"].map(String::from));
    let mut cluster = Processes::start(Setup { settings, ..Setup::default() }).await?;
    let (checkpoints, undisturbed) = (cluster.path("checkpoints"), cluster.path("undisturbed"));
    let job = cluster.submit(&graph("memory", &checkpoints, &undisturbed)).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
    let expected = published(&undisturbed)?;
    assert_eq!(expected.each_ref().map(Vec::len), [4 * 20_000, 20_000]);

    let mut restarts = 0;
    for round in 0..3u64 {
        let seed = 0xDA7A_BA5E + round;
        println!("round {round}, seed {seed:#x}");
        let mut rng = StdRng::seed_from_u64(seed);
        let out = cluster.path(&format!("out-{round}"));
        let job = cluster.submit(&graph("rocksdb", &checkpoints, &out)).await?;
        cluster.wait_for_checkpoints(&job, 1).await?;
        let reached = ROWS * rng.random_range(20..90) / 100;
        cluster.wait_until(&job, "rows read", |status| rows_read(status) >= reached || status.restarts > 0).await?;
        let running = cluster.running();
        cluster.kill_task_manager(running[rng.random_range(0..running.len())])?;
        cluster.start_task_manager()?;
        let status = cluster.wait(&job).await?;
        assert_eq!(status.state(), JobState::Finished, "round {round}, seed {seed:#x}: {}\n{}", status.failure, cluster.logs());
        restarts += status.restarts;
        let rows = published(&out)?;
        assert_eq!(rows.each_ref().map(Vec::len), expected.each_ref().map(Vec::len), "round {round}, seed {seed:#x}");
        assert!(rows == expected, "round {round}, seed {seed:#x}: the rows differ");
        for folder in ["windows", "everything"] {
            assert_eq!(leftovers(&out.join(folder))?, Vec::<String>::new(), "round {round}, seed {seed:#x}");
        }
    }
    assert!(restarts >= 2, "only {restarts} restarts: the kills did not hit the job");
    Ok(())
}
