//! A machine that stands still for longer than the heartbeat's timeout: no process takes another for dead, and jobs go on.

use std::process::Command;
use std::time::Duration;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::{JobState, JobStatus};

fn signal(pids: &[u32], name: &str) -> anyhow::Result<()> {
    let done = Command::new("kill").arg(name).args(pids.iter().map(u32::to_string)).status()?;
    anyhow::ensure!(done.success(), "kill {name} {pids:?}: {done}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_a_standstill_of_the_whole_machine() -> anyhow::Result<()> {
    let mut setup = Setup { task_managers: 2, slots: 1, ..Setup::default() };
    setup.settings = vec!["heartbeat.interval=100ms".into(), "heartbeat.timeout=600ms".into()];
    let cluster = Processes::start(setup).await?;
    let out = cluster.path("out");
    let stream = StreamA {
        rows: 400_000,
        rate: Some(100_000),
        settings: "  parallelism: 2\n  checkpoint: { interval: 100ms, timeout: 1m }\n  restart: { strategy: none }".into(),
    };
    let job = cluster.submit(&stream.graph(&out)).await?;
    for round in 0..3 {
        let seen = |status: &JobStatus| status.checkpoints.as_ref().map_or(0, |all| all.completed);
        let before = seen(&cluster.describe(&job).await?);
        cluster.wait_for_checkpoints(&job, before + 2).await?;
        let pids = cluster.pids();
        assert_eq!(pids.len(), 3);
        signal(&pids, "-STOP")?;
        // The standstill itself: three times the heartbeat's timeout.
        tokio::time::sleep(Duration::from_millis(1_800)).await;
        signal(&pids, "-CONT")?;
        let status = cluster.describe(&job).await?;
        assert_eq!((status.state(), status.restarts), (JobState::Running, 0), "round {round}: {}", status.failure);
    }
    let status = cluster.finish(&job).await?;
    assert_eq!(status.restarts, 0, "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());
    Ok(())
}
