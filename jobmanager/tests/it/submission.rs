//! What may be submitted, and what becomes of it before it runs.

use levada_proto::v1;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::Code;

use crate::fake::{FakeTaskManager, Fixture, graph, hello};

#[tokio::test]
async fn one_request_is_one_job_even_after_its_end() {
    let mut fixture = Fixture::start(&[]).await;
    let request = |request_id: &str| v1::SubmitJobRequest {
        document: graph("once", ""),
        request_id: request_id.into(),
        ..Default::default()
    };
    let mut clients = [fixture.client.clone(), fixture.client.clone()];
    let [a, b] = &mut clients;
    let (first, second) = tokio::join!(a.submit_job(request("r")), b.submit_job(request("r")));
    let job = first.unwrap().into_inner().job_id;
    assert_eq!(second.unwrap().into_inner().job_id, job);
    let other = fixture.client.submit_job(request("other")).await.unwrap().into_inner().job_id;
    assert_ne!(other, job, "names need not be unique");
    fixture.client.cancel_job(v1::CancelJobRequest { job: job.clone() }).await.unwrap();
    fixture.wait_until(&job, |status| status.state() == v1::JobState::Canceled).await;
    assert_eq!(fixture.client.submit_job(request("r")).await.unwrap().into_inner().job_id, job);
    let listed = fixture.client.list_jobs(v1::ListJobsRequest {}).await.unwrap().into_inner().jobs;
    let ids: Vec<&str> = listed.iter().map(|status| status.job_id.as_str()).collect();
    assert_eq!(ids, [other.as_str(), job.as_str()], "newest first");
    assert!(listed.iter().all(|status| status.tasks.is_empty() && status.nodes.is_empty()), "{listed:?}");
    let whole = fixture.describe(&job).await;
    assert!(!whole.tasks.is_empty() && !whole.nodes.is_empty(), "{whole:?}");
    let status = fixture.client.submit_job(request(&"x".repeat(129))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_job_that_waits_says_for_what_and_can_be_cancelled() {
    let mut fixture = Fixture::start(&[]).await;
    let job = fixture.submit(&graph("waits", "parallelism: 3")).await.unwrap();
    let status = fixture.wait_until(&job, |status| !status.waiting_for.is_empty()).await;
    assert_eq!(status.state(), v1::JobState::Scheduled);
    assert!(status.waiting_for.contains("needs 3 slots"), "{}", status.waiting_for);
    let cancel = v1::CancelJobRequest { job: "waits".into() };
    assert!(fixture.client.cancel_job(cancel.clone()).await.unwrap().into_inner().accepted);
    fixture.wait_until(&job, |status| status.state() == v1::JobState::Canceled).await;
    assert!(!fixture.client.cancel_job(cancel).await.unwrap().into_inner().accepted);
    let status = fixture.client.describe_job(v1::DescribeJobRequest { job: "nobody".into() }).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn slots_belong_to_one_job_and_are_given_back() {
    let mut fixture = Fixture::start(&[]).await;
    let mut task_manager = fixture.task_manager(2).await;
    let first = fixture.submit(&graph("first", "parallelism: 2")).await.unwrap();
    let deploy = task_manager.deploy().await;
    let second = fixture.submit(&graph("second", "parallelism: 1")).await.unwrap();
    fixture.wait_until(&second, |status| status.state() == v1::JobState::Scheduled).await;
    fixture.client.cancel_job(v1::CancelJobRequest { job: first.clone() }).await.unwrap();
    assert_eq!(task_manager.cancel().await.attempt, deploy.attempt);
    task_manager.all(&deploy, v1::task_event::State::Canceled).await;
    fixture.wait_until(&first, |status| status.state() == v1::JobState::Canceled).await;
    assert_eq!(task_manager.deploy().await.attempt.unwrap().job_id, second);
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_document_s_defects_come_all_at_once_with_their_lines() {
    let mut fixture = Fixture::start(&[]).await;
    let document = "version: 1\nname: bad\nsources:\n  numbers:\n    numbers: {}\ntransforms:\n  t:\n    inputs: [numbers]\n    \
                    select: { x: lin }\nsinks:\n  out:\n    inputs: [t]\n    nowhere: { pth: /x }\n";
    let status = fixture.submit(document).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for part in ["job.yaml: line 9: transforms.t.select", "job.yaml: line 13: sinks.out.nowhere.pth"] {
        assert!(status.message().contains(part), "{part} is not in:\n{}", status.message());
    }
    let relative = graph("relative", "").replace("numbers: {}", "numbers: { path: in.txt }");
    let status = fixture.submit(&relative).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("line 6: sources.numbers.numbers.path: \"in.txt\" is relative"), "{}", status.message());
    let check = v1::CheckJobRequest { document: graph("good", ""), ..Default::default() };
    let checked = fixture.client.check_job(check).await.unwrap().into_inner();
    assert!(checked.execution_graph.contains("numbers") && checked.plan_json.starts_with('{'));
    assert!(fixture.client.list_jobs(v1::ListJobsRequest {}).await.unwrap().into_inner().jobs.is_empty());
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn what_cannot_start_is_refused_with_its_cause() {
    let mut fixture = Fixture::start(&[]).await;
    // No one may make a folder there, whoever runs the test.
    let settings = "state: { backend: fs }, checkpoint: { interval: 1s, dir: \"file:///proc/levada\" }";
    let status = fixture.submit(&graph("no-dir", settings)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("\"/proc/levada") && status.message().contains("os error"), "{status}");
    let missing = graph("missing", "").replace("numbers: {}", "missing: {}");
    let status = fixture.submit(&missing).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("sources.numbers: \"/no/such/file\" does not exist"), "{status}");
    let status = fixture.submit(&"#".repeat(5 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("5242880 bytes") && status.message().contains("4194304"), "{status}");
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn a_thousand_random_documents_are_refused_and_the_job_manager_lives() {
    let mut fixture = Fixture::start(&[]).await;
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let valid = graph("fuzz", "parallelism: 2").into_bytes();
    for round in 0..1_000 {
        let bytes: Vec<u8> = if round % 2 == 0 {
            (0..rng.random_range(0..400)).map(|_| rng.random()).collect()
        } else {
            // A document that was sound but for its version and some bytes.
            let mut bytes = valid.clone();
            bytes[9] = b'7';
            for _ in 0..rng.random_range(0..20) {
                let at = rng.random_range(10..bytes.len());
                bytes[at] = rng.random();
            }
            bytes
        };
        let document = String::from_utf8_lossy(&bytes).into_owned();
        let status = fixture.submit(&document).await.expect_err(&document);
        assert_eq!(status.code(), Code::InvalidArgument, "round {round}: {status}\n{document}");
    }
    fixture.submit(&graph("after", "")).await.unwrap();
    assert_eq!(fixture.client.list_jobs(v1::ListJobsRequest {}).await.unwrap().into_inner().jobs.len(), 1);
    fixture.handle.shutdown().await;
}

#[tokio::test]
async fn channels_that_do_not_fit_the_network_memory_are_refused_with_the_sum() {
    let mut fixture = Fixture::start(&[]).await;
    let small = || v1::Hello { network_memory_bytes: 1 << 20, ..hello(16) };
    let _one = FakeTaskManager::register(&fixture.handle, small()).await.unwrap();
    let _two = FakeTaskManager::register(&fixture.handle, small()).await.unwrap();
    let document = "version: 1\nname: wide\nsettings: { parallelism: 32 }\nsources:\n  numbers:\n    numbers: {}\ntransforms:\n  \
                    counts:\n    inputs: [numbers]\n    key_by: [n]\n    aggregate: { c: count(*) }\nsinks:\n  out:\n    \
                    inputs: [counts]\n    nowhere: {}\n";
    let status = fixture.submit(document).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("256 channels") && status.message().contains("33554432 bytes"), "{status}");
    fixture.handle.shutdown().await;
}
