//! G01: state larger than what an acknowledgement may carry is declined at once, with names and numbers; nothing else happens.
//! G02: what is given out at a restore does not grow by it.

use std::fs;

use levada_common::checkpoint::CheckpointMetadata;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::savepoint::uri;
use levada_proto::v1::{JobState, JobStatus};

/// Endless rows over `keys` keys, the largest payload of `payload` bytes kept for each.
fn graph(name: &str, settings: &str, keys: u64, payload: u64, rows: Option<u64>, out: Option<&std::path::Path>) -> String {
    let to = rows.map(|rows| format!("      to: {rows}\n")).unwrap_or_default();
    let sink = out.map_or("blackhole: {}".into(), |out| format!("file: {{ path: \"{}\", format: ndjson }}", out.display()));
    format!(
        "version: 1
name: {name}
settings:
{settings}
sources:
  numbers:
    generate:
      from: 0
{to}      rate: 60000
      columns: {{ k: n % {keys}, payload: \"repeat('x', {payload})\" }}
transforms:
  largest:
    inputs: [numbers]
    key_by: [k]
    aggregate: {{ payload: max(payload) }}
  keys:
    inputs: [largest]
    select: {{ k: k }}
sinks:
  out:
    inputs: [keys]
    {sink}
"
    )
}

fn last_failure(status: &JobStatus) -> String {
    status.checkpoints.as_ref().and_then(|all| all.last_failed.as_ref()).map(|last| last.failure.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_a_state_over_the_limit_is_declined_and_the_job_goes_on() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    let settings = "  checkpoint: { interval: 200ms, timeout: 10m }";
    let small = cluster.submit(&graph("small", settings, 600, 100, None, None)).await?;
    cluster.wait_for_checkpoints(&small, 2).await?;
    cluster.client().await?.cancel(&small).await?;

    let large = cluster.submit(&graph("large", settings, 60_000, 100, None, None)).await?;
    let declined = |status: &JobStatus| last_failure(status).contains("maximum permitted memory-backed state");
    let status = cluster.wait_until(&large, "a declined checkpoint", declined).await?;
    let failure = last_failure(&status);
    for part in ["maxSize=5242880", "operator \"largest\"", "state \"aggregate\"", "subtask 0", "backend: fs"] {
        assert!(failure.contains(part), "\"{part}\" is missing in: {failure}");
    }
    let failed = |status: &JobStatus| status.checkpoints.as_ref().is_some_and(|all| all.failed >= 8);
    let status = cluster.wait_until(&large, "more declined checkpoints than are tolerated", failed).await?;
    assert_eq!((status.state(), status.degraded, status.restarts), (JobState::Running, true, 0), "{}", status.degraded_reason);
    assert_eq!(cluster.client().await?.describe_cluster().await?.task_managers.len(), 1);
    cluster.client().await?.cancel(&large).await?;
    assert_eq!(cluster.wait(&large).await?.state(), JobState::Canceled);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_within_the_limit_every_key_is_restored() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    let settings = "  state: { max_state_size: 9MiB }\n  restart: { strategy: fixed-delay, delay: 50ms, attempts: 10 }\n  checkpoint: { interval: 200ms }";
    let out = cluster.path("out");
    let job = cluster.submit(&graph("restored", settings, 60_000, 100, Some(150_000), Some(&out))).await?;
    let large = |status: &JobStatus| {
        status.checkpoints.as_ref().and_then(|all| all.last_completed.as_ref()).is_some_and(|last| last.bytes > 6_000_000)
    };
    cluster.wait_until(&job, "a checkpoint of all 60,000 keys", large).await?;
    cluster.kill_task_manager(0)?;
    cluster.start_task_manager()?;
    let status = cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 1), "{}", status.failure);
    let rows = output_lines(&out)?;
    let inserts = rows.iter().filter(|row| row.contains("\"+I\"")).count();
    assert_eq!(inserts, 60_000, "a key that was forgotten appears twice, one that was invented once too often");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_many_states_that_do_not_fit_the_job_manager_together() -> anyhow::Result<()> {
    let mut setup = Setup { task_managers: 2, slots: 20, ..Setup::default() };
    setup.settings.push("jobmanager.inline_budget=64MiB".into());
    let cluster = Processes::start(setup).await?;
    let settings = "  parallelism: 40\n  checkpoint: { interval: 500ms, num_retained: 1 }";
    let graph = graph("many", settings, 120_000, 1000, None, None);
    let job = cluster.submit(&graph).await?;
    let refused = |status: &JobStatus| last_failure(status).contains("inline state of");
    let status = cluster.wait_until(&job, "a checkpoint refused by the JobManager's budget", refused).await?;
    assert!(last_failure(&status).contains("67108864"), "{}", last_failure(&status));
    assert_eq!((status.state(), status.restarts), (JobState::Running, 0), "{}", status.failure);
    cluster.client().await?.cancel(&job).await?;
    assert_eq!(cluster.wait(&job).await?.state(), JobState::Canceled);
    Ok(())
}

const LINES: u64 = 20_000;

/// Ids of four files, read by four subtasks and counted in windows, as fast as `control` lets the second sink take rows.
fn four_files(cluster: &Processes, control: &std::path::Path, out: &std::path::Path) -> anyhow::Result<String> {
    let folder = cluster.path("input");
    fs::create_dir(&folder)?;
    for file in 0..4 {
        let lines: String = (0..LINES).map(|line| format!("{{\"id\":{}}}\n", 4 * line + file)).collect();
        fs::write(folder.join(format!("{file}.ndjson")), lines)?;
    }
    Ok(format!(
        "version: 1
name: four-files
settings:
  parallelism: 4
  batch: {{ rows: 200 }}
  state: {{ backend: memory }}
  checkpoint: {{ interval: 100ms, dir: \"{}\" }}
  restart: {{ strategy: fixed-delay, attempts: 20, delay: 20ms }}
sources:
  ids:
    file: {{ path: \"{}/*.ndjson\", format: ndjson, columns: {{ id: INT64 }} }}
    watermark: {{ column: id, disorder: 10s }}
transforms:
  windows: {{ inputs: [ids], key_by: [id], window: {{ tumbling: {{ size: 1s }} }}, aggregate: {{ n: count(*) }} }}
sinks:
  out: {{ inputs: [ids], file: {{ path: \"{}\", format: ndjson }} }}
  slow: {{ inputs: [ids], slow: {{ control: \"{}\" }} }}
  nowhere: {{ inputs: [windows], blackhole: {{}} }}
",
        uri(&cluster.path("checkpoints")),
        folder.display(),
        out.display(),
        control.display()
    ))
}

/// The entries of all states of this name, and the bytes of the positions and marks that a restore gives out.
fn entries(metadata: &CheckpointMetadata, name: &str) -> (u64, u64) {
    let states = metadata.states().filter(|state| state.name == name);
    states.fold((0, 0), |(rows, bytes), state| (rows + state.rows, bytes + state.handle.length()))
}

#[tokio::test(flavor = "multi_thread")]
async fn g02_positions_and_marks_do_not_multiply_at_failovers() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let (control, out) = (cluster.path("rate"), cluster.path("out"));
    fs::write(&control, "400")?;
    let job = cluster.submit(&four_files(&cluster, &control, &out)?).await?;
    let checkpoints = uri(&cluster.path(&format!("checkpoints/{job}")));
    let mut sizes = Vec::new();
    for failovers in 0..=8 {
        let completed = |status: &JobStatus| status.checkpoints.as_ref().map_or(0, |all| all.completed);
        let before = completed(&cluster.describe(&job).await?);
        cluster.wait_for_checkpoints(&job, before + 1).await?;
        let metadata = levada_proto::snapshot::open(&checkpoints).await?.metadata;
        let (splits, marks) = (entries(&metadata, "splits"), entries(&metadata, "watermark"));
        assert_eq!((splits.0, marks.0), (4, 4), "after {failovers} failovers");
        sizes.push(splits.1 + marks.1);
        if failovers < 8 {
            cluster.kill_task_manager(cluster.running()[0])?;
            cluster.start_task_manager()?;
            let again = |status: &JobStatus| status.restarts > failovers && status.state() == JobState::Running;
            cluster.wait_until(&job, "RUNNING again", again).await?;
        }
    }
    let (first, last) = (sizes[0], sizes[8]);
    assert!(last <= first * 11 / 10, "the sizes are {sizes:?}");
    fs::remove_file(&control)?;
    cluster.finish(&job).await?;
    let mut expected: Vec<String> = (0..4 * LINES).map(|id| format!("{{\"id\":{id}}}")).collect();
    expected.sort_unstable();
    assert!(output_lines(&out)? == expected, "the ids differ");
    Ok(())
}
