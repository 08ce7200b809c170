//! Watermarks over several inputs: idle ones do not hold time back, silent ones that are not idle do.

use std::path::Path;

use levada::client::Afterwards;
use levada_integration_tests::feed::Feed;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::savepoint::take;
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::JobStatus;

use super::{node, wait_for_rows};

/// Two sockets, a union, counts in windows of 10 s; `idleness` as written.
fn graph(left: &Feed, right: &Feed, idleness: &str, out: &Path) -> String {
    let source = |feed: &Feed| {
        format!("{}\n    watermark: {{ column: ts, disorder: 0s, step: 1ms, idleness: {idleness} }}", feed.options("ts: INT64"))
    };
    format!(
        "version: 1
name: two-inputs
settings:
  parallelism: 4
  batch: {{ timeout: 10ms }}
  checkpoint: {{ interval: 50ms }}
sources:
  left:
    {}
  right:
    {}
transforms:
  counts:
    inputs: [left, right]
    window: {{ tumbling: {{ size: 10s }} }}
    aggregate: {{ n: count(*) }}
    select: {{ s: cast(window_start as bigint), n: n }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        source(left),
        source(right),
        out.display()
    )
}

fn row(ts: u64) -> String {
    format!("{{\"ts\":{ts}}}")
}

fn window(start: u64, n: u64) -> String {
    format!("{{\"s\":{start},\"n\":{n}}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn g21_an_idle_input_does_not_hold_time_back() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 4, ..Setup::default() }).await?;
    let (mut busy, mut quiet) = (Feed::start().await?, Feed::start().await?);
    let out = cluster.path("out");
    let job = cluster.submit(&graph(&busy, &quiet, "1s", &out)).await?;
    busy.connected(1).await?;
    quiet.connected(1).await?;
    quiet.send(&row(500));
    for second in 0..60 {
        busy.send(&row(second * 1000));
    }
    let mut expected = vec![window(0, 11)];
    expected.extend((1..5).map(|decade| window(decade * 10_000, 10)));
    wait_for_rows(&cluster, &job, &out, &expected).await?;
    // Both inputs may be idle by now: a row that is still on its way would be late for time that the other one makes.
    cluster.wait_until(&job, "all rows read", |status| node(status, "left").rows_out == 60).await?;
    quiet.send(&row(45_000));
    cluster.wait_until(&job, "one late row", |status| node(status, "counts").late_rows == 1).await?;
    quiet.send(&row(60_000));
    busy.send(&row(60_000));
    expected.push(window(50_000, 10));
    wait_for_rows(&cluster, &job, &out, &expected).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g25_time_waits_for_the_slower_of_two_inputs() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 4, ..Setup::default() }).await?;
    for swapped in [false, true] {
        let (mut left, mut right) = (Feed::start().await?, Feed::start().await?);
        let out = cluster.path(&format!("out-{swapped}"));
        let job = cluster.submit(&graph(&left, &right, "off", &out)).await?;
        left.connected(1).await?;
        right.connected(1).await?;
        let (ahead, behind) = if swapped { (&right, &left) } else { (&left, &right) };
        for ts in [0, 10_000, 20_000, 30_000] {
            ahead.send(&row(ts));
        }
        behind.send(&row(0));
        let all_in = |status: &JobStatus| node(status, "left").rows_out + node(status, "right").rows_out == 5;
        let status = cluster.wait_until(&job, "five rows read", all_in).await?;
        let seen = status.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&job, seen + 4).await?;
        wait_for_rows(&cluster, &job, &out, &[]).await?;
        behind.send(&row(30_000));
        let expected = [window(0, 2), window(10_000, 1), window(20_000, 1)];
        wait_for_rows(&cluster, &job, &out, &expected).await?;
        cluster.client().await?.cancel(&job).await?;
        cluster.wait(&job).await?;
    }
    Ok(())
}

