//! Streams A and B, undisturbed, over every backend and several parallelisms: results by formula.

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::streams::{StreamA, StreamB};
use levada_proto::v1::JobState;

fn settings(parallelism: u32, backend: &str, dir: &std::path::Path) -> String {
    format!(
        "  parallelism: {parallelism}\n  state: {{ backend: {backend} }}\n  checkpoint: {{ interval: 200ms, dir: \"file://{}\" }}",
        dir.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_a_gives_its_ten_thousand_rows() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup::default()).await?;
    let runs = [(1, "memory"), (4, "memory"), (1, "fs"), (3, "fs"), (1, "rocksdb"), (4, "rocksdb")];
    for (round, (parallelism, backend)) in runs.into_iter().enumerate() {
        let stream =
            StreamA { rows: 1_000_000, rate: None, settings: settings(parallelism, backend, &cluster.path("checkpoints")) };
        let out = cluster.path(&format!("out-{round}"));
        let job = cluster.submit(&stream.graph(&out)).await?;
        let status = cluster.wait(&job).await?;
        assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
        assert!(output_lines(&out)? == stream.expected(), "parallelism {parallelism}, {backend}: the rows differ");
        assert_eq!(leftovers(&out)?, Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_b_gives_every_id_once() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup::default()).await?;
    let stream = StreamB { rows: 200_000, rate: Some(100_000), settings: settings(4, "fs", &cluster.path("checkpoints")) };
    let out = cluster.path("out");
    let job = cluster.submit(&stream.graph(&out)).await?;
    cluster.wait_for_checkpoints(&job, 2).await?;
    assert_eq!(cluster.wait(&job).await?.state(), JobState::Finished);
    assert!(output_lines(&out)? == stream.expected(), "the ids differ");
    Ok(())
}
