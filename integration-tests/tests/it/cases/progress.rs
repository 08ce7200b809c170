//! G10, G11, G12: checkpoints go on when a source has ended, recover from back-pressure and from a destination that fails.

use std::fs;
use std::path::Path;

use levada_integration_tests::http_proxy::{Fate, HttpProxy};
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::savepoint::{from, stop, submit, uri};
use levada_integration_tests::services;
use levada_integration_tests::streams::StreamB;
use levada_proto::v1::{JobState, JobStatus};

fn completed(status: &JobStatus) -> u64 {
    status.checkpoints.as_ref().map_or(0, |all| all.completed)
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the TaskManager runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux shows it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path().display().to_string());
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_checkpoints_expire_under_back_pressure_and_recover() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let (control, out, checkpoints) = (cluster.path("rate"), cluster.path("out"), cluster.path("checkpoints"));
    fs::write(&control, "0")?;
    let stream = StreamB {
        rows: 3_000_000,
        rate: None,
        settings: format!(
            "  parallelism: 4\n  state: {{ backend: fs, inline_threshold: 0 }}\n  checkpoint: {{ interval: 250ms, timeout: 1s, tolerable_failures: 1000, num_retained: 1, dir: \"file://{}\" }}",
            checkpoints.display()
        ),
    };
    let graph = stream.graph(&out) + &format!("  slow:\n    inputs: [ids]\n    slow: {{ control: \"{}\" }}\n", control.display());
    let job = cluster.submit(&graph).await?;
    let expired = |status: &JobStatus| {
        let all = status.checkpoints.as_ref();
        all.is_some_and(|all| {
            all.failed >= 3 && all.last_failed.as_ref().is_some_and(|last| last.failure.contains("expired after 1000 ms"))
        })
    };
    let status = cluster.wait_until(&job, "three expired checkpoints", expired).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Running, 0), "{}", status.failure);
    for number in cluster.running() {
        let resident = resident_bytes(cluster.task_manager_pid(number).expect("it runs"));
        assert!(resident < 400 << 20, "TaskManager {number} holds {resident} bytes");
    }
    fs::remove_file(&control)?;
    cluster.wait_for_checkpoints(&job, completed(&status) + 1).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 0), "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the ids differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());
    let last = status.checkpoints.and_then(|all| all.last_completed).expect("the final checkpoint").id;
    let stray: Vec<String> =
        files_below(&checkpoints).into_iter().filter(|file| !file.contains(&format!("chk-{last}/"))).collect();
    assert_eq!(stray, Vec::<String>::new(), "files of checkpoints that were given up or replaced");
    Ok(())
}

