//! G32: a window that waits for its end when its TaskManager dies still closes, without another row for its key.

use levada_integration_tests::feed::Feed;
use levada_integration_tests::process::{Processes, Setup};
use levada_proto::v1::JobState;

use super::{Job, wait_for_rows};

#[tokio::test(flavor = "multi_thread")]
async fn g32_a_pending_window_closes_after_a_restore() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 3, ..Setup::default() }).await?;
    for (backend, parallelism) in [("memory", 1), ("memory", 3), ("fs", 1), ("fs", 3), ("rocksdb", 1), ("rocksdb", 3)] {
        let mut feed = Feed::start().await?;
        let out = cluster.path(&format!("out-{backend}-{parallelism}"));
        let settings = format!(
            "parallelism: {parallelism}, state: {{ backend: {backend}, inline_threshold: 0 }}, batch: {{ timeout: 10ms }}, restart: {{ strategy: fixed-delay, delay: 10ms, attempts: 10 }}, checkpoint: {{ interval: 50ms, dir: \"file://{}\" }}",
            cluster.path("checkpoints").display()
        );
        let job = Job {
            settings: &settings,
            source: format!("{}\nwatermark: {{ column: ts, step: 1ms, idleness: off }}", feed.options("k: STRING, ts: INT64")),
            transform: "key_by: [k]\nwindow: { tumbling: { size: 10s } }\naggregate: { n: count(*) }\nselect: { k: k, s: cast(window_start as bigint), n: n }",
            out: &out,
        };
        let id = cluster.submit(&job.graph()).await?;
        feed.connected(1).await?;
        for (key, ts) in [("a", 0), ("a", 4000), ("a", 8000), ("b", 0)] {
            feed.send(&format!("{{\"k\":\"{key}\",\"ts\":{ts}}}"));
        }
        let read = |status: &levada_proto::v1::JobStatus| super::node(status, "input").rows_out == 4;
        let status = cluster.wait_until(&id, "four rows read", read).await?;
        let seen = status.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&id, seen + 2).await?;
        let running = cluster.running()[0];
        cluster.kill_task_manager(running)?;
        cluster.start_task_manager()?;
        cluster.wait_until(&id, "RUNNING again", |status| status.restarts == 1 && status.state() == JobState::Running).await?;
        feed.connected(2).await?;
        for ts in [12_000, 25_000] {
            feed.send(&format!("{{\"k\":\"b\",\"ts\":{ts}}}"));
        }
        let expected = [r#"{"k":"a","s":0,"n":3}"#, r#"{"k":"b","s":0,"n":1}"#, r#"{"k":"b","s":10000,"n":1}"#].map(String::from);
        wait_for_rows(&cluster, &id, &out, &expected).await?;
        cluster.client().await?.cancel(&id).await?;
        cluster.wait(&id).await?;
    }
    Ok(())
}
