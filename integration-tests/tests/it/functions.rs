//! Functions of users in the example's own TaskManagers: state, timers and output survive kill -9.

use std::path::Path;

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_proto::v1::{JobState, JobStatus};

const EVENTS: u64 = 300_000;

/// Alerts and sums over bids: an account is a bidder, a merchant an auction. The source is one, so that the rows of an account
/// have one order.
fn graph(out: &Path) -> String {
    let out = out.display();
    format!(
        "version: 1
name: functions
settings:
  parallelism: 4
  checkpoint: {{ interval: 150ms }}
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 50ms }}
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
sinks:
  alert-files: {{ inputs: [alerts], file: {{ path: \"{out}/alerts\", format: ndjson }} }}
  spent-files: {{ inputs: [spent], file: {{ path: \"{out}/spent\", format: ndjson }} }}
"
    )
}

fn rows_read(status: &JobStatus) -> u64 {
    status.nodes.iter().find(|node| node.uid == "bids").map_or(0, |node| node.rows_out)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_functions_give_is_the_same_whenever_a_task_manager_is_killed() -> anyhow::Result<()> {
    let setup = Setup { task_managers: 2, slots: 4, task_manager: "fraud-detection", ..Setup::default() };
    let mut cluster = Processes::start(setup).await?;
    let undisturbed = cluster.path("undisturbed");
    let job = cluster.submit(&graph(&undisturbed)).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
    let rows = |folder: &Path| -> anyhow::Result<[Vec<String>; 2]> {
        Ok([output_lines(&folder.join("alerts"))?, output_lines(&folder.join("spent"))?])
    };
    let expected = rows(&undisturbed)?;
    assert!(expected[0].len() > 10, "only {} alerts", expected[0].len());
    assert_eq!(expected[1].len() as u64, EVENTS / 50 * 46, "a sum for each payment");

    for round in 0..4 {
        let out = cluster.path(&format!("out-{round}"));
        let job = cluster.submit(&graph(&out)).await?;
        cluster.wait_for_checkpoints(&job, 1 + round).await?;
        let read = EVENTS * 46 / 50 * (round + 1) / 6;
        cluster.wait_until(&job, "a part of the rows", |status| rows_read(status) >= read || status.restarts > 0).await?;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_function_no_one_has_is_refused() -> anyhow::Result<()> {
    let setup = Setup { task_managers: 1, slots: 4, task_manager: "fraud-detection", ..Setup::default() };
    let cluster = Processes::start(setup).await?;
    let wrong = graph(&cluster.path("out"))
        .replace("function: detect", "function: detekt")
        .replace("cast(auction as varchar)", "auction");
    let error = format!("{:#}", cluster.submit(&wrong).await.unwrap_err());
    assert!(error.contains("no TaskManager has a function \"detekt\"; did you mean \"detect\"?"), "{error}");
    let wrong = wrong.replace("detekt", "detect");
    let error = format!("{:#}", cluster.submit(&wrong).await.unwrap_err());
    assert!(error.contains("column \"merchant\" is INT64, and the function takes STRING"), "{error}");
    Ok(())
}
