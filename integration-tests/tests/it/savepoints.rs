//! Savepoints and restores on real processes: what a job was, goes on exactly, wherever and however wide it goes on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use levada::client::{Afterwards, RestoreFrom};
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines, program};
use levada_integration_tests::savepoint::{folder, from, lines_up_to, sorted, stop, submit, take, uri};
use levada_integration_tests::streams::{StreamA, StreamB};
use levada_proto::v1::{JobState, JobStatus};

async fn cluster() -> anyhow::Result<Processes> {
    Processes::start(Setup { task_managers: 2, slots: 4, ..Setup::default() }).await
}

fn settings(cluster: &Processes, parallelism: u32, backend: &str, more: &str) -> String {
    format!(
        "  parallelism: {parallelism}\n  state: {{ backend: {backend} }}\n  checkpoint: {{ interval: 200ms, dir: \"{}\" }}\n  \
         restart: {{ strategy: fixed-delay, attempts: 10, delay: 50ms }}\n{more}",
        uri(&cluster.path("checkpoints"))
    )
}

async fn refused(cluster: &Processes, graph: &str, restore: RestoreFrom) -> anyhow::Result<String> {
    match submit(cluster, graph, restore).await {
        Ok(job) => anyhow::bail!("job {job} was accepted"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn rows_read(status: &JobStatus, source: &str) -> u64 {
    status.nodes.iter().find(|node| node.uid == source).map_or(0, |node| node.rows_out)
}

async fn wait_for_rows(cluster: &Processes, job: &str, source: &str, rows: u64) -> anyhow::Result<()> {
    cluster.wait_until(job, "rows read", |status| rows_read(status, source) >= rows).await.map(drop)
}

/// Every file below a folder.
fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

/// G15: scaled out and in under load, by stopping and going on; each row comes out once.
#[tokio::test(flavor = "multi_thread")]
async fn g15_a_job_is_scaled_out_and_in() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let widths = [3, 5, 2, 7, 1];
    let mixed = ["rocksdb", "fs", "rocksdb", "memory", "rocksdb"];
    for (round, backends) in [["memory"; 5], ["fs"; 5], ["rocksdb"; 5], mixed].into_iter().enumerate() {
        let out = cluster.path(&format!("out-{round}"));
        let mut place = String::new();
        for (leg, (parallelism, backend)) in widths.into_iter().zip(backends).enumerate() {
            let settings = settings(&cluster, parallelism, backend, "  max_parallelism: 128\n");
            let stream = StreamA { rows: 1_000_000, rate: Some(150_000), settings };
            let job = submit(&cluster, &stream.graph(&out), from(&place)).await?;
            if leg + 1 == widths.len() {
                let status = cluster.finish(&job).await?;
                assert_eq!(status.started_from, place);
                assert!(output_lines(&out)? == stream.expected(), "{backends:?}: the rows differ");
                assert_eq!(leftovers(&out)?, Vec::<String>::new(), "{backends:?}");
            } else {
                wait_for_rows(&cluster, &job, "numbers", 150_000).await?;
                place = stop(&cluster, &job).await?.path;
            }
        }
    }
    Ok(())
}

/// G40: a failure after a savepoint, whatever has become of that, goes back to the newest checkpoint; nothing comes out twice.
#[tokio::test(flavor = "multi_thread")]
async fn g40_a_failure_after_a_savepoint_doubles_nothing() -> anyhow::Result<()> {
    let mut cluster = cluster().await?;
    for deleted in [false, true] {
        let out = cluster.path(&format!("out-{deleted}"));
        let settings = settings(&cluster, 3, "fs", "").replace("interval: 200ms", "interval: 1500ms");
        let stream = StreamB { rows: 200_000, rate: Some(25_000), settings };
        let job = cluster.submit(&stream.graph(&out)).await?;
        cluster.wait_for_checkpoints(&job, 1).await?;
        let savepoint = take(&cluster, &job, Afterwards::GoesOn).await?;
        if deleted {
            std::fs::remove_dir_all(folder(&savepoint))?;
        }
        let before = cluster.client().await?.describe(&job).await?;
        cluster.kill_task_manager(cluster.running()[0])?;
        cluster.start_task_manager()?;
        let status = cluster.finish(&job).await?;
        assert!(status.restarts > before.restarts, "the kill did not hit the job");
        assert!(output_lines(&out)? == stream.expected(), "savepoint deleted: {deleted}");
        assert_eq!(leftovers(&out)?, Vec::<String>::new());
        assert_eq!(folder(&savepoint).exists(), !deleted, "it is its user's");
    }
    Ok(())
}

fn nexmark(settings: &str, out: &Path) -> String {
    format!(
        "version: 1
name: windows
settings:
{settings}
sources:
  bids:
    nexmark: {{ events: 600000, table: bid, rate: 100000 }}
    watermark: {{ column: dateTime, disorder: 10ms }}
transforms:
  counts:
    inputs: [bids]
    key_by: [bidder]
    window: {{ tumbling: {{ size: 1s }} }}
    aggregate: {{ bids: count(*), total: sum(price), highest: max(price) }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        out.display()
    )
}

/// A savepoint is a folder that says what it has, holds all of it, and can be moved; the job went on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_under_load_is_moved_and_gone_on_from() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let (first, second) = (cluster.path("first"), cluster.path("second"));
    let job = cluster.submit(&nexmark(&settings(&cluster, 4, "memory", ""), &first)).await?;
    wait_for_rows(&cluster, &job, "bids", 150_000).await?;
    let savepoint = take(&cluster, &job, Afterwards::GoesOn).await?;
    cluster.finish(&job).await?;
    let expected = output_lines(&first)?;

    let names: Vec<String> = files_below(&folder(&savepoint))?
        .iter()
        .filter_map(|file| Some(file.strip_prefix(folder(&savepoint)).ok()?.display().to_string()))
        .collect();
    assert!(names.contains(&"_metadata".to_string()) && names.contains(&"manifest.json".to_string()), "{names:?}");
    let panes = names.iter().filter(|name| name.starts_with("state/counts.panes.")).count();
    assert_eq!(panes, 4, "a file for each subtask: {names:?}");
    let manifest = std::fs::read_to_string(folder(&savepoint).join("manifest.json"))?;
    let manifest: serde_json::Value = serde_json::from_str(&manifest)?;
    assert_eq!(manifest["job"]["name"], "windows");
    assert_eq!(manifest["operators"]["counts"]["states"]["panes"]["kind"], "keyed");
    let all = std::fs::read(folder(&savepoint).join("_metadata"))?;
    let place = cluster.dir.path().display().to_string();
    assert!(!String::from_utf8_lossy(&all).contains(&format!("{place}/checkpoints")), "a path that is not relative");

    let moved = cluster.path("elsewhere/it is here");
    std::fs::create_dir_all(moved.parent().expect("it has a parent"))?;
    std::fs::rename(folder(&savepoint), &moved)?;
    let job = submit(&cluster, &nexmark(&settings(&cluster, 3, "fs", ""), &second), from(&uri(&moved))).await?;
    let status = cluster.finish(&job).await?;
    assert_eq!(status.started_from, uri(&moved));
    let before = lines_up_to(&first, savepoint.id)?;
    assert!(!before.is_empty() && before.len() < expected.len(), "{} of {} rows before", before.len(), expected.len());
    assert!(sorted(before, output_lines(&second)?) == expected, "the rows differ");
    Ok(())
}

/// The ids of the completed checkpoints in a job's folder, ascending.
fn completed_checkpoints(folder: &Path) -> anyhow::Result<Vec<u64>> {
    let mut ids: Vec<u64> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().to_string_lossy().strip_prefix("chk-")?.parse().ok())
        .filter(|id| folder.join(format!("chk-{id}/_metadata")).exists())
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// A checkpoint whose states are databases goes on at another width, in databases or on the heap.
#[tokio::test(flavor = "multi_thread")]
async fn databases_go_on_at_another_width() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let stream = |parallelism: u32, backend: &str, out: &Path| {
        let backend = format!("{backend}, inline_threshold: 0");
        StreamA { rows: 600_000, rate: Some(150_000), settings: settings(&cluster, parallelism, &backend, "") }.graph(out)
    };
    let expected = StreamA { rows: 600_000, rate: None, settings: String::new() }.expected();
    for (round, (before, after, backend)) in [(2, 3, "rocksdb"), (3, 1, "rocksdb"), (3, 2, "fs")].into_iter().enumerate() {
        let (first, second) = (cluster.path(&format!("first-{round}")), cluster.path(&format!("second-{round}")));
        let job = cluster.submit(&stream(before, "rocksdb", &first)).await?;
        cluster.wait_for_checkpoints(&job, 4).await?;
        cluster.client().await?.cancel(&job).await?;
        assert_eq!(cluster.wait(&job).await?.state(), JobState::Canceled);
        let checkpoints = cluster.path(&format!("checkpoints/{job}"));
        let newest = completed_checkpoints(&checkpoints)?.pop().expect("a completed checkpoint");
        let job = submit(&cluster, &stream(after, backend, &second), from(&uri(&checkpoints))).await?;
        cluster.finish(&job).await?;
        let rows = sorted(lines_up_to(&first, newest)?, output_lines(&second)?);
        assert!(rows == expected, "{before} to {after}, {backend}: the rows differ");
    }
    Ok(())
}

/// G04 and restores from retained checkpoints: a damaged one is refused by name, before anything runs where it is the metadata, and
/// an older one can be named.
#[tokio::test(flavor = "multi_thread")]
async fn g04_a_damaged_checkpoint_is_named_and_an_older_one_runs() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let stream = |parallelism: u32, out: &Path| {
        let settings = settings(&cluster, parallelism, "fs", "").replace("backend: fs", "backend: fs, inline_threshold: 0");
        StreamA { rows: 600_000, rate: Some(100_000), settings }.graph(out)
    };
    let expected = StreamA { rows: 600_000, rate: None, settings: String::new() }.expected();
    let out = cluster.path("out");
    let job = cluster.submit(&stream(2, &out)).await?;
    cluster.wait_for_checkpoints(&job, 4).await?;
    let retained = cluster.client().await?.checkpoints(&job).await?;
    assert!(retained.len() >= 3 && retained.iter().all(|checkpoint| !checkpoint.states.is_empty()), "{retained:?}");
    cluster.client().await?.cancel(&job).await?;
    let ended = cluster.wait(&job).await?;
    assert_eq!(ended.state(), JobState::Canceled);

    let checkpoints = cluster.path(&format!("checkpoints/{job}"));
    let ids = completed_checkpoints(&checkpoints)?;
    let (newest, older) = (ids[ids.len() - 1], ids[ids.len() - 2]);

    // The job's folder stands for its newest checkpoint.
    let next = cluster.path("next");
    let job = submit(&cluster, &stream(3, &next), from(&uri(&checkpoints))).await?;
    let status = cluster.finish(&job).await?;
    assert_eq!(status.started_from, uri(&checkpoints.join(format!("chk-{newest}"))));
    assert!(sorted(lines_up_to(&out, newest)?, output_lines(&next)?) == expected, "from the newest: the rows differ");

    let damage = |path: &Path| -> anyhow::Result<()> {
        let mut bytes = std::fs::read(path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        Ok(std::fs::write(path, bytes)?)
    };
    let metadata = checkpoints.join(format!("chk-{newest}/_metadata"));
    damage(&metadata)?;
    let text = refused(&cluster, &stream(2, &cluster.path("none")), from(&uri(&checkpoints))).await?;
    assert!(text.contains(&uri(&metadata)) && text.contains("damaged") && text.contains(&format!("chk-{older}")), "{text}");
    damage(&metadata)?;

    let state = files_below(&checkpoints.join(format!("chk-{newest}")))?.into_iter().find(|file| !file.ends_with("_metadata"));
    let state = state.expect("a file of state");
    damage(&state)?;
    let job = submit(&cluster, &stream(2, &cluster.path("none")), from(&uri(metadata.parent().expect("a folder")))).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Failed, 0), "{}", status.failure);
    let name = state.file_name().expect("a name").to_string_lossy();
    assert!(status.failure.contains(&*name) && status.failure.contains("CRC-32C"), "{}", status.failure);

    let last = cluster.path("last");
    let job = submit(&cluster, &stream(2, &last), from(&uri(&checkpoints.join(format!("chk-{older}/_metadata"))))).await?;
    cluster.finish(&job).await?;
    assert!(sorted(lines_up_to(&out, older)?, output_lines(&last)?) == expected, "from the one before: the rows differ");
    Ok(())
}