/// Lines of a file and numbers without end, counted by key.
fn short_and_endless(cluster: &Processes, out: &Path) -> String {
    format!(
        "version: 1
name: short-and-endless
settings:
  parallelism: 2
  state: {{ backend: fs }}
  checkpoint: {{ interval: 100ms, dir: \"{}\" }}
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 20ms }}
sources:
  short: {{ file: {{ path: \"{}\", format: ndjson, columns: {{ k: STRING, v: INT64 }} }} }}
  endless: {{ generate: {{ from: 1000, rate: 1000, columns: {{ k: \"concat('g', cast(n % 7 as varchar))\", v: n }} }}, parallelism: 1 }}
transforms:
  numbers: {{ inputs: [endless], select: {{ k: k, v: v }} }}
  counts: {{ inputs: [short, numbers], key_by: [k], process: count }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        uri(&cluster.path("checkpoints")),
        cluster.path("short.ndjson").display(),
        out.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_checkpoints_go_on_when_one_source_has_ended() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let lines: String = (0..1000).map(|id| format!("{{\"k\":\"f{}\",\"v\":{id}}}\n", id % 5)).collect();
    fs::write(cluster.path("short.ndjson"), lines)?;
    let (first, second) = (cluster.path("first"), cluster.path("second"));
    let job = cluster.submit(&short_and_endless(&cluster, &first)).await?;
    let ended = |status: &JobStatus| {
        let mut short = status.tasks.iter().filter(|task| task.name == "short").peekable();
        short.peek().is_some() && short.all(|task| task.state == "FINISHING")
    };
    let status = cluster.wait_until(&job, "the end of the file", ended).await?;
    let status = cluster.wait_for_checkpoints(&job, completed(&status) + 5).await?;
    let seen = completed(&status);
    // What was read to its end is not needed any more.
    fs::remove_file(cluster.path("short.ndjson"))?;
    for number in cluster.running() {
        cluster.kill_task_manager(number)?;
        cluster.start_task_manager()?;
    }
    cluster.wait_until(&job, "RUNNING again", |status| status.restarts >= 1 && status.state() == JobState::Running).await?;
    cluster.wait_for_checkpoints(&job, seen + 3).await?;
    let savepoint = stop(&cluster, &job).await?;

    let job = submit(&cluster, &short_and_endless(&cluster, &second), from(&savepoint.path)).await?;
    cluster.wait_for_checkpoints(&job, 3).await?;
    stop(&cluster, &job).await?;
    let mut ids: Vec<u64> = Vec::new();
    let mut counts: Vec<(String, u64)> = Vec::new();
    for line in output_lines(&first)?.into_iter().chain(output_lines(&second)?) {
        let row: serde_json::Value = serde_json::from_str(&line)?;
        ids.push(row["v"].as_u64().expect("a number"));
        counts.push((row["k"].as_str().expect("a key").to_owned(), row["n"].as_u64().expect("a count")));
    }
    ids.sort_unstable();
    let end = ids.len() as u64;
    assert!(end > 1000 && ids.iter().copied().eq(0..end), "an id is missing or comes twice");
    counts.sort_unstable();
    let before = counts.len();
    counts.dedup();
    assert_eq!(counts.len(), before, "a key was counted anew");
    assert_eq!(counts.iter().filter(|(key, count)| key == "f3" && (1..=200).contains(count)).count(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_destination_that_fails_for_a_while_fails_no_later_checkpoint() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let proxy = HttpProxy::start(s3.address).await?;
    let setup = Setup { task_managers: 2, slots: 1, environment: s3.environment(proxy.address), ..Setup::default() };
    let cluster = Processes::start(setup).await?;
    let stream = StreamB {
        rows: 240_000,
        rate: Some(30_000),
        settings: format!(
            "  parallelism: 2\n  state: {{ backend: fs }}\n  checkpoint: {{ interval: 100ms, timeout: 1s, tolerable_failures: 1000, dir: \"{}\" }}\n  restart: {{ strategy: fixed-delay, attempts: 10, delay: 20ms }}",
            uri(&cluster.path("checkpoints"))
        ),
    };
    let folder = s3.folder("g12");
    let job = cluster.submit(&stream.graph(folder.as_ref())).await?;
    cluster.wait_for_checkpoints(&job, 2).await?;
    // In the middle of a checkpoint: its own writes are the first that fail.
    let under_way = |status: &JobStatus| status.checkpoints.as_ref().is_some_and(|all| all.in_progress > 0);
    cluster.wait_until(&job, "a checkpoint under way", under_way).await?;
    proxy.set(|_, _| Fate::Status(500));
    let failed = |status: &JobStatus| status.checkpoints.as_ref().is_some_and(|all| all.failed >= 1) || status.restarts > 0;
    cluster.wait_until(&job, "the failure seen", failed).await?;
    proxy.set(|_, _| Fate::Pass);
    let status = cluster.describe(&job).await?;
    let status = cluster.wait_for_checkpoints(&job, completed(&status) + 10).await?;
    let all = status.checkpoints.as_ref().expect("there are some");
    assert!(status.restarts <= 1, "{} restarts: {}", status.restarts, status.failure);
    assert_eq!(all.consecutive_failures, 0, "{:?}", all.last_failed);
    let newest: Vec<&str> = all.history.iter().take(9).map(|checkpoint| checkpoint.failure.as_str()).collect();
    assert!(newest.iter().all(|failure| failure.is_empty()), "{newest:?}");
    cluster.finish(&job).await?;
    let lines = services::output_lines(&s3.storage(&folder)?).await?;
    assert!(lines == stream.expected(), "{} lines of {}", lines.len(), stream.rows);
    assert_eq!(s3.open_uploads(&folder).await?, 0, "uploads that nobody completed");
    Ok(())
}
