//! `levada state`: a running job's retained checkpoint is listed, shown, exported, compared and verified, without the job; and
//! read by pyarrow, without Levada.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use levada_integration_tests::process::{Processes, Setup, program};
use levada_integration_tests::python::{python, run};
use levada_proto::v1::JobState;
use serde_json::Value;

/// The versions that the test was written with.
const PACKAGES: [&str; 1] = ["pyarrow==21.0.0"];

const KEYS: i64 = 100;

/// Endless rows `n` of the keys `n mod 100`, counted and summed: the sum of a key follows from its count.
fn graph(checkpoints: &Path) -> String {
    format!(
        "version: 1
name: sums
settings:
  parallelism: 2
  state: {{ backend: fs, inline_threshold: 1KiB }}
  checkpoint: {{ interval: 200ms, dir: \"file://{}\" }}
sources:
  numbers:
    generate:
      from: 0
      rate: 20000
      columns: {{ k: n % {KEYS}, v: n }}
    parallelism: 1
transforms:
  sums:
    inputs: [numbers]
    key_by: [k]
    aggregate: {{ n: count(*), total: sum(v) }}
sinks:
  out:
    inputs: [sums]
    blackhole: {{}}
",
        checkpoints.display()
    )
}

/// Runs the job until it has checkpoints, and cancels it; answers the folder of its checkpoints.
async fn checkpoints(cluster: &Processes) -> anyhow::Result<PathBuf> {
    let dir = cluster.path("checkpoints");
    let job = cluster.submit(&graph(&dir)).await?;
    let filled = |status: &levada_proto::v1::JobStatus| {
        let rows = status.nodes.iter().find(|node| node.uid == "numbers").map_or(0, |node| node.rows_out);
        rows > 1000 && status.checkpoints.as_ref().is_some_and(|all| all.completed >= 3)
    };
    cluster.wait_until(&job, "checkpoints with state", filled).await?;
    let completed = cluster.client().await?.describe(&job).await?.checkpoints.map_or(0, |all| all.completed);
    cluster.wait_for_checkpoints(&job, completed + 2).await?;
    cluster.client().await?.cancel(&job).await?;
    ensure!(cluster.wait(&job).await?.state() == JobState::Canceled);
    Ok(dir.join(job))
}

fn levada(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(program("levada")?).arg("state").args(arguments).output()?)
}

/// What a command printed, which must have ended well.
fn printed(arguments: &[&str]) -> anyhow::Result<String> {
    let output = levada(arguments)?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The files of state `sums/aggregate`: path, offset, length.
fn files(listed: &Value) -> anyhow::Result<Vec<(String, u64, u64)>> {
    let states = listed["states"].as_array().context("states")?;
    let sums = states.iter().find(|state| state["operator"] == "sums").context("sums has state")?;
    let subtasks = sums["subtasks"].as_array().context("subtasks")?;
    let place = |subtask: &Value| {
        let place = &subtask["place"];
        let number = |key: &str| place[key].as_u64().with_context(|| format!("no {key} in {place}"));
        Ok((place["file"].as_str().context("a file")?.to_owned(), number("offset")?, number("bytes")?))
    };
    subtasks.iter().map(place).collect()
}

/// Every key's count and sum are those of the rows 0 to some n.
fn check_rows(rows: &[Value]) -> anyhow::Result<()> {
    ensure!(rows.len() == KEYS as usize, "{} rows", rows.len());
    let mut counts = Vec::new();
    for row in rows {
        let number = |key: &str| row[key].as_i64().with_context(|| format!("no {key} in {row}"));
        let key = number("key.k")?;
        let (count, total) = row_values(row)?;
        ensure!(total == count * key + KEYS * count * (count - 1) / 2, "{row}");
        counts.push(count);
    }
    let (least, most) = (counts.iter().min().context("rows")?, counts.iter().max().context("rows")?);
    ensure!(most - least <= 1 && *least > 0, "counts from {least} to {most}");
    Ok(())
}

/// Count and sum, whatever the columns of accumulators are called.
fn row_values(row: &Value) -> anyhow::Result<(i64, i64)> {
    let columns = row.as_object().context("an object")?;
    let numbers: Vec<i64> = columns
        .iter()
        .filter(|(name, _)| !name.starts_with("key.") && *name != "_key_group")
        .filter_map(|(_, value)| value.as_i64())
        .collect();
    match numbers[..] {
        [count, total, ..] => Ok((count, total)),
        _ => anyhow::bail!("no count and sum in {row}"),
    }
}

/// What a job deletes while it is read is not called damaged, on files of checkpoints and on files that these share.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_of_a_running_job_are_whole_or_gone() -> anyhow::Result<()> {
    for backend in ["fs", "rocksdb"] {
        let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
        let dir = cluster.path("checkpoints");
        let graph = graph(&dir).replace("backend: fs", &format!("backend: {backend}"));
        let graph = graph.replace("interval: 200ms", "interval: 10ms, num_retained: 1").replace("rate: 20000", "rate: 5000");
        let job = cluster.submit(&graph).await?;
        cluster.wait_for_checkpoints(&job, 3).await?;
        let (mut whole, mut gone) = (0, 0);
        for _ in 0..30 {
            let output = levada(&["verify", &text(&dir.join(&job))])?;
            let (found, refused) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
            ensure!(!found.contains("damage") && !refused.contains("damage"), "{backend}: {found}{refused}");
            let is_gone =
                refused.contains("was deleted or replaced while it was read") || refused.contains("there is no snapshot");
            ensure!(output.status.success() != is_gone, "{backend}: {found}{refused}");
            (whole, gone) = (whole + u32::from(!is_gone), gone + u32::from(is_gone));
        }
        println!("{backend}: {whole} times whole, {gone} times gone");
        cluster.client().await?.cancel(&job).await?;
        cluster.wait(&job).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_checkpoint_is_looked_into_without_its_job() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup::default()).await?;
    let job = checkpoints(&cluster).await?;
    drop(cluster.client().await?);

    let listed = printed(&["ls", &text(&job)])?;
    for part in ["sums", "aggregate", "keyed", "accumulators", "0..=127", "key k INT64", "numbers", "operator-list"] {
        ensure!(listed.contains(part), "\"{part}\" is missing in:\n{listed}");
    }
    let rows = printed(&["show", &text(&job), "sums", "--format", "ndjson"])?;
    check_rows(&rows.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?)?;
    let one = printed(&["show", &text(&job), "sums/aggregate", "--key", "7", "--format", "ndjson"])?;
    ensure!(one.lines().count() == 1 && one.contains("\"key.k\":7,"), "{one}");
    let table = printed(&["show", &text(&job), "sums", "--limit", "3"])?;
    ensure!(table.contains("the first 3 rows"), "{table}");

    let mut ids: Vec<u64> = fs::read_dir(&job)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("chk-")?.parse().ok())
        .filter(|id| job.join(format!("chk-{id}/_metadata")).exists())
        .collect();
    ids.sort_unstable();
    let [.., before, after] = ids[..] else { anyhow::bail!("only {ids:?} are retained") };
    let (before, after) = (text(&job.join(format!("chk-{before}"))), text(&job.join(format!("chk-{after}"))));
    let differ = levada(&["diff", &before, &after])?;
    let differences = String::from_utf8(differ.stdout)?;
    ensure!(differ.status.code() == Some(1), "{differences}");
    ensure!(differences.contains("sums/aggregate: 0 rows added, 0 removed, 100 changed"), "{differences}");
    ensure!(differences.contains("changed key.k="), "{differences}");
    ensure!(printed(&["diff", &after, &after])?.contains("0 of "));

    ensure!(printed(&["verify", &after])?.contains(": whole; "));
    let listed: Value = serde_json::from_str(&printed(&["ls", &after, "--json"])?)?;
    let (file, ..) = files(&listed)?.swap_remove(1);
    let path = job.join(&file);
    let mut bytes = fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&path, bytes)?;
    let verified = levada(&["verify", &after])?;
    let damage = String::from_utf8(verified.stdout)?;
    ensure!(verified.status.code() == Some(1), "{damage}");
    ensure!(damage.contains(&file) && damage.contains("CRC-32C") && damage.contains("subtask 1"), "{damage}");
    let refused = levada(&["show", &after, "sums", "--format", "ndjson"])?;
    ensure!(refused.status.code() == Some(1) && String::from_utf8_lossy(&refused.stderr).contains(&file));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pyarrow_reads_a_state_and_its_export() -> anyhow::Result<()> {
    let python = python("pyarrow", &PACKAGES)?;
    let cluster = Processes::start(Setup::default()).await?;
    let job = checkpoints(&cluster).await?;
    let parquet = cluster.path("sums.parquet");
    printed(&["export", &text(&job), "sums/aggregate", "--out", &text(&parquet)])?;
    let shown = printed(&["show", &text(&job), "sums", "--format", "ndjson"])?;
    let shown: Vec<Value> = shown.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    check_rows(&shown)?;

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/read_state.py");
    let listed: Value = serde_json::from_str(&printed(&["ls", &text(&job), "--json"])?)?;
    let mut arrow = Vec::new();
    for (file, offset, length) in files(&listed)? {
        let read = run(Command::new(&python)
            .arg(&script)
            .arg(job.join(file))
            .args([offset, length].map(|n| n.to_string()))
            .arg(&parquet))?;
        let mut lines = read.lines();
        let metadata: Value = serde_json::from_str(lines.next().context("metadata")?)?;
        ensure!(metadata["levada.uid"] == "sums" && metadata["levada.kind"] == "keyed", "{metadata}");
        let rows: usize = lines.next().context("a number of rows")?.parse()?;
        let lines: Vec<&str> = lines.collect();
        arrow.extend(lines[..rows].iter().map(|line| (*line).to_owned()));
        ensure!(lines.len() - rows == KEYS as usize, "the Parquet file has {} rows", lines.len() - rows);
        if arrow.len() == KEYS as usize {
            // The export has the rows of all subtasks, in their order.
            ensure!(arrow == lines[rows..], "Arrow and Parquet differ");
        }
    }
    let as_text = |row: &Value| -> Option<String> {
        let columns = row.as_object()?.iter().map(|(name, value)| (name.clone(), Value::String(value.to_string())));
        let mut columns: Vec<(String, Value)> = columns.collect();
        columns.sort_by(|(one, _), (other, _)| one.cmp(other));
        Some(Value::Object(columns.into_iter().collect()).to_string())
    };
    let expected: Vec<String> = shown.iter().filter_map(as_text).collect();
    let found: Vec<String> =
        arrow.iter().map(|line| Ok(serde_json::from_str::<Value>(line)?.to_string())).collect::<anyhow::Result<_>>()?;
    ensure!(found == expected, "pyarrow read {:?}, `show` printed {:?}", found.first(), expected.first());
    Ok(())
}
