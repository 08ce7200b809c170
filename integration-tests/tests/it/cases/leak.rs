//! G44, G45, G46: state goes when its time is over, whether anything came of it or not.

use std::time::Instant;

use levada::client::Afterwards;
use levada_integration_tests::feed::Feed;
use levada_integration_tests::process::{PATIENCE, Processes, Setup, output_lines};
use levada_integration_tests::savepoint::{from, stop, submit, take, uri};
use levada_proto::v1::JobStatus;

use super::{Job, node};

const BACKENDS: [&str; 3] = ["memory", "fs", "rocksdb"];

#[tokio::test(flavor = "multi_thread")]
async fn g44_windows_without_a_result_are_dropped() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    for backend in BACKENDS {
        let out = cluster.path(&format!("out-{backend}"));
        let settings = format!(
            "parallelism: 2, state: {{ backend: {backend} }}, checkpoint: {{ interval: 100ms, dir: \"{}\" }}",
            uri(&cluster.path("checkpoints"))
        );
        // A thousand new keys a second of event time; the disorder keeps 20 to 21 windows open, of which none gives a row.
        let job = Job {
            settings: &settings,
            source: "generate: { from: 0, to: 800000, rate: 80000, columns: { k: n, ts: n } }\nwatermark: { column: ts, disorder: 20s }"
                .into(),
            transform: "key_by: [k]\nwindow: { tumbling: { size: 1s } }\naggregate: { n: count(*) }\nhaving: n < 0",
            out: &out,
        };
        let id = cluster.submit(&job.graph()).await?;
        let mut sizes = Vec::new();
        for rows in [100_000, 400_000] {
            cluster.wait_until(&id, "rows read", |status| node(status, "input").rows_out >= rows).await?;
            // A savepoint has what there is; a checkpoint of a database has what was deleted until the files that say so are merged.
            sizes.push(take(&cluster, &id, Afterwards::GoesOn).await?.bytes);
        }
        let (early, late) = (sizes[0], sizes[1]);
        assert!(early > 100_000 && late < early * 6 / 5, "{backend}: a savepoint had {early} bytes, later {late}");
        let status = cluster.finish(&id).await?;
        assert_eq!(node(&status, "step").state_keys, 0, "{backend}: windows are left");
        assert_eq!(output_lines(&out)?, Vec::<String>::new(), "{backend}");
    }
    Ok(())
}

const KEYS: u64 = 100;

/// Counts by key with this function, of what the feed says.
fn counting(cluster: &Processes, backend: &str, function: &str, feed: &Feed, out: &std::path::Path) -> String {
    format!(
        "version: 1
name: counting
settings:
  parallelism: 2
  state: {{ backend: {backend}, inline_threshold: 0 }}
  batch: {{ timeout: 10ms }}
  checkpoint: {{ interval: 1h, dir: \"{}\" }}
sources:
  lines: {{ {} }}
transforms:
  counts: {{ inputs: [lines], key_by: [k], process: {function} }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        uri(&cluster.path("checkpoints")),
        feed.options("k: STRING, v: INT64"),
        out.display()
    )
}

/// Bytes that the counts take in a savepoint of the job, which goes on: the sink's state grows with each, since none commits.
async fn bytes_of_counts(cluster: &Processes, job: &str) -> anyhow::Result<u64> {
    let savepoint = take(cluster, job, Afterwards::GoesOn).await?;
    let metadata = levada_proto::snapshot::open(&savepoint.path).await?.metadata;
    Ok(metadata.states().filter(|state| state.uid.as_str() == "counts").map(|state| state.handle.length()).sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn g45_what_has_expired_goes_though_no_one_reads_it_again() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    // A database has what expired until its files are merged.
    for backend in ["memory", "fs"] {
        let (mut feed, mut sent) = (Feed::start().await?, 0);
        let out = cluster.path(&format!("out-{backend}"));
        let job = cluster.submit(&counting(&cluster, backend, "count_for_two_seconds", &feed, &out)).await?;
        feed.connected(1).await?;
        let mut send = |key: &str| {
            feed.send(&format!("{{\"k\":\"{key}\",\"v\":0}}"));
            sent += 1;
            sent
        };
        let counted = async |rows: u64| {
            let counted = |status: &JobStatus| node(status, "counts").rows_out >= rows;
            cluster.wait_until(&job, "all rows counted", counted).await
        };
        counted(send("tick")).await?;
        let alone = bytes_of_counts(&cluster, &job).await?;
        let rows = (0..10_000).map(|key| send(&format!("k{key}"))).last().expect("there are some");
        counted(rows).await?;
        let (mut bytes, began) = (bytes_of_counts(&cluster, &job).await?, Instant::now());
        while bytes > alone * 11 / 10 && began.elapsed() < PATIENCE {
            counted(send("tick")).await?;
            bytes = bytes_of_counts(&cluster, &job).await?;
        }
        assert!(bytes <= alone * 11 / 10, "{backend}: the counts take {bytes} bytes, with one key they took {alone}");
        counted(send("k1")).await?;
        stop(&cluster, &job).await?;
        let rows = output_lines(&out)?;
        let of_key: Vec<&String> = rows.iter().filter(|row| row.contains("\"k1\"")).collect();
        assert!(of_key.len() == 2 && of_key.iter().all(|row| row.ends_with("\"n\":1}")), "{backend}: {of_key:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g46_a_time_to_live_is_switched_on_and_off_across_restores() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    for backend in BACKENDS {
        let mut place = String::new();
        let mut counted = 0;
        for (leg, (function, records)) in [("count", 50), ("count_for_an_hour", 1), ("count", 1)].into_iter().enumerate() {
            let mut feed = Feed::start().await?;
            let out = cluster.path(&format!("out-{backend}-{leg}"));
            let job = submit(&cluster, &counting(&cluster, backend, function, &feed, &out), from(&place)).await?;
            feed.connected(1).await?;
            for record in 0..records * KEYS {
                feed.send(&format!("{{\"k\":\"k{}\",\"v\":{record}}}", record % KEYS));
            }
            let read = |status: &JobStatus| node(status, "counts").rows_out == records * KEYS;
            cluster.wait_until(&job, "all rows counted", read).await?;
            counted += records;
            place = stop(&cluster, &job).await?.path;
            let rows = output_lines(&out)?;
            let newest = rows.iter().filter(|row| row.ends_with(&format!("\"n\":{counted}}}"))).count() as u64;
            assert_eq!((rows.len() as u64, newest), (records * KEYS, KEYS), "{backend}, leg {leg}");
        }
    }
    Ok(())
}
