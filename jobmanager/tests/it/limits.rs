//! Snapshots that are too large are declined at once, by name and size, and the job goes on.

use bytes::Bytes;
use levada_proto::v1;
use levada_proto::v1::task_event::State;
use tonic::Code;

use crate::fake::{FakeTaskManager, Fixture, graph, inline, task_ref};

async fn running(fixture: &mut Fixture, settings: &str) -> (FakeTaskManager, v1::Deploy, String) {
    let mut task_manager = fixture.task_manager(1).await;
    let job = fixture.submit(&graph("large", settings)).await.unwrap();
    let deploy = task_manager.deploy().await;
    task_manager.all(&deploy, State::Running).await;
    (task_manager, deploy, job)
}

/// Acknowledges the next checkpoint with these states and waits for the failure that names `parts`.
async fn declined(fixture: &mut Fixture, settings: &str, states: Vec<v1::StateHandleMessage>, parts: &[&str]) {
    let (mut task_manager, deploy, job) = running(fixture, settings).await;
    let checkpoint = task_manager.trigger().await.checkpoint;
    let accepted = task_manager.acknowledge(task_ref(&deploy, &deploy.tasks[0]), checkpoint, states).await.unwrap();
    assert!(!accepted);
    let status = fixture.wait_until(&job, |status| status.checkpoints.as_ref().unwrap().last_failed.is_some()).await;
    assert_eq!(status.state(), v1::JobState::Running);
    assert!(status.degraded, "{status:?}");
    let failure = status.checkpoints.unwrap().last_failed.unwrap().failure;
    for part in parts {
        assert!(failure.contains(part), "\"{part}\" is not in: {failure}");
    }
}

#[tokio::test]
async fn a_state_over_its_limit_is_declined() {
    let mut fixture = Fixture::start(&[]).await;
    let states = vec![inline("splits", Bytes::from(vec![0; (5 << 20) + 1]))];
    let parts = ["Size=5242881, maxSize=5242880", "operator \"numbers\", state \"splits\", subtask 0", "backend: fs"];
    declined(&mut fixture, "checkpoint: { interval: 20ms }", states, &parts).await;
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn state_over_the_budget_is_declined_naming_the_largest() {
    let mut fixture = Fixture::start(&["jobmanager.inline_budget=1MiB"]).await;
    let states = (1..=6).map(|n| inline(&format!("s{n}"), Bytes::from(vec![0; n * 100_000]))).collect();
    let parts = ["2100000 bytes", "0 of 1048576", "state \"s6\", subtask 0: 600000 bytes", "state \"s2\""];
    declined(&mut fixture, "checkpoint: { interval: 20ms }", states, &parts).await;
    let cluster = fixture.client.describe_cluster(v1::DescribeClusterRequest {}).await.unwrap().into_inner();
    assert_eq!((cluster.inline_used_bytes, cluster.inline_budget_bytes), (0, 1 << 20));
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_message_over_the_frame_is_refused_by_the_transport() {
    let mut fixture = Fixture::start(&["rpc.frame_size=256KiB"]).await;
    let (mut task_manager, deploy, _job) = running(&mut fixture, "checkpoint: { interval: 20ms }").await;
    assert_eq!(task_manager.welcome.frame_size_bytes, 256 << 10);
    let checkpoint = task_manager.trigger().await.checkpoint;
    let task = task_ref(&deploy, &deploy.tasks[0]);
    let status = task_manager.acknowledge(task, checkpoint, vec![inline("splits", Bytes::from(vec![0; 256 << 10]))]).await;
    assert_eq!(status.unwrap_err().code(), Code::OutOfRange);
    fixture.handle.shutdown().await;
}
