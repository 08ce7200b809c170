//! G42, G43: output in a store, exactly once whatever is lost.

use std::collections::BTreeMap;

use levada_common::storage::Storage;
use levada_integration_tests::process::{Processes, Setup};
use levada_integration_tests::services::{self, S3, output_lines};
use levada_integration_tests::streams::StreamB;
use levada_proto::v1::JobState;

const RESTART: &str = "restart: { strategy: fixed-delay, attempts: 1000, delay: 50ms }";

async fn cluster(s3: &S3) -> anyhow::Result<Processes> {
    Processes::start(Setup { task_managers: 2, slots: 2, environment: s3.environment(s3.address), ..Setup::default() }).await
}

async fn kill_one(cluster: &mut Processes) -> anyhow::Result<()> {
    let running = cluster.running();
    cluster.kill_task_manager(running[0])?;
    cluster.start_task_manager()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g42_output_in_a_store_is_exactly_once_whenever_a_task_manager_is_killed() -> anyhow::Result<()> {
    let (s3, hdfs) = (services::s3().await?, services::hdfs().await?);
    let mut cluster = cluster(s3).await?;
    for (name, uri) in [("s3", s3.folder("g42")), ("hdfs", hdfs.folder("g42"))] {
        let storage = if name == "s3" { s3.storage(&uri)? } else { Storage::open(&uri)? };
        // Small volume: less than the smallest part before each kill; then more than one part a file.
        for (round, (rows, rate, interval)) in
            [(40_000, Some(10_000), "300ms"), (4_000_000, Some(500_000), "1s")].into_iter().enumerate()
        {
            let settings = format!("  parallelism: 2\n  checkpoint: {{ interval: {interval}, num_retained: 1 }}\n  {RESTART}");
            let stream = StreamB { rows, rate, settings };
            let out = format!("{uri}/{round}");
            let job = cluster.submit(&stream.graph(out.as_ref())).await?;
            cluster.wait_for_checkpoints(&job, 2).await?;
            kill_one(&mut cluster).await?;
            let status = cluster.wait(&job).await?;
            assert_eq!(status.state(), JobState::Finished, "{name}: {}\n{}", status.failure, cluster.logs());
            assert!(status.restarts >= 1, "{name}, round {round}: the kill did not hit");
            let own = if name == "s3" { s3.storage(&out)? } else { Storage::open(&out)? };
            let lines = output_lines(&own).await?;
            assert_eq!(lines.len() as u64, rows, "{name}, round {round}");
            assert!(lines == stream.expected(), "{name}, round {round}: the ids differ");
        }
        let hidden: Vec<_> = storage.list("").await?.into_iter().filter(|file| file.path.contains("/.")).collect();
        assert_eq!(hidden, [], "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g43_what_was_committed_is_never_committed_again() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let mut cluster = cluster(s3).await?;
    let folder = s3.folder("g43");
    let storage = s3.storage(&folder)?;
    let settings = format!("  parallelism: 2\n  checkpoint: {{ interval: 200ms, num_retained: 1 }}\n  {RESTART}");
    let stream = StreamB { rows: 120_000, rate: Some(15_000), settings };
    let job = cluster.submit(&stream.graph(folder.as_ref())).await?;
    let mut seen = BTreeMap::new();
    let mut note = |entries: Vec<String>| {
        for entry in entries {
            let (key, tag) = entry.split_once(' ').map(|(key, tag)| (key.to_owned(), tag.to_owned())).expect("name and tag");
            let known = seen.entry(key.clone()).or_insert_with(|| tag.clone());
            assert_eq!(*known, tag, "{key} has changed");
        }
        seen.len()
    };
    for round in 0..6 {
        let before = note(s3.tags(&folder).await?);
        // Everything is killed as soon as a file of the next checkpoint shows up.
        loop {
            let status = cluster.describe(&job).await?;
            let now = note(s3.tags(&folder).await?);
            if now > before || status.state() == JobState::Finished {
                break;
            }
            tokio::task::yield_now().await;
        }
        if cluster.describe(&job).await?.state() == JobState::Finished {
            assert!(round >= 3, "only {round} rounds before the job's end");
            break;
        }
        for number in cluster.running() {
            cluster.kill_task_manager(number)?;
        }
        cluster.start_task_manager()?;
        cluster.start_task_manager()?;
    }
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}\n{}", status.failure, cluster.logs());
    note(s3.tags(&folder).await?);
    let lines = output_lines(&storage).await?;
    assert!(lines == stream.expected(), "{} lines of {}", lines.len(), stream.rows);
    assert_eq!(s3.open_uploads(&folder).await?, 0, "uploads that nobody completed");
    Ok(())
}
