//! kill -9 of TaskManagers at twenty moments: the output, as a sorted multiset of rows, is that of an undisturbed run.

use std::time::Duration;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_proto::v1::{JobState, JobStatus};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// When a TaskManager is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// While rows flow.
    Running,
    /// While a checkpoint is under way.
    Checkpoint,
    /// While the attempt after a first kill is restored.
    Restore,
    /// When nearly all rows were read.
    End,
}

const EVENTS: u64 = 400_000;
const EVENTS_PER_SECOND: u64 = 200_000;

fn graph(out: &std::path::Path) -> String {
    format!(
        "version: 1
name: kill
settings:
  parallelism: 4
  checkpoint: {{ interval: 150ms }}
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 50ms }}
sources:
  bids:
    nexmark: {{ events: {EVENTS}, table: bid, rate: {EVENTS_PER_SECOND} }}
    watermark: {{ column: dateTime, disorder: 1s }}
transforms:
  counts:
    inputs: [bids]
    key_by: [bidder]
    window: {{ tumbling: {{ size: 1s }} }}
    aggregate: {{ bids: count(*), total: sum(price), highest: max(price) }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        out.display()
    )
}

fn rows_read(status: &JobStatus) -> u64 {
    status.nodes.iter().find(|node| node.uid == "bids").map_or(0, |node| node.rows_out)
}

async fn wait_for_moment(cluster: &Processes, job: &str, moment: Moment, rng: &mut StdRng) -> anyhow::Result<()> {
    cluster.wait_for_checkpoints(job, 1).await?;
    match moment {
        Moment::Running | Moment::Restore => {
            // A moment drawn at random is the point here: nothing announces it.
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..700))).await;
        }
        Moment::Checkpoint => {
            let running = |status: &JobStatus| status.checkpoints.as_ref().is_some_and(|all| all.in_progress > 0);
            cluster.wait_until(job, "a checkpoint under way", running).await?;
        }
        Moment::End => {
            let nearly = EVENTS * 92 / 100 * rng.random_range(88..100) / 100;
            cluster.wait_until(job, "nearly all rows read", |status| rows_read(status) >= nearly || status.restarts > 0).await?;
        }
    }
    Ok(())
}

async fn kill_one(cluster: &mut Processes, rng: &mut StdRng) -> anyhow::Result<()> {
    let running = cluster.running();
    cluster.kill_task_manager(running[rng.random_range(0..running.len())])?;
    cluster.start_task_manager()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_the_same_whenever_a_task_manager_is_killed() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 3, ..Setup::default() }).await?;
    let undisturbed = cluster.path("undisturbed");
    let job = cluster.submit(&graph(&undisturbed)).await?;
    assert_eq!(cluster.wait(&job).await?.state(), JobState::Finished);
    let expected = output_lines(&undisturbed)?;
    assert!(expected.len() > 1000, "only {} rows", expected.len());

    let moments = [Moment::Running, Moment::Checkpoint, Moment::Restore, Moment::End];
    let mut restarts = 0;
    for round in 0..20u64 {
        let moment = moments[round as usize % moments.len()];
        let seed = 0xD15E_A5E0 + round;
        println!("round {round}: {moment:?}, seed {seed:#x}");
        let mut rng = StdRng::seed_from_u64(seed);
        let out = cluster.path(&format!("out-{round}"));
        let job = cluster.submit(&graph(&out)).await?;
        wait_for_moment(&cluster, &job, moment, &mut rng).await?;
        kill_one(&mut cluster, &mut rng).await?;
        if let Moment::Restore = moment {
            cluster
                .wait_until(&job, "a restart", |status| status.restarts >= 1 && status.state() != JobState::Restarting)
                .await?;
            kill_one(&mut cluster, &mut rng).await?;
        }
        let status = cluster.wait(&job).await?;
        assert_eq!(status.state(), JobState::Finished, "round {round}, seed {seed:#x}: {}\n{}", status.failure, cluster.logs());
        restarts += status.restarts;
        let rows = output_lines(&out)?;
        assert_eq!(rows.len(), expected.len(), "round {round}, seed {seed:#x}: number of rows");
        assert!(rows == expected, "round {round}, seed {seed:#x}: the rows differ");
        assert_eq!(leftovers(&out)?, Vec::<String>::new(), "round {round}, seed {seed:#x}");
    }
    assert!(restarts >= 18, "only {restarts} restarts: the kills did not hit the job");
    Ok(())
}
