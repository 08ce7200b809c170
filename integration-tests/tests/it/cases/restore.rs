//! G07, G18, G19, G20: what a restored job needs is there, and nothing else is asked for.

use std::fs;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::savepoint::{cancel, folder, from, lines_up_to, sorted, stop, submit, uri};
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::{JobState, JobStatus};

use super::node;

fn completed(status: &JobStatus) -> u64 {
    status.checkpoints.as_ref().map_or(0, |all| all.completed)
}

#[tokio::test(flavor = "multi_thread")]
async fn g07_the_first_checkpoints_after_a_savepoint_need_nothing_of_it() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 3, ..Setup::default() }).await?;
    let stream = |parallelism: u32, rate: Option<u64>| StreamA {
        rows: 600_000,
        rate,
        settings: format!(
            "  parallelism: {parallelism}\n  max_parallelism: 12\n  state: {{ backend: rocksdb, inline_threshold: 0 }}\n  checkpoint: {{ interval: 200ms, num_retained: 2, dir: \"{}\" }}",
            uri(&cluster.path("checkpoints"))
        ),
    };
    for deleted in [false, true] {
        let outs: Vec<_> = (1..=3).map(|leg| cluster.path(&format!("out-{deleted}-{leg}"))).collect();
        let job = cluster.submit(&stream(2, Some(60_000)).graph(&outs[0])).await?;
        cluster.wait_until(&job, "a third of the rows", |status| node(status, "numbers").rows_out >= 200_000).await?;
        let savepoint = stop(&cluster, &job).await?;

        let job = submit(&cluster, &stream(2, Some(60_000)).graph(&outs[1]), from(&savepoint.path)).await?;
        cluster.wait_for_checkpoints(&job, 1).await?;
        if deleted {
            fs::remove_dir_all(folder(&savepoint))?;
        }
        cluster.wait_for_checkpoints(&job, 2).await?;
        cancel(&cluster, &job).await?;
        let newest = uri(&cluster.path(&format!("checkpoints/{job}")));

        // Files are found as they were written, by as many tasks and by others.
        let next = submit(&cluster, &stream(if deleted { 3 } else { 2 }, None).graph(&outs[2]), from(&newest)).await?;
        let status = cluster.finish(&next).await?;
        let taken: u64 =
            status.started_from.rsplit_once("chk-").and_then(|(_, id)| id.parse().ok()).expect("a checkpoint's folder");
        let rows = sorted(sorted(output_lines(&outs[0])?, lines_up_to(&outs[1], taken)?), output_lines(&outs[2])?);
        assert!(rows == stream(2, None).expected(), "savepoint deleted: {deleted}: the rows differ");
    }
    Ok(())
}

const ROWS: u64 = 150_000;

