//! Windows on real processes: Nexmark's q5 and q11 with short windows against a slow reference, and a kill in the middle.

use std::path::Path;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use levada_common::graph::{GraphGap, GraphWindow, JobGraph};
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::windows as reference;
use levada_proto::v1::{JobState, JobStatus};
use serde_json::Value;

use crate::nexmark;

const Q5: &str = include_str!("../../../examples/nexmark/q5.yaml");
const Q5_TOP: &str = include_str!("../../../examples/nexmark/q5-top.yaml");
const Q11: &str = include_str!("../../../examples/nexmark/q11.yaml");

/// Four seconds of event time.
const EVENTS: u64 = 400_000;

const SIZE_MS: i64 = 700;
const SLIDE_MS: i64 = 200;
const GAP_MS: i64 = 150;

/// An example with this window, writing to `out`.
fn graph(example: &str, window: GraphWindow, parallelism: u32, rate: Option<u64>, out: &Path) -> JobGraph {
    let mut graph = nexmark::graph(example, parallelism, EVENTS, rate, out);
    graph.transforms[0].window = Some(window);
    graph
}

fn sliding() -> GraphWindow {
    GraphWindow::Sliding { size_ms: SIZE_MS, slide_ms: SLIDE_MS, offset_ms: 0 }
}

fn session() -> GraphWindow {
    GraphWindow::Session { gap: GraphGap::Fixed { ms: GAP_MS } }
}

/// By the end of each window: auction and bids of those that have most.
fn hottest() -> Vec<String> {
    let rows = reference::hottest(EVENTS, SIZE_MS, SLIDE_MS);
    sorted(rows.into_iter().map(|(end, auction, bids)| format!("{end} {auction} {bids}")))
}

/// By bidder and session: start, end and bids.
fn sessions() -> Vec<String> {
    let rows = reference::sessions(EVENTS, GAP_MS);
    sorted(rows.into_iter().map(|(bidder, start, end, bids)| format!("{bidder} {start} {end} {bids}")))
}

fn sorted(rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    rows
}

/// The rows that a job published: these columns, times in milliseconds.
fn rows(out: &Path, columns: &[&str]) -> anyhow::Result<Vec<String>> {
    let cell = |value: &Value| match value.as_str() {
        Some(time) => (string_to_timestamp_nanos(time).expect("a time") / 1_000_000).to_string(),
        None => value.to_string(),
    };
    let chosen = |line: &String| {
        let row: Value = serde_json::from_str(line).expect("a line is JSON");
        columns.iter().map(|column| cell(&row[*column])).collect::<Vec<_>>().join(" ")
    };
    Ok(sorted(output_lines(out)?.iter().map(chosen)))
}

const HOTTEST: [&str; 3] = ["window_end", "auction", "bids"];

const SESSIONS: [&str; 4] = ["bidder", "window_start", "window_end", "bids"];

#[tokio::test(flavor = "multi_thread")]
async fn nexmark_windows_give_the_rows_of_the_reference() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup::default()).await?;
    let (hottest, sessions) = (hottest(), sessions());
    assert!(hottest.len() > 15 && sessions.len() > 5_000, "the reference is empty");
    for parallelism in [1, 3] {
        let queries = [
            ("q5", Q5, sliding(), &HOTTEST[..], &hottest),
            ("q5-top", Q5_TOP, sliding(), &HOTTEST[..], &hottest),
            ("q11", Q11, session(), &SESSIONS[..], &sessions),
        ];
        for (name, example, window, columns, expected) in queries {
            let out = cluster.path(&format!("{name}-{parallelism}"));
            let job = cluster.submit(&graph(example, window, parallelism, None, &out).to_yaml()).await?;
            let status = cluster.wait(&job).await?;
            assert_eq!(status.state(), JobState::Finished, "{name}: {}\n{}", status.failure, cluster.logs());
            assert!(status.nodes.iter().all(|node| node.late_rows == 0), "{name}: no row is late");
            assert!(&rows(&out, columns)? == expected, "{name} at parallelism {parallelism}: the rows differ");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_survive_a_kill() -> anyhow::Result<()> {
    let (hottest, sessions) = (hottest(), sessions());
    let queries = [
        ("memory", Q5, sliding(), &HOTTEST[..], &hottest),
        ("fs", Q5, sliding(), &HOTTEST[..], &hottest),
        ("fs", Q5_TOP, sliding(), &HOTTEST[..], &hottest),
        ("memory", Q11, session(), &SESSIONS[..], &sessions),
        ("fs", Q11, session(), &SESSIONS[..], &sessions),
    ];
    for (at, (backend, example, window, columns, expected)) in queries.into_iter().enumerate() {
        let mut cluster = Processes::start(Setup::default()).await?;
        let out = cluster.path(&format!("out-{at}"));
        let graph = graph(example, window, 2, Some(80_000), &out);
        let name = graph.name.clone();
        nexmark::finish_after_a_kill(&mut cluster, graph, backend, &out).await?;
        assert!(&rows(&out, columns)? == expected, "{name} on {backend}: the rows differ");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_in_databases_with_hardly_any_memory_survive_a_kill() -> anyhow::Result<()> {
    let (hottest, sessions) = (hottest(), sessions());
    let queries = [(Q5, sliding(), &HOTTEST[..], &hottest), (Q11, session(), &SESSIONS[..], &sessions)];
    for (example, window, columns, expected) in queries {
        let mut settings = Setup::default().settings;
        settings.extend(["taskmanager.memory.total=256MiB", "rocksdb.memory_fraction=0.001"].map(String::from));
        let mut cluster = Processes::start(Setup { settings, ..Setup::default() }).await?;
        let out = cluster.path("out");
        let graph = graph(example, window, 2, Some(80_000), &out);
        let name = graph.name.clone();
        let job = nexmark::start(&cluster, graph, "rocksdb").await?;
        let half = |status: &JobStatus| status.nodes.iter().any(|node| node.rows_out >= EVENTS / 2);
        cluster.wait_until(&job, "half of the events", |status| half(status) || status.restarts > 0).await?;
        assert!(cluster.figure("levada_node_store_reads_total").await > 0.0, "{name}: nothing left memory");
        nexmark::kill_and_finish(&mut cluster, &job, &out).await?;
        assert!(&rows(&out, columns)? == expected, "{name}: the rows differ");
    }
    Ok(())
}