/// G17: the max parallelism is part of the state's layout: inherited, multiplied, or refused with both values.
#[tokio::test(flavor = "multi_thread")]
async fn g17_max_parallelism_is_inherited_multiplied_or_refused() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let stream = |parallelism: u32, max: &str| {
        let settings = settings(&cluster, parallelism, "fs", max);
        StreamA { rows: 400_000, rate: Some(200_000), settings }
    };
    let out = cluster.path("out");
    let job = cluster.submit(&stream(2, "  max_parallelism: 4\n").graph(&out)).await?;
    wait_for_rows(&cluster, &job, "numbers", 150_000).await?;
    let place = stop(&cluster, &job).await?.path;
    let before = output_lines(&out)?;
    let none = cluster.path("none");
    let text = refused(&cluster, &stream(8, "").graph(&none), from(&place)).await?;
    assert!(text.contains("parallelism 8") && text.contains("max parallelism 4"), "{text}");
    let text = refused(&cluster, &stream(2, "  max_parallelism: 6\n").graph(&none), from(&place)).await?;
    assert!(text.contains("4 in the snapshot") && text.contains("6 in the job"), "{text}");
    assert!(!none.exists(), "nothing was started");
    for (round, (parallelism, max)) in
        [(8, "  max_parallelism: 8\n"), (1, "  max_parallelism: 12\n"), (3, "")].into_iter().enumerate()
    {
        let next = cluster.path(&format!("next-{round}"));
        let stream = stream(parallelism, max);
        let job = submit(&cluster, &stream.graph(&next), from(&place)).await?;
        cluster.finish(&job).await?;
        assert!(sorted(before.clone(), output_lines(&next)?) == stream.expected(), "{parallelism}, {max}: the rows differ");
    }
    Ok(())
}

