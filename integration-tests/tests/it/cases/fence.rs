//! G39: messages of an old attempt that arrive late never touch the new one.

use std::fs;
use std::time::Duration;

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::proxy;
use levada_integration_tests::streams::StreamB;
use levada_proto::v1::JobState;

const FAILURES: u32 = 15;

#[tokio::test(flavor = "multi_thread")]
async fn g39_late_messages_of_an_old_attempt_are_dropped() -> anyhow::Result<()> {
    let seed = 0x39;
    println!("seed {seed:#x}");
    let mut setup = Setup { task_managers: 0, slots: 2, ..Setup::default() };
    setup.settings.push("heartbeat.timeout=20s".into());
    let mut cluster = Processes::start(setup).await?;
    let slow_line = proxy::start(cluster.address().parse()?, Duration::from_millis(300), seed).await?;
    for _ in 0..2 {
        cluster.start_task_manager_for(&slow_line.to_string())?;
    }
    cluster.wait_for_task_managers(2).await?;
    let (control, out) = (cluster.path("fail"), cluster.path("out"));
    let stream = StreamB {
        rows: 200_000,
        rate: Some(10_000),
        settings: "  parallelism: 3\n  checkpoint: { interval: 100ms, tolerable_failures: 1000 }\n  restart: { strategy: fixed-delay, delay: 0ms, attempts: 1000 }".into(),
    };
    let graph =
        stream.graph(&out) + &format!("  failing:\n    inputs: [ids]\n    failing: {{ control: \"{}\" }}\n", control.display());
    let job = cluster.submit(&graph).await?;
    for failure in 1..=FAILURES {
        cluster.wait_until(&job, "RUNNING", |status| status.state() == JobState::Running).await?;
        let before = cluster.client().await?.describe(&job).await?.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&job, before + 1).await?;
        fs::write(&control, "")?;
        let status = cluster.wait_until(&job, "one more restart", |status| status.restarts >= failure).await?;
        assert_eq!(status.restarts, failure, "{}", status.failure);
        assert!(status.failure.contains("told to fail by"), "a failure of another kind: {}", status.failure);
    }
    let status = cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, FAILURES), "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the ids differ");
    Ok(())
}
