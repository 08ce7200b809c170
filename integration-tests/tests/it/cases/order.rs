//! Order of a key's rows over exchanges, and one key that has nearly all of them.

use std::collections::BTreeMap;
use std::path::Path;

use levada::client::{Afterwards, RestoreFrom};
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::savepoint::take;
use levada_proto::v1::{JobState, JobStatus};
use serde_json::Value;

use super::node;

const KEYS: u64 = 100;
const ROWS_A_KEY: u64 = 2_000;

/// Numbered rows of each key, counted twice with an exchange before each; a count that is not the row's number falls out.
fn graph(cluster: &Processes, parallelism: u32, out: &Path) -> String {
    format!(
        "version: 1
name: order
settings:
  parallelism: {parallelism}
  max_parallelism: 128
  batch: {{ rows: 512, timeout: 10ms }}
  state: {{ backend: fs }}
  checkpoint: {{ interval: 50ms, dir: \"file://{}\" }}
  restart: {{ strategy: fixed-delay, delay: 10ms, attempts: 20 }}
sources:
  numbers:
    generate: {{ from: 0, to: {}, rate: 60000, columns: {{ k: \"cast(n % {KEYS} as varchar)\", v: \"n / {KEYS}\" }} }}
    parallelism: 1
transforms:
  first: {{ inputs: [numbers], key_by: [k], process: count }}
  kept: {{ inputs: [first], where: n = v + 1, select: {{ k: k, v: v }} }}
  second: {{ inputs: [kept], key_by: [k], process: count, parallelism: {} }}
sinks:
  out: {{ inputs: [second], file: {{ path: \"{}\", format: ndjson }} }}
",
        cluster.path("checkpoints").display(),
        KEYS * ROWS_A_KEY,
        parallelism + 1,
        out.display()
    )
}

/// The rows of each key, none of which comes before an earlier one of its file.
fn check(out: &Path) -> anyhow::Result<()> {
    let mut found = BTreeMap::<String, Vec<i64>>::new();
    for entry in std::fs::read_dir(out)? {
        let path = entry?.path();
        let is_visible = path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
        if !path.is_file() || !is_visible {
            continue;
        }
        let mut last = BTreeMap::<String, i64>::new();
        for line in std::fs::read_to_string(&path)?.lines() {
            let row: Value = serde_json::from_str(line)?;
            let (key, number) = (row["k"].as_str().unwrap_or_default().to_string(), row["v"].as_i64().unwrap_or(-1));
            assert_eq!(row["n"].as_i64(), Some(number + 1), "{line} of {}", path.display());
            assert!(last.insert(key.clone(), number).is_none_or(|last| last < number), "{line} of {}", path.display());
            found.entry(key).or_default().push(number);
        }
    }
    assert_eq!(found.len() as u64, KEYS);
    for (key, mut numbers) in found {
        numbers.sort_unstable();
        assert_eq!(numbers, (0..ROWS_A_KEY as i64).collect::<Vec<_>>(), "key {key}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g67_a_keys_rows_stay_in_order() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 8, ..Setup::default() }).await?;
    let (out, rows) = (cluster.path("out"), KEYS * ROWS_A_KEY);
    let read = |rows: u64| move |status: &JobStatus| node(status, "numbers").rows_out > rows;
    let mut from: Option<RestoreFrom> = None;
    for (round, parallelism) in [4, 7, 1].into_iter().enumerate() {
        let graph = graph(&cluster, parallelism, &out);
        let job = match from.take() {
            None => cluster.submit(&graph).await?,
            Some(from) => cluster.client().await?.submit_from(&graph, "order", 0, from).await?,
        };
        cluster.wait_for_checkpoints(&job, 2).await?;
        cluster.kill_task_manager(cluster.running()[0])?;
        cluster.start_task_manager()?;
        cluster.wait_until(&job, "RUNNING again", |status| status.restarts == 1 && status.state() == JobState::Running).await?;
        if round == 2 {
            cluster.finish(&job).await?;
            break;
        }
        cluster.wait_until(&job, "further rows", read(rows / 10)).await?;
        let savepoint = take(&cluster, &job, Afterwards::Stops).await?;
        cluster.wait(&job).await?;
        from = Some(RestoreFrom { from: savepoint.path, ..RestoreFrom::default() });
    }
    check(&out)
}

/// G68: the subtask that has one hot key is seen by its rows, and every count is right.
#[tokio::test(flavor = "multi_thread")]
async fn g68_one_key_that_gets_nearly_everything_is_seen() -> anyhow::Result<()> {
    const ROWS: u64 = 200_000;
    let cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = format!(
        "version: 1
name: skew
settings:
  parallelism: 4
  checkpoint: {{ interval: 100ms }}
sources:
  numbers:
    generate: {{ from: 0, to: {ROWS}, rate: 100000, columns: {{ k: \"concat('k', cast(case when n % 10 < 9 then 0 else n % 100 end as varchar))\", v: n }} }}
transforms:
  counts: {{ inputs: [numbers], key_by: [k], process: count, select: {{ k: k, n: n }} }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        out.display()
    );
    let job = cluster.submit(&graph).await?;
    let status = cluster.wait_for_checkpoints(&job, 5).await?;
    assert_eq!(status.checkpoints.map_or(0, |all| all.failed), 0);
    let status = cluster.finish(&job).await?;
    let rows: Vec<u64> = status.tasks.iter().filter(|task| task.name.contains("counts")).map(|task| task.rows_in).collect();
    let (hot, all) = (rows.iter().max().copied().unwrap_or_default(), rows.iter().sum::<u64>());
    assert!(rows.len() == 4 && hot > 0 && hot * 100 >= all * 85, "{rows:?}");
    let newest = |key: &str| -> anyhow::Result<u64> {
        let mut newest = 0;
        for line in output_lines(&out)? {
            let row: Value = serde_json::from_str(&line)?;
            if row["k"] == key {
                newest = row["n"].as_u64().unwrap_or_default().max(newest);
            }
        }
        Ok(newest)
    };
    assert_eq!((newest("k0")?, newest("k99")?), (ROWS * 9 / 10, ROWS / 100));
    Ok(())
}
