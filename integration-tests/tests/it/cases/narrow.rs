//! G80: a store behind a narrow link takes as long as its bytes need, in both directions; behind a dead one nobody waits for long.

use std::time::{Duration, Instant};

use bytes::Bytes;
use levada_common::storage::Storage;
use levada_integration_tests::link::Link;
use levada_integration_tests::process::{Processes, Setup};
use levada_integration_tests::services;
use levada_proto::v1::JobStatus;

/// Bytes a second of a link that nothing holds back.
const WIDE: u64 = 1 << 30;

/// Bytes a second by which what is written takes longer than requests usually may.
const NARROW: u64 = 240 << 10;

/// A state of 128 bytes that no one can make smaller for each of 65,000 keys.
const ROWS: &str = "      from: 0
      rate: 65000
      columns: { k: n % 65000, text: \"encode(sha512(cast(n % 65000 AS TEXT)), 'hex')\" }";

fn completed(status: &JobStatus) -> (u64, u64) {
    let all = status.checkpoints.as_ref();
    all.map_or((0, 0), |all| (all.completed, all.last_completed.as_ref().map_or(0, |last| last.bytes)))
}

#[tokio::test(flavor = "multi_thread")]
async fn g80_checkpoints_and_restores_go_through_a_narrow_link() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let link = Link::start(s3.address, WIDE).await?;
    let setup = Setup { task_managers: 1, slots: 1, environment: s3.environment(link.address), ..Setup::default() };
    let mut cluster = Processes::start(setup).await?;
    let job = cluster
        .submit(&format!(
            "version: 1
name: narrow
settings:
  state: {{ backend: fs }}
  checkpoint: {{ interval: 200ms, timeout: 10m, num_retained: 1, tolerable_failures: 0, dir: \"{}\" }}
  restart: {{ strategy: fixed-delay, attempts: 10, delay: 50ms }}
sources:
  numbers:
    generate:
{ROWS}
transforms:
  largest:
    inputs: [numbers]
    key_by: [k]
    aggregate: {{ text: max(text) }}
sinks:
  out: {{ inputs: [largest], blackhole: {{}} }}
",
            s3.folder("g80"),
        ))
        .await?;
    let status = cluster.wait_until(&job, "a checkpoint of all keys", |status| completed(status).1 > 8_000_000).await?;
    link.set(NARROW);
    // The one that is under way may have passed before.
    let (before, _) = completed(&status);
    cluster.wait_for_checkpoints(&job, before + 2).await?;
    cluster.kill_task_manager(0)?;
    cluster.start_task_manager()?;
    let restored = |status: &JobStatus| status.restarts > 0 && completed(status).0 > before + 2;
    let status = cluster.wait_until(&job, "a checkpoint after the restore", restored).await?;
    link.set(WIDE);
    let failed = status.checkpoints.as_ref().map_or(0, |all| all.failed);
    assert_eq!(status.restarts, 1, "{}", status.failure);
    assert!(failed <= 1, "{failed} checkpoints failed beside the one that the kill met");
    assert!(completed(&status).1 > 8_000_000, "{} bytes", completed(&status).1);
    cluster.client().await?.cancel(&job).await?;
    cluster.wait(&job).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g80_nobody_waits_for_a_dead_link() -> anyhow::Result<()> {
    let s3 = services::s3().await?;
    let link = Link::start(s3.address, WIDE).await?;
    let storage = Storage::open_with(&s3.folder("g80-dead"), &s3.options(link.address))?;
    storage.put("before", Bytes::from_static(b"a")).await?;
    link.set(0);
    let began = Instant::now();
    let error = storage.put("large", Bytes::from(vec![1; 8 << 20])).await.expect_err("nothing passes").to_string();
    // Who notices first: the kernel, that nothing is acknowledged for half a minute, or the client, that nothing is taken.
    let says = ["Connection timed out", "nothing was sent or received for 45 seconds"];
    assert!(error.contains("large") && says.iter().any(|says| error.contains(says)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    Ok(())
}