/// G24: the end of data is the end of time, whoever is idle then.
#[tokio::test(flavor = "multi_thread")]
async fn g24_a_drain_while_a_source_is_idle_fires_what_waits() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 4, ..Setup::default() }).await?;
    let (mut left, mut right) = (Feed::start().await?, Feed::start().await?);
    let out = cluster.path("out");
    let job = cluster.submit(&graph(&left, &right, "300ms", &out)).await?;
    left.connected(1).await?;
    right.connected(1).await?;
    (0..26).for_each(|second| left.send(&row(second * 1000)));
    let silent =
        |status: &JobStatus| node(status, "left").rows_out == 26 && status.tasks.iter().filter(|task| task.idle).count() > 1;
    cluster.wait_until(&job, "two idle sources", silent).await?;
    take(&cluster, &job, Afterwards::Drains).await?;
    cluster.finish(&job).await?;
    assert_eq!(output_lines(&out)?, [window(0, 10), window(10_000, 10), window(20_000, 6)]);
    Ok(())
}

/// G25 with a join: rows of a window wait for the side that is behind.
#[tokio::test(flavor = "multi_thread")]
async fn g25_a_join_waits_for_the_slower_of_its_sides() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 4, ..Setup::default() }).await?;
    for swapped in [false, true] {
        let (mut left, mut right) = (Feed::start().await?, Feed::start().await?);
        let out = cluster.path(&format!("out-{swapped}"));
        let counted = "window: { tumbling: { size: 10s } }\n    aggregate: { n: count(*) }";
        let joined = graph(&left, &right, "off", &out)
            .replace(
                "inputs: [left, right]",
                "inputs: [left]\n    join: { with: [right], on: { ts: ts }, kind: full, take: { other: ts } }",
            )
            .replace(
                &format!("    {counted}\n    select: {{ s: cast(window_start as bigint), n: n }}"),
                "    window: { tumbling: { size: 10s } }\n    select: { s: cast(window_start as bigint), n: 1 }",
            );
        let job = cluster.submit(&joined).await?;
        left.connected(1).await?;
        right.connected(1).await?;
        let (ahead, behind) = if swapped { (&right, &left) } else { (&left, &right) };
        [0, 10_000, 20_000, 30_000].into_iter().for_each(|ts| ahead.send(&row(ts)));
        behind.send(&row(0));
        let all_in = |status: &JobStatus| node(status, "left").rows_out + node(status, "right").rows_out == 5;
        let status = cluster.wait_until(&job, "five rows read", all_in).await?;
        let seen = status.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&job, seen + 4).await?;
        wait_for_rows(&cluster, &job, &out, &[]).await?;
        behind.send(&row(30_000));
        wait_for_rows(&cluster, &job, &out, &[window(0, 1), window(10_000, 1), window(20_000, 1)]).await?;
        cluster.client().await?.cancel(&job).await?;
        cluster.wait(&job).await?;
    }
    Ok(())
}

/// G23: time goes on when TaskManagers come back, all of them at once or one in the place of another.
#[tokio::test(flavor = "multi_thread")]
async fn g23_time_goes_on_when_task_managers_come_back() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let settings = format!(
        "  parallelism: 4\n  state: {{ backend: fs }}\n  checkpoint: {{ interval: 100ms, dir: \"file://{}\" }}\n  restart: {{ strategy: fixed-delay, delay: 50ms, attempts: 100 }}",
        cluster.path("checkpoints").display()
    );
    let stream = StreamA { rows: 300_000, rate: Some(60_000), settings };
    let job = cluster.submit(&stream.graph(&out)).await?;
    let time = |status: &JobStatus| node(status, "sums").watermark_ms.unwrap_or(i64::MIN);
    for (round, stopped) in [vec![0, 1], vec![0]].into_iter().enumerate() {
        let reached = time(&cluster.wait_for_checkpoints(&job, 2).await?);
        let running = cluster.running();
        for which in &stopped {
            cluster.kill_task_manager(running[*which])?;
        }
        for _ in &stopped {
            cluster.start_task_manager()?;
        }
        let goes_on = |status: &JobStatus| status.restarts > round as u32 && time(status) > reached;
        cluster.wait_until(&job, "time that goes on", goes_on).await?;
    }
    let status = cluster.finish(&job).await?;
    assert!(status.restarts >= 2 && output_lines(&out)? == stream.expected(), "{} restarts", status.restarts);
    Ok(())
}
