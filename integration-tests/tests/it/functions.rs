//! Functions of users in the example's own TaskManagers: state, timers and output survive kill -9.

use std::path::Path;

use levada::client::{Afterwards, RestoreFrom};
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::savepoint::take;
use levada_proto::v1::{JobState, JobStatus};

const EVENTS: u64 = 300_000;

/// Alerts, sums and sittings over bids: an account is a bidder, a merchant an auction. The source is one, so that the rows of an account
/// have one order.
fn graph(out: &Path, settings: &str) -> String {
    let out = out.display();
    format!(
        "version: 1
name: functions
settings:
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 50ms }}
{settings}
sources:
  bids:
    nexmark: {{ events: {EVENTS}, table: bid, rate: 150000 }}
    watermark: {{ column: dateTime, disorder: 100ms }}
    parallelism: 1
transforms:
  payments:
    inputs: [bids]
    parallelism: 1
    select: {{ account: cast(bidder as varchar), merchant: cast(auction as varchar), amount: price / 100, at: dateTime }}
  alerts:
    inputs: [payments]
    key_by: [account]
    process: {{ function: detect, options: {{ large: 700000, within_ms: 200 }} }}
  spent:
    inputs: [payments]
    key_by: [account]
    process: spent
  sittings:
    inputs: [payments]
    key_by: [account]
    window: {{ session: {{ gap: 100ms }}, trigger: {{ function: alarm, options: {{ limit: 2000000 }} }} }}
    process: sitting