/// Stream A's rows through two functions with state on the same key, which run in one chain.
fn chained(settings: &str, parallelism: u32, first: &str, out: &std::path::Path) -> String {
    format!(
        "version: 1
name: chained
settings:
{settings}
sources:
  numbers:
    generate: {{ from: 0, to: {ROWS}, rate: 15000, columns: {{ k: \"concat('k', cast(n % 100 as varchar))\", v: n }} }}
    parallelism: 1
transforms:
  c1: {{ inputs: [numbers], key_by: [k], process: {first}, parallelism: {parallelism} }}
  c2: {{ inputs: [c1], key_by: [k], process: sum, parallelism: {parallelism} }}
sinks:
  out: {{ inputs: [c2], file: {{ path: \"{}\", format: ndjson }} }}
",
        out.display()
    )
}

/// The rows of `chained`: each key r has v = r, 100 + r, 200 + r ...
fn chained_rows() -> Vec<String> {
    let mut rows: Vec<String> = (0..ROWS)
        .map(|row| {
            let (key, before) = (row % 100, row / 100);
            let (n, total) = (before + 1, 100 * before * (before + 1) / 2 + key * (before + 1));
            format!("{{\"k\":\"k{key}\",\"n\":{n},\"total\":{total}}}")
        })
        .collect();
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn g19_two_operators_with_state_in_one_chain_keep_theirs() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 8, ..Setup::default() }).await?;
    let mut jobs = Vec::new();
    for backend in ["rocksdb", "fs"] {
        // A fold's rows stay where their keys are, so that two subtasks of the chain run on the one TaskManager.
        for (parallelism, first) in [(1, "count"), (2, "number")] {
            let out = cluster.path(&format!("out-{backend}-{parallelism}"));
            let settings = format!(
                "  state: {{ backend: {backend}, inline_threshold: 0 }}\n  checkpoint: {{ interval: 100ms, num_retained: 1, dir: \"{}\" }}\n  restart: {{ strategy: fixed-delay, attempts: 100, delay: 20ms }}",
                uri(&cluster.path("checkpoints"))
            );
            let job = cluster.submit(&chained(&settings, parallelism, first, &out)).await?;
            let status = cluster.describe(&job).await?;
            assert!(status.tasks.iter().any(|task| task.name.contains("c1 -> c2")), "they are not chained: {:?}", status.tasks);
            jobs.push((job, out));
        }
    }
    for round in 1..=5 {
        for (job, _) in &jobs {
            let seen = completed(&cluster.describe(job).await?);
            let moved = |status: &JobStatus| completed(status) > seen || status.state() == JobState::Finished;
            cluster.wait_until(job, "another checkpoint", moved).await?;
        }
        // The next process finds what the killed one had on its disk.
        let (killed, next) = (round - 1, round);
        cluster.kill_task_manager(killed)?;
        fs::rename(cluster.path(&format!("taskmanager-{killed}")), cluster.path(&format!("taskmanager-{next}")))?;
        cluster.start_task_manager()?;
        for (job, _) in &jobs {
            let again = |status: &JobStatus| status.restarts >= round as u32 && status.state() == JobState::Running;
            cluster.wait_until(job, "RUNNING again", again).await?;
        }
    }
    for (job, out) in &jobs {
        cluster.finish(job).await?;
        assert!(output_lines(out)? == chained_rows(), "{}: the rows differ", out.display());
        assert_eq!(leftovers(out)?, Vec::<String>::new());
    }
    Ok(())
}

const FILES: u64 = 10;
const LINES: u64 = 10_000;

/// Ten files, read in the order of their names, as fast as `control` lets the second sink take rows.
fn files(cluster: &Processes, round: usize, control: &std::path::Path, out: &std::path::Path) -> anyhow::Result<String> {
    let folder = cluster.path(&format!("input-{round}"));
    fs::create_dir(&folder)?;
    for file in 0..FILES {
        let lines: Vec<String> = (0..LINES).map(|line| format!("{{\"id\":{}}}\n", file * LINES + line)).collect();
        fs::write(folder.join(format!("{file}.ndjson")), lines.concat())?;
    }
    Ok(format!(
        "version: 1
name: files
settings:
  parallelism: 1
  batch: {{ rows: 500 }}
  checkpoint: {{ interval: 50ms, dir: \"{}\" }}
  state: {{ backend: fs }}
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 20ms }}
sources:
  ids: {{ file: {{ path: \"{}/*.ndjson\", format: ndjson, columns: {{ id: INT64 }} }} }}
sinks:
  out: {{ inputs: [ids], file: {{ path: \"{}\", format: ndjson }} }}
  slow: {{ inputs: [ids], slow: {{ control: \"{}\" }} }}
",
        uri(&cluster.path("checkpoints")),
        folder.display(),
        out.display(),
        control.display()
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn g20_only_files_with_lines_left_are_opened_after_a_failure() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 1, ..Setup::default() }).await?;
    for (round, gone) in [0, 7].into_iter().enumerate() {
        let (control, out) = (cluster.path(&format!("rate-{round}")), cluster.path(&format!("out-{round}")));
        fs::write(&control, "20000")?;
        let graph = files(&cluster, round, &control, &out)?;
        let job = cluster.submit(&graph).await?;
        let read = |status: &JobStatus| node(status, "ids").rows_out >= 3 * LINES + LINES / 2;
        let status = cluster.wait_until(&job, "three files read", read).await?;
        // Slow enough that the rest is not read meanwhile; rows go on, and with them barriers.
        fs::write(&control, "1000")?;
        let status = cluster.wait_for_checkpoints(&job, completed(&status) + 2).await?;
        assert!(node(&status, "ids").rows_out < 7 * LINES, "the eighth file was begun");
        let file = cluster.path(&format!("input-{round}/{gone}.ndjson"));
        fs::remove_file(&file)?;
        cluster.kill_task_manager(round)?;
        fs::remove_file(&control)?;
        cluster.start_task_manager()?;
        let status = cluster.wait(&job).await?;
        if gone == 0 {
            assert_eq!((status.state(), status.restarts), (JobState::Finished, 1), "{}\n{}", status.failure, cluster.logs());
            let rows = output_lines(&out)?;
            let mut expected: Vec<String> = (0..FILES * LINES).map(|id| format!("{{\"id\":{id}}}")).collect();
            expected.sort_unstable();
            assert!(rows == expected, "{} of {} lines", rows.len(), expected.len());
        } else {
            assert_eq!((status.state(), status.restarts), (JobState::Failed, 1), "{}", status.failure);
            let named = format!("file {} is missing", file.display());
            assert!(status.failure.contains(&named) && status.failure.contains("\"ids\""), "{}", status.failure);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_failures_before_the_first_checkpoint_go_back_to_the_savepoint() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    let stream = |rate: Option<u64>, interval: &str| StreamA {
        rows: 400_000,
        rate,
        settings: format!(
            "  parallelism: 2\n  state: {{ backend: fs, inline_threshold: 0 }}\n  checkpoint: {{ interval: {interval}, dir: \"{}\" }}\n  restart: {{ strategy: fixed-delay, attempts: 10, delay: 20ms }}",
            uri(&cluster.path("checkpoints"))
        ),
    };
    let (first, second) = (cluster.path("first"), cluster.path("second"));
    let (slow, rare) = (stream(Some(60_000), "200ms"), stream(Some(60_000), "1h"));
    let job = cluster.submit(&slow.graph(&first)).await?;
    cluster.wait_until(&job, "half of the rows", |status| node(status, "numbers").rows_out >= 200_000).await?;
    let savepoint = stop(&cluster, &job).await?;
    let job = submit(&cluster, &rare.graph(&second), from(&savepoint.path)).await?;
    for restarts in 1..=2 {
        cluster.wait_until(&job, "rows read", |status| node(status, "numbers").rows_out > 10_000).await?;
        cluster.kill_task_manager(restarts as usize - 1)?;
        cluster.start_task_manager()?;
        let again = |status: &JobStatus| status.restarts == restarts && status.state() == JobState::Running;
        cluster.wait_until(&job, "RUNNING again", again).await?;
    }
    cluster.finish(&job).await?;
    assert!(sorted(output_lines(&first)?, output_lines(&second)?) == slow.expected(), "the rows differ");
    Ok(())
}
