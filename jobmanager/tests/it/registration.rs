//! TaskManagers come, go, and are refused.

use levada_common::declaration::CustomSink;
use levada_proto::v1;
use levada_proto::v1::from_task_manager::Message as Up;
use tonic::Code;

use crate::fake::{FakeTaskManager, Fixture, graph, hello};

#[tokio::test]
async fn another_version_is_refused_naming_both() {
    let fixture = Fixture::start(&[]).await;
    for other in [v1::Hello { version: "0.0.9".into(), ..hello(1) }, v1::Hello { protocol: 77, ..hello(1) }] {
        let status = FakeTaskManager::register(&fixture.handle, other.clone()).await.err().unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(&other.version) && status.message().contains(env!("CARGO_PKG_VERSION")), "{status}");
        assert!(status.message().contains(&format!("protocol {}", other.protocol)), "{status}");
    }
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn silence_and_a_broken_stream_are_loss() {
    let mut fixture = Fixture::start(&["heartbeat.interval=20ms", "heartbeat.timeout=200ms"]).await;
    let mut silent = fixture.task_manager(2).await;
    assert_eq!(silent.welcome.heartbeat_interval_ms, 20);
    silent.end().await;
    let gone = fixture.task_manager(2).await;
    let cluster = fixture.client.describe_cluster(v1::DescribeClusterRequest {}).await.unwrap().into_inner();
    assert_eq!(cluster.task_managers.len(), 1);
    assert_eq!((cluster.task_managers[0].slots, cluster.task_managers[0].slots_free), (2, 2));
    let job = fixture.submit(&graph("one", "restart: { strategy: fixed-delay, attempts: 1, delay: 10ms }")).await.unwrap();
    fixture.wait_until(&job, |status| status.state() == v1::JobState::Deploying).await;
    drop(gone);
    let status = fixture.wait_until(&job, |status| status.state() == v1::JobState::Scheduled).await;
    assert!(status.failure.contains("is lost"), "{status:?}");
    assert!(status.waiting_for.contains("0 are free"), "{status:?}");
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_connector_that_a_task_manager_brings_can_be_used() {
    let mut fixture = Fixture::start(&[]).await;
    let document = graph("own", "").replace("nowhere", "tally");
    let status = fixture.submit(&document).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let sink = |name: &str, changelog| CustomSink { name: name.into(), options: vec![], changelog, exactly_once: false };
    let bring = |sink: CustomSink| v1::Hello { custom_sinks_json: vec![serde_json::to_string(&sink).unwrap()], ..hello(1) };
    let _first = FakeTaskManager::register(&fixture.handle, bring(sink("tally", true))).await.unwrap();
    fixture.submit(&document).await.unwrap();
    for (other, part) in [(sink("tally", false), "\"tally\" is declared otherwise"), (sink("nowhere", true), "is built in")] {
        let status = FakeTaskManager::register(&fixture.handle, bring(other)).await.err().unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(part), "{status}");
    }
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_heartbeat_is_answered_and_its_counters_are_shown() {
    let mut fixture = Fixture::start(&[]).await;
    let mut task_manager = fixture.task_manager(1).await;
    let job = fixture.submit(&graph("counted", "")).await.unwrap();
    let deploy = task_manager.deploy().await;
    task_manager.all(&deploy, v1::task_event::State::Running).await;
    let node = |uid: &str, rows_in| v1::NodeReport { uid: uid.into(), rows_in, rows_out: rows_in, ..Default::default() };
    let report = v1::TaskReport {
        task: Some(crate::fake::task_ref(&deploy, &deploy.tasks[0])),
        watermark_ms: i64::MIN,
        nodes: vec![node("numbers", 12), node("out", 12)],
        ..Default::default()
    };
    task_manager.say(Up::Heartbeat(v1::Heartbeat { sequence: 9, tasks: vec![report] })).await;
    let rows = |status: &v1::JobStatus| status.nodes.iter().map(|node| node.rows_in).collect::<Vec<_>>();
    let status = fixture.wait_until(&job, |status| rows(status) == [12, 12]).await;
    assert_eq!(status.nodes[0].watermark_ms, None);
    let metrics = fixture.http("/metrics").await;
    assert!(metrics.contains("levada_job_node_rows_in_total{") && metrics.contains("levada_task_managers 1"), "{metrics}");
    assert!(fixture.http("/jobs").await.contains("\"rows_in\":12"));
    assert!(fixture.http("/health").await.contains("\"ok\""));
    assert!(fixture.http("/jobs/nothing").await.starts_with("HTTP/1.1 404"));
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn tasks_of_a_job_that_no_one_knows_are_told_to_end() {
    let fixture = Fixture::start(&[]).await;
    let mut task_manager = fixture.task_manager(1).await;
    let attempt = v1::AttemptRef { job_id: levada_common::ids::JobId::generate().to_string(), attempt: 3, epoch: 1 };
    let task = v1::TaskRef { attempt: Some(attempt.clone()), vertex: 0, subtask: 0 };
    let report = v1::TaskReport { task: Some(task), ..Default::default() };
    task_manager.say(Up::Heartbeat(v1::Heartbeat { sequence: 1, tasks: vec![report] })).await;
    assert_eq!(task_manager.cancel().await.attempt, Some(attempt));
    fixture.handle.shutdown().await;
}
