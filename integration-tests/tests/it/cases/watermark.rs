//! Watermarks over several inputs: idle ones do not hold time back, silent ones that are not idle do.

use std::path::Path;

use levada_integration_tests::feed::Feed;
use levada_integration_tests::process::{Processes, Setup};

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
        let all_in = |status: &levada_proto::v1::JobStatus| node(status, "left").rows_out + node(status, "right").rows_out == 5;
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
