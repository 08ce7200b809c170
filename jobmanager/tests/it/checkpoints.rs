//! A job's life with checkpoints, from its submission to its end.

use std::time::Duration;

use bytes::Bytes;
use levada_common::ids::CheckpointId;
use levada_proto::v1::from_task_manager::Message as Up;
use levada_proto::v1::task_event::State;
use levada_proto::{metadata, v1};
use tonic::Code;

use crate::fake::{FakeTaskManager, Fixture, PATIENCE, graph, in_file, inline, task_ref};

/// Acknowledges a triggered checkpoint for every task of the deployment.
async fn acknowledge_all(
    task_manager: &mut FakeTaskManager,
    deploy: &v1::Deploy,
    checkpoint: u64,
    state: &v1::StateHandleMessage,
) {
    for task in &deploy.tasks {
        let accepted = task_manager.acknowledge(task_ref(deploy, task), checkpoint, vec![state.clone()]).await.unwrap();
        assert!(accepted, "checkpoint {checkpoint}");
    }
}

#[tokio::test]
async fn a_job_runs_from_submission_to_its_final_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::start(&[]).await;
    let mut task_manager = fixture.task_manager(1).await;
    let uri = format!("file://{}", dir.path().display());
    let settings = format!("state: {{ backend: fs }}, checkpoint: {{ interval: 20ms, num_retained: 1, dir: \"{uri}\" }}");
    let job = fixture.submit(&graph("whole", &settings)).await.unwrap();
    let deploy = task_manager.deploy().await;
    let splits: Vec<&String> = deploy.tasks.iter().flat_map(|task| &task.splits).collect();
    assert_eq!(splits, ["first", "second"]);
    assert_eq!(deploy.restored_checkpoint, 0);
    task_manager.all(&deploy, State::Running).await;

    let trigger = task_manager.trigger().await;
    assert_eq!(trigger.directory, format!("{uri}/{job}"));
    assert_eq!(trigger.checkpoint, 1);
    let folder = dir.path().join(&job).join("chk-1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("state"), "rows").unwrap();
    acknowledge_all(&mut task_manager, &deploy, 1, &in_file("chk-1/state")).await;
    let notify = task_manager.notify().await;
    assert!(notify.completed && notify.checkpoint == 1 && !notify.r#final, "{notify:?}");
    let written = Bytes::from(std::fs::read(folder.join("_metadata")).unwrap());
    assert_eq!(metadata::decode(written).unwrap().id, CheckpointId(1));

    let second = task_manager.trigger().await.checkpoint;
    acknowledge_all(&mut task_manager, &deploy, second, &in_file("chk-1/state")).await;
    task_manager.all(&deploy, State::Finishing).await;
    let mut notified = v1::NotifyCheckpoint { checkpoint: 1, ..Default::default() };
    while !notified.r#final {
        let checkpoint = task_manager.trigger().await.checkpoint;
        acknowledge_all(&mut task_manager, &deploy, checkpoint, &inline("splits", Bytes::new())).await;
        // A task that becomes FINISHING is triggered again for what it has not acknowledged.
        while notified.checkpoint < checkpoint {
            notified = task_manager.notify().await;
        }
    }
    task_manager.all(&deploy, State::Finished).await;
    let status = fixture.wait_until(&job, |status| status.state() == v1::JobState::Finished).await;
    let checkpoints = status.checkpoints.unwrap();
    assert_eq!(checkpoints.last_completed.unwrap().id, notified.checkpoint);
    assert_eq!(checkpoints.triggered, checkpoints.completed + checkpoints.failed);
    let deleted = async {
        while folder.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, deleted).await.expect("a replaced checkpoint is deleted");
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn inline_state_is_fetched_in_pieces_by_the_next_attempt_only() {
    let mut fixture = Fixture::start(&[]).await;
    let mut task_manager = fixture.task_manager(1).await;
    let settings = "checkpoint: { interval: 20ms }, restart: { strategy: fixed-delay, attempts: 3, delay: 10ms }";
    let job = fixture.submit(&graph("restored", settings)).await.unwrap();
    let deploy = task_manager.deploy().await;
    task_manager.all(&deploy, State::Running).await;
    let trigger = task_manager.trigger().await;
    assert_eq!(trigger.directory, "");
    let state: Bytes = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    acknowledge_all(&mut task_manager, &deploy, trigger.checkpoint, &inline("splits", state.clone())).await;
    fixture.wait_until(&job, |status| status.checkpoints.as_ref().unwrap().completed == 1).await;
    let cluster = fixture.client.describe_cluster(v1::DescribeClusterRequest {}).await.unwrap().into_inner();
    assert_eq!(cluster.inline_used_bytes, 3_000_000);

    let failure = v1::FailureInfo { message: "disk full".into(), fault: "external".into(), retry: "backoff".into() };
    let failed = v1::TaskEvent {
        task: Some(task_ref(&deploy, &deploy.tasks[0])),
        state: State::Failed.into(),
        failure: Some(failure),
        report: None,
    };
    task_manager.say(Up::TaskEvent(failed)).await;
    let again = task_manager.deploy().await;
    assert_eq!(again.attempt.as_ref().unwrap().attempt, 2);
    assert_eq!(again.restored_checkpoint, trigger.checkpoint);
    assert!(again.tasks[0].splits.is_empty());
    let Some(v1::state_ref::Place::InlineId(inline_id)) = again.tasks[0].states[0].place else { panic!("{again:?}") };

    let fetch = |attempt: &Option<v1::AttemptRef>, inline_id| v1::FetchStateRequest { attempt: attempt.clone(), inline_id };
    let mut chunks = task_manager.cluster.fetch_state(fetch(&again.attempt, inline_id)).await.unwrap().into_inner();
    let mut sizes = Vec::new();
    let mut fetched = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        sizes.push(chunk.data.len());
        fetched.extend_from_slice(&chunk.data);
    }
    assert_eq!(sizes, [1 << 20, 1 << 20, 3_000_000 - (2 << 20)]);
    assert!(fetched == state);
    for (attempt, id) in [(&deploy.attempt, inline_id), (&again.attempt, 999)] {
        let status = task_manager.cluster.fetch_state(fetch(attempt, id)).await.err().unwrap();
        assert_eq!(status.code(), Code::NotFound);
    }
    let stale = task_manager.acknowledge(task_ref(&deploy, &deploy.tasks[0]), 1, vec![]).await.unwrap();
    assert!(!stale, "an old attempt's acknowledgement is discarded");
    let status = fixture.describe(&job).await;
    assert!(status.restarts == 1 && status.failure.contains("disk full"), "{status:?}");
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_job_manager_that_stops_tells_tasks_to_end() {
    let mut fixture = Fixture::start(&[]).await;
    let mut task_manager = fixture.task_manager(1).await;
    fixture.submit(&graph("stopped", "")).await.unwrap();
    let deploy = task_manager.deploy().await;
    let Fixture { handle, .. } = fixture;
    let stopping = tokio::spawn(handle.shutdown());
    assert_eq!(task_manager.cancel().await.attempt, deploy.attempt);
    task_manager.end().await;
    drop(task_manager);
    stopping.await.unwrap();
}