/// The command line against the cluster.
fn levada(cluster: &Processes, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(program("levada")?).args(arguments).env("LEVADA_JOBMANAGER", cluster.address()).output()?)
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn counting(cluster: &Processes, transforms: &str, last: &str, out: &Path) -> String {
    format!(
        "version: 1
name: counting
settings:
{}
sources:
  numbers:
    generate: {{ from: 0, to: 400000, rate: 200000, columns: {{ k: \"n % 10\", n: n }} }}
transforms:
{transforms}
sinks:
  out:
    inputs: [{last}]
    file: {{ path: \"{}\", format: ndjson }}
",
        settings(cluster, 2, "fs", ""),
        out.display()
    )
}

const COUNT: &str = "  c1:\n    inputs: [INPUT]\n    key_by: [k]\n    aggregate: { hits: count(*) }\n";

/// The last line of each key of a changelog, without its mark.
fn newest_counts(lines: &[String]) -> Vec<u64> {
    let mut counts = vec![0; 10];
    for line in lines {
        let row: serde_json::Value = serde_json::from_str(line).expect("a row");
        let (key, count) = (row["k"].as_u64().expect("a key") as usize, row["hits"].as_u64().expect("a count"));
        counts[key] = counts[key].max(count);
    }
    counts
}

/// G13, G14, G16 and the commands: what does not fit is said at once, before anything starts, with the remedy, and `check` says the
/// same; operators without state come and go.
#[tokio::test(flavor = "multi_thread")]
async fn g13_g14_g16_what_does_not_fit_is_said_before_anything_starts() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let out = cluster.path("out");
    let mapped = "  m1:\n    inputs: [numbers]\n    select: { k: k, n: n }\n";
    let job = cluster.submit(&counting(&cluster, &format!("{mapped}{}", COUNT.replace("INPUT", "m1")), "c1", &out)).await?;
    wait_for_rows(&cluster, &job, "numbers", 100_000).await?;
    let savepoints = cluster.path("savepoints");
    let stopped = levada(&cluster, &["stop", "counting", "--savepoint", &savepoints.display().to_string()])?;
    assert!(stopped.status.success(), "{}", said(&stopped));
    let place = String::from_utf8_lossy(&stopped.stdout).trim().to_string();
    let again = levada(&cluster, &["stop", &job, "--savepoint", &savepoints.display().to_string()])?;
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).trim() == place, "{}", said(&again));
    let described = levada(&cluster, &["describe", &job])?;
    assert!(said(&described).contains(&place) && said(&described).contains("FINISHED"), "{}", said(&described));
    let late = levada(&cluster, &["savepoint", &job, &savepoints.display().to_string()])?;
    assert!(late.status.code() == Some(1) && said(&late).contains("FINISHED"), "{}", said(&late));

    let file = cluster.path("job.yaml");
    let check = |graph: &str, more: &[&str]| -> anyhow::Result<(Option<i32>, String)> {
        std::fs::write(&file, graph)?;
        let path = file.display().to_string();
        let output = levada(&cluster, &[&["check", &path, "--from", &place], more].concat())?;
        Ok((output.status.code(), said(&output)))
    };
    let c1 = COUNT.replace("INPUT", "numbers");
    let (next, none) = (cluster.path("next"), cluster.path("none"));
    let filtered = "  f1:\n    inputs: [numbers]\n    where: n >= 0\n";
    let without_m1 = counting(&cluster, &format!("{filtered}{}", COUNT.replace("INPUT", "f1")), "c1", &next);
    let (code, text) = check(&without_m1, &[])?;
    assert_eq!(code, Some(0), "{text}");

    let renamed = counting(&cluster, &c1.replace("c1", "c2"), "c2", &none);
    let changed = counting(&cluster, &c1.replace("hits: count(*)", "hits: max(n)"), "c1", &none);
    let windowed = counting(&cluster, &c1.replace("key_by: [k]", "key_by: [k, n]"), "c1", &none);
    for (graph, words) in [
        (&renamed, vec!["operator \"c1\"", "\"aggregate\"", "renamed to \"c2\"", "--drop-state c1"]),
        (&changed, vec!["operator \"c1\"", "value type", "INT64"]),
        (&windowed, vec!["operator \"c1\"", "key type", "(k INT64)", "(k INT64, n INT64)"]),
    ] {
        let (code, text) = check(graph, &[])?;
        assert_eq!(code, Some(1), "{text}");
        let by_job_manager = refused(&cluster, graph, from(&place)).await?;
        for word in words {
            assert!(text.contains(word) && by_job_manager.contains(word), "{word}: {text} / {by_job_manager}");
        }
    }
    assert!(!none.exists(), "nothing was started");
    let (code, text) = check(&renamed, &["--drop-state", "c1"])?;
    assert!(code == Some(0) && text.contains("is dropped"), "{text}");
    let (code, text) = check(&renamed, &["--drop-state", "c3"])?;
    assert!(code == Some(1) && text.contains("did you mean \"c1\"?"), "{text}");

    let job = submit(&cluster, &without_m1, from(&place)).await?;
    cluster.finish(&job).await?;
    let rows = sorted(output_lines(&out)?, output_lines(&next)?);
    assert_eq!(newest_counts(&rows), vec![40_000; 10]);

    // Begun anew: the operator has lost what it knew, and says so in numbers.
    let anew = cluster.path("anew");
    let drop = RestoreFrom { from: place.clone(), drop_state: vec!["c1".into()] };
    let job = submit(&cluster, &counting(&cluster, &c1.replace("c1", "c2"), "c2", &anew), drop).await?;
    cluster.finish(&job).await?;
    let counts = newest_counts(&output_lines(&anew)?);
    assert!(counts.iter().all(|count| *count > 0 && *count < 40_000), "{counts:?}");
    Ok(())
}

/// A drained job has fired every window: all rows that were read are in its output.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_job_leaves_no_window_open() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let out = cluster.path("out");
    let stream = StreamA { rows: 50_000_000, rate: Some(100_000), settings: settings(&cluster, 3, "fs", "") };
    let job = cluster.submit(&stream.graph(&out)).await?;
    wait_for_rows(&cluster, &job, "numbers", 100_000).await?;
    let savepoint = take(&cluster, &job, Afterwards::Drains).await?;
    let status = cluster.finish(&job).await?;
    assert_eq!(savepoint.mode, "drain");
    let counted: u64 = output_lines(&out)?
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a row")["n"].as_u64().expect("a count"))
        .sum();
    assert_eq!(counted, rows_read(&status, "numbers"));
    assert!((100_000..50_000_000).contains(&counted), "{counted}");
    Ok(())
}

/// G52: many stops at once are one, whoever asks is told of the same savepoint, also afterwards; one that was given up on goes on.
#[tokio::test(flavor = "multi_thread")]
async fn g52_stops_at_once_make_one_savepoint() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let out = cluster.path("out");
    let stream = StreamB { rows: 100_000_000, rate: Some(50_000), settings: settings(&cluster, 2, "fs", "") };
    let job = cluster.submit(&stream.graph(&out)).await?;
    cluster.wait_for_checkpoints(&job, 1).await?;
    let directory = uri(&cluster.path("savepoints"));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let (mut client, job, directory) = (cluster.client().await?, job.clone(), directory.clone());
        asking.spawn(async move { client.savepoint(&job, &directory, Afterwards::Stops).await });
    }
    let mut paths: Vec<String> = Vec::new();
    while let Some(answer) = asking.join_next().await {
        paths.push(answer??.path);
    }
    cluster.finish(&job).await?;
    paths.push(cluster.client().await?.savepoint(&job, &directory, Afterwards::Stops).await?.path);
    paths.dedup();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(std::fs::read_dir(cluster.path("savepoints"))?.count(), 1);
    // Whoever goes on from there asks which files were published.
    assert!(leftovers(&out)?.iter().all(|name| name.ends_with(".published")), "{:?}", leftovers(&out)?);
    Ok(())
}