sinks:
  alert-files: {{ inputs: [alerts], file: {{ path: \"{out}/alerts\", format: ndjson }} }}
  spent-files: {{ inputs: [spent], file: {{ path: \"{out}/spent\", format: ndjson }} }}
  sitting-files: {{ inputs: [sittings], file: {{ path: \"{out}/sittings\", format: ndjson }} }}
"
    )
}

/// Settings of a job whose state is on this backend.
fn settings(cluster: &Processes, parallelism: u32, backend: &str) -> String {
    let checkpoints = cluster.path("checkpoints");
    format!(
        "  parallelism: {parallelism}
  max_parallelism: 128
  state: {{ backend: {backend}, inline_threshold: 0 }}
  checkpoint: {{ interval: 150ms, dir: \"file://{}\" }}",
        checkpoints.display()
    )
}

fn rows_read(status: &JobStatus) -> u64 {
    status.nodes.iter().find(|node| node.uid == "bids").map_or(0, |node| node.rows_out)
}

/// The alerts, the sums and the sittings, sorted.
fn rows(folder: &Path) -> anyhow::Result<[Vec<String>; 3]> {
    for sink in ["alerts", "spent", "sittings"] {
        assert_eq!(leftovers(&folder.join(sink))?, Vec::<String>::new());
    }
    let lines = |sink: &str| output_lines(&folder.join(sink));
    Ok([lines("alerts")?, lines("spent")?, lines("sittings")?])
}

/// What an undisturbed job on the memory backend gives.
async fn expected_rows(cluster: &Processes) -> anyhow::Result<[Vec<String>; 3]> {
    let undisturbed = cluster.path("undisturbed");
    let job = cluster.submit(&graph(&undisturbed, "  parallelism: 4\n  checkpoint: { interval: 150ms }")).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
    let expected = rows(&undisturbed)?;
    assert!(expected[0].len() > 10, "only {} alerts", expected[0].len());
    assert_eq!(expected[1].len() as u64, EVENTS / 50 * 46, "a sum for each payment");
    assert!(expected[2].len() > 1_000, "only {} sittings", expected[2].len());
    Ok(expected)
}

/// Runs jobs whose TaskManagers are killed in the middle, each at another moment.
async fn kill_in_the_middle(cluster: &mut Processes, backend: &str, rounds: u64) -> anyhow::Result<()> {
    let expected = expected_rows(cluster).await?;
    let settings = settings(cluster, 4, backend);
    for round in 0..rounds {
        let out = cluster.path(&format!("out-{round}"));
        let job = cluster.submit(&graph(&out, &settings)).await?;
        cluster.wait_for_checkpoints(&job, 1 + round).await?;
        let read = EVENTS * 46 / 50 * (round + 1) / 6;
        cluster.wait_until(&job, "a part of the rows", |status| rows_read(status) >= read || status.restarts > 0).await?;
        let from_disk = cluster.figure("levada_node_store_hits_total").await;
        assert!(backend != "rocksdb" || from_disk > 0.0, "round {round}: nothing left memory");
        // The busy one of the two: the job fits either.
        for number in cluster.running() {
            cluster.kill_task_manager(number)?;
        }
        cluster.start_task_manager()?;
        cluster.start_task_manager()?;
        let status = cluster.wait(&job).await?;
        assert_eq!(status.state(), JobState::Finished, "round {round}: {}\n{}", status.failure, cluster.logs());
        assert!(status.restarts >= 1, "round {round}: the kill did not hit the job");
        assert!(rows(&out)? == expected, "round {round}: the rows differ");
    }
    Ok(())
}

/// A cluster whose databases have hardly any memory before them.
fn hardly_any_memory() -> Setup {
    let mut setup = Setup { task_managers: 2, slots: 4, task_manager: "fraud-detection", ..Setup::default() };
    setup.settings.extend(["taskmanager.memory.total=512MiB".into(), "rocksdb.memory_fraction=0.001".into()]);
    setup
}

#[tokio::test(flavor = "multi_thread")]
async fn what_functions_give_is_the_same_whenever_a_task_manager_is_killed() -> anyhow::Result<()> {
    let setup = Setup { task_managers: 2, slots: 4, task_manager: "fraud-detection", ..Setup::default() };
    let mut cluster = Processes::start(setup).await?;
    kill_in_the_middle(&mut cluster, "memory", 4).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_functions_give_is_the_same_on_rocksdb_with_hardly_any_memory() -> anyhow::Result<()> {
    let mut cluster = Processes::start(hardly_any_memory()).await?;
    kill_in_the_middle(&mut cluster, "rocksdb", 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_go_from_rocksdb_to_files_and_back_by_savepoints() -> anyhow::Result<()> {
    let cluster = Processes::start(hardly_any_memory()).await?;
    let expected = expected_rows(&cluster).await?;
    let out = cluster.path("out");
    let mut place = String::new();
    let legs = [("rocksdb", 4), ("fs", 2), ("rocksdb", 3), ("rocksdb", 1)];
    for (leg, (backend, parallelism)) in legs.into_iter().enumerate() {
        // Slow enough that rows are left for the last leg, however late a leg is stopped.
        let graph = graph(&out, &settings(&cluster, parallelism, backend)).replace("rate: 150000", "rate: 30000");
        let restore = RestoreFrom { from: place.clone(), drop_state: Vec::new() };
        let job = cluster.client().await?.submit_from(&graph, "test.yaml", 0, restore).await?;
        if leg + 1 < legs.len() {
            cluster.wait_until(&job, "a part of the rows", |status| rows_read(status) >= 10_000).await?;
            place = take(&cluster, &job, Afterwards::Stops).await?.path;
        }
        let status = cluster.wait(&job).await?;
        assert_eq!(status.state(), JobState::Finished, "{backend}: {}\n{}", status.failure, cluster.logs());
    }
    assert!(rows(&out)? == expected, "the rows differ");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_function_no_one_has_is_refused() -> anyhow::Result<()> {
    let setup = Setup { task_managers: 1, slots: 4, task_manager: "fraud-detection", ..Setup::default() };
    let cluster = Processes::start(setup).await?;
    let wrong = graph(&cluster.path("out"), "  parallelism: 4")
        .replace("function: detect", "function: detekt")
        .replace("cast(auction as varchar)", "auction");
    let error = format!("{:#}", cluster.submit(&wrong).await.unwrap_err());
    assert!(error.contains("no TaskManager has a function \"detekt\"; did you mean \"detect\"?"), "{error}");
    let wrong = wrong.replace("detekt", "detect");
    let error = format!("{:#}", cluster.submit(&wrong).await.unwrap_err());
    assert!(error.contains("column \"merchant\" is INT64, and the function takes STRING"), "{error}");
    Ok(())
}
