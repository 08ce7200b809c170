//! G20, G42, G43: input and output in a store, exactly once whatever is lost.

use std::collections::BTreeMap;

use levada_common::storage::Storage;
use levada_integration_tests::process::{Processes, Setup};
use levada_integration_tests::services::{self, S3, output_lines};
use levada_integration_tests::streams::StreamB;
use levada_proto::v1::{JobState, JobStatus};

use super::Job;

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

fn rows_of(status: &JobStatus, uid: &str) -> u64 {
    status.nodes.iter().find(|node| node.uid == uid).map_or(0, |node| node.rows_out)
}

/// Writes ten files of ten thousand lines and answers the lines that a job over them must give.
async fn ten_files(storage: &Storage) -> anyhow::Result<Vec<String>> {
    let mut expected = Vec::new();
    for file in 0..10 {
        let lines = (0..10_000).map(|line| format!("{file}-{line}"));
        expected.extend(lines.clone().map(|line| format!("{{\"line\":\"{line}\"}}")));
        storage.put(&format!("in/{file}.txt"), lines.map(|line| line + "\n").collect::<String>().into()).await?;
    }
    expected.sort_unstable();
    Ok(expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn g20_an_input_that_was_read_may_go_and_another_may_not() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let mut cluster = cluster(s3).await?;
    let hdfs = services::hdfs().await?;
    let folders =
        [("local", format!("file://{}", cluster.path("data").display())), ("s3", s3.folder("g20")), ("hdfs", hdfs.folder("g20"))];
    for (name, uri) in folders {
        let storage = if name == "s3" { s3.storage(&uri)? } else { Storage::open(&uri)? };
        for (deleted, survives) in [("in/0.txt", true), ("in/8.txt", false)] {
            let expected = ten_files(&storage).await?;
            let out = cluster.path(&format!("out-{name}-{survives}"));
            let control = cluster.path(&format!("rate-{name}-{survives}"));
            // The gate lets three files and a bit pass until it is opened.
            std::fs::write(&control, "35000")?;
            let settings = format!("checkpoint: {{ interval: 50ms }}, batch: {{ rows: 200 }}, {RESTART}");
            let source = format!("file: {{ path: \"{uri}/in/*.txt\", format: text }}");
            let graph = Job { settings: &settings, source, transform: "where: line is not null", out: &out }.graph();
            let graph = graph + &format!("  gate:\n    inputs: [step]\n    quota: {{ control: \"{}\" }}\n", control.display());
            let job = cluster.submit(&graph).await?;
            let status = cluster.wait_until(&job, "three files read", |status| rows_of(status, "input") >= 35_000).await?;
            let done = status.checkpoints.as_ref().map_or(0, |all| all.completed);
            cluster.wait_for_checkpoints(&job, done + 2).await?;
            storage.delete(deleted).await?;
            kill_one(&mut cluster).await?;
            std::fs::remove_file(&control)?;
            let status = cluster.wait(&job).await?;
            if survives {
                assert_eq!(status.state(), JobState::Finished, "{name}: {}\n{}", status.failure, cluster.logs());
                let rows = levada_integration_tests::process::output_lines(&out)?;
                assert!(rows == expected, "{name}: {} rows of {}", rows.len(), expected.len());
            } else {
                assert_eq!(status.state(), JobState::Failed, "{name}");
                assert!(status.failure.contains("8.txt is missing"), "{name}: {}", status.failure);
                assert!(status.restarts <= 2, "{name}: {} restarts for what will not pass", status.restarts);
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g42_output_in_a_store_is_exactly_once_whenever_a_task_manager_is_killed() -> anyhow::Result<()> {
    let (s3, hdfs) = (services::s3().await?, services::hdfs().await?);
    let mut cluster = cluster(s3).await?;
    for (name, uri) in [("s3", s3.folder("g42")), ("hdfs", hdfs.folder("g42"))] {
        let storage = if name == "s3" { s3.storage(&uri)? } else { Storage::open(&uri)? };
        // Small volume: less than the smallest part before each kill; then more than one part a file.
        for (round, (rows, rate, interval)) in [(40_000, Some(10_000), "300ms"), (4_000_000, None, "2s")].into_iter().enumerate()
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
