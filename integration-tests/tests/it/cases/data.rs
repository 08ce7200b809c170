//! Values: float keys, overflow, large integers, deep JSON, null keys, bad records.

use std::collections::BTreeMap;
use std::path::Path;

use levada_integration_tests::feed::Feed;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::savepoint::{from, stop, submit, uri};
use levada_proto::v1::{JobState, JobStatus};

use super::{Job, finish, input, node, run};

async fn cluster() -> anyhow::Result<Processes> {
    Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await
}

fn source(path: &str, columns: &str, policy: &str) -> String {
    format!("file: {{ path: \"{path}\", format: ndjson, columns: {{ {columns} }} }}\nbad_records: {policy}")
}

const COUNT_BY_KEY: &str = "key_by: [k]\nwindow: global\naggregate: { n: count(*) }";

/// Counts by a float key of what the feed says.
fn count_floats(cluster: &Processes, backend: &str, parallelism: u32, feed: &Feed, out: &Path) -> String {
    format!(
        "version: 1
name: floats
settings:
  parallelism: {parallelism}
  max_parallelism: 12
  batch: {{ timeout: 10ms }}
  state: {{ backend: {backend}, inline_threshold: 0 }}
  restart: {{ strategy: fixed-delay, delay: 20ms, attempts: 5 }}
  checkpoint: {{ interval: 50ms, dir: \"{}\" }}
sources:
  lines: {{ {} }}
transforms:
  counts: {{ inputs: [lines], key_by: [k], aggregate: {{ n: count(*) }} }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        uri(&cluster.path("checkpoints")),
        feed.options("k: FLOAT64"),
        out.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn g57_float_keys() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    // Zero comes ten times, one and what is no number four times.
    let keys = ["0.0", "-0.0", "0", "-0", "1e-400", "1.0", "1", "\"NaN\"", "\"NaN\""];
    for backend in ["memory", "fs", "rocksdb"] {
        let outs = [cluster.path(&format!("first-{backend}")), cluster.path(&format!("second-{backend}"))];
        let mut feed = Feed::start().await?;
        let job = cluster.submit(&count_floats(&cluster, backend, 4, &feed, &outs[0])).await?;
        feed.connected(1).await?;
        let send = |feed: &Feed, keys: &[&str]| keys.iter().for_each(|key| feed.send(&format!("{{\"k\":{key}}}")));
        let read = |status: &JobStatus, rows: u64| node(status, "lines").rows_out >= rows;
        send(&feed, &keys);
        let status = cluster.wait_until(&job, "nine rows", |status| read(status, 9)).await?;
        let seen = status.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&job, seen + 2).await?;
        cluster.kill_task_manager(cluster.running()[0])?;
        cluster.start_task_manager()?;
        cluster.wait_until(&job, "RUNNING again", |status| status.restarts == 1 && status.state() == JobState::Running).await?;
        feed.connected(2).await?;
        send(&feed, &keys[..4]);
        cluster.wait_until(&job, "four rows more", |status| read(status, 4)).await?;
        let savepoint = stop(&cluster, &job).await?;

        let mut feed = Feed::start().await?;
        let job = submit(&cluster, &count_floats(&cluster, backend, 3, &feed, &outs[1]), from(&savepoint.path)).await?;
        feed.connected(1).await?;
        send(&feed, &keys[4..]);
        cluster.wait_until(&job, "five rows more", |status| read(status, 5)).await?;
        stop(&cluster, &job).await?;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for line in output_lines(&outs[0])?.into_iter().chain(output_lines(&outs[1])?) {
            let row: serde_json::Value = serde_json::from_str(&line)?;
            let count = counts.entry(row["k"].to_string()).or_default();
            *count = (*count).max(row["n"].as_u64().expect("a count"));
        }
        let counts: Vec<(&str, u64)> = counts.iter().map(|(key, count)| (key.as_str(), *count)).collect();
        assert_eq!(counts, [("\"NaN\"", 4), ("0.0", 10), ("1.0", 4)], "{backend}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g58_integer_sums_do_not_wrap() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let lines = [("a", 9_000_000_000_000_000_000i64), ("a", 9_000_000_000_000_000_000), ("b", 1), ("b", 2)]
        .map(|(key, value)| format!("{{\"k\":\"{key}\",\"v\":{value}}}"));
    let path = input(&cluster, "sums.ndjson", &lines)?;
    let out = cluster.path("out");
    let transform = "key_by: [k]\nwindow: global\naggregate: { total: sum(v), mean: avg(v) }";
    let job = Job { settings: "parallelism: 4", source: source(&path, "k: STRING, v: INT64", "fail"), transform, out: &out };
    let (_, rows) = finish(&cluster, &job).await?;
    assert_eq!(rows.len(), 2);
    assert!(rows[0].starts_with(r#"{"k":"a","total":18000000000000000000,"mean":9"#), "{}", rows[0]);
    assert_eq!(rows[1], r#"{"k":"b","total":3,"mean":1.5}"#);

    for expression in ["abs(v)", "-v", "v - 1", "v * 2"] {
        let path =
            input(&cluster, "least.ndjson", &[format!("{{\"k\":\"a\",\"v\":{}}}", i64::MIN), "{\"k\":\"a\",\"v\":1}".into()])?;
        let out = cluster.path(&format!("out-{}", expression.replace(['(', ')', ' ', '*', '-'], "_")));
        let transform = format!("select: {{ v: \"{expression}\" }}\nbad_records: drop");
        let job = Job {
            settings: "parallelism: 1",
            source: source(&path, "k: STRING, v: INT64", "fail"),
            transform: &transform,
            out: &out,
        };
        let (status, rows) = finish(&cluster, &job).await?;
        assert_eq!((rows.len(), node(&status, "step").bad_records), (1, 1), "{expression}: {rows:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g59_large_integers_keep_every_digit() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let good = ["9007199254740993", "-9007199254740993", "9223372036854775807", "9007199254740992"];
    let bad = ["18446744073709551615", "123456789012345678901234567890"];
    let lines: Vec<String> = good.iter().chain(&bad).map(|value| format!("{{\"k\":{value}}}")).collect();
    let path = input(&cluster, "large.ndjson", &lines)?;
    let (passed, keyed) = (cluster.path("passed"), cluster.path("keyed"));
    let columns = source(&path, "k: INT64", "drop");
    let job = Job { settings: "parallelism: 2", source: columns.clone(), transform: "select: { k: k }", out: &passed };
    let (status, rows) = finish(&cluster, &job).await?;
    let mut expected: Vec<String> = good.iter().map(|value| format!("{{\"k\":{value}}}")).collect();
    expected.sort_unstable();
    assert_eq!((rows, node(&status, "input").bad_records), (expected, 2));
    let job = Job { settings: "parallelism: 4", source: columns, transform: COUNT_BY_KEY, out: &keyed };
    let (_, rows) = finish(&cluster, &job).await?;
    assert_eq!(rows.len(), 4, "every value is a key of its own: {rows:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g60_deep_json_is_a_bad_record() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let mut lines = vec!["{\"id\":0}".to_string()];
    let mut bad = 0;
    for (number, depth) in [10usize, 127, 128, 129, 1000, 100_000].into_iter().enumerate() {
        // The object around the value is one level itself.
        let nested = depth - 1;
        for (open, close) in [("[", "]"), ("{\"x\":", "}")] {
            lines.push(format!("{{\"id\":{},\"x\":{}1{}}}", 10 * (number + 1), open.repeat(nested), close.repeat(nested)));
            lines.push(format!("{{\"id\":0,\"x\":{}", open.repeat(nested)));
            bad += 1 + u64::from(depth > 128);
        }
    }
    lines.push("{\"id\":1}".into());
    let path = input(&cluster, "deep.ndjson", &lines)?;
    let out = cluster.path("out");
    let job = Job {
        settings: "parallelism: 2",
        source: source(&path, "id: INT64", "drop"),
        transform: "select: { id: id }",
        out: &out,
    };
    let (status, rows) = finish(&cluster, &job).await?;
    assert_eq!(node(&status, "input").bad_records, bad);
    assert_eq!(rows.len() as u64, lines.len() as u64 - bad);

    let deep = format!("version: 1\nname: deep\nsettings: {}", "[".repeat(100_000));
    let error = cluster.submit(&deep).await.expect_err("a document of that depth").to_string();
    assert!(error.contains("line 3") && error.contains("recursion limit"), "{error}");
    assert!(cluster.client().await?.list().await.is_ok(), "the JobManager is gone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g61_null_and_missing_keys_are_one_group() -> anyhow::Result<()> {
    let mut cluster = cluster().await?;
    let keys =
        ["\"k\":\"x\"", "\"k\":\"\"", "\"k\":null", "\"other\":1", "\"k\":\"null\"", "\"k\":0", "\"k\":false", "\"k\":{\"a\":1}"];
    let lines: Vec<String> = keys.iter().flat_map(|key| std::iter::repeat_n(format!("{{{key}}}"), 3)).collect();
    let path = input(&cluster, "keys.ndjson", &lines)?;
    let out = cluster.path("out");
    let settings = "parallelism: 4, checkpoint: { interval: 50ms }, restart: { strategy: fixed-delay, delay: 20ms, attempts: 5 }";
    let job = Job { settings, source: source(&path, "k: STRING", "drop"), transform: COUNT_BY_KEY, out: &out };
    let id = cluster.submit(&job.graph()).await?;
    cluster.kill_task_manager(0)?;
    cluster.start_task_manager()?;
    let status = cluster.wait(&id).await?;
    assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
    let expected = [r#"{"k":"","n":3}"#, r#"{"k":"null","n":3}"#, r#"{"k":"x","n":3}"#, r#"{"k":null,"n":6}"#];
    assert_eq!(output_lines(&out)?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g62_bad_records_follow_the_policy() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let mut lines: Vec<Vec<u8>> = (0..1000).map(|id| format!("{{\"id\":{id}}}").into_bytes()).collect();
    lines[500] = b"{\"k\":".to_vec();
    lines[501] = b"".to_vec();
    lines[502] = b"{\"id\":\"\xFF\"}".to_vec();
    lines[503] = b"{}".to_vec();
    lines[504] = b"{\"id\":504,\"extra\":true}".to_vec();
    let path = input(&cluster, "bad.ndjson", &lines)?;
    let out = cluster.path("dropped");
    let job = Job {
        settings: "parallelism: 2",
        source: source(&path, "id: INT64", "drop"),
        transform: "select: { id: id }",
        out: &out,
    };
    let (status, rows) = finish(&cluster, &job).await?;
    assert_eq!((rows.len(), node(&status, "input").bad_records), (997, 3));
    assert!(node(&status, "input").last_bad_record.contains("bad.ndjson"), "{}", node(&status, "input").last_bad_record);
    assert!(rows.contains(&"{\"id\":null}".to_string()) && rows.contains(&"{\"id\":504}".to_string()));

    let out = cluster.path("failed");
    let settings = "parallelism: 1, checkpoint: {}";
    let job = Job { settings, source: source(&path, "id: INT64", "fail"), transform: "select: { id: id }", out: &out };
    let (status, rows) = run(&cluster, &job).await?;
    assert_eq!((status.state(), status.restarts, rows.len()), (JobState::Failed, 0, 0));
    assert!(status.failure.contains("bad.ndjson"), "{}", status.failure);
    Ok(())
}
