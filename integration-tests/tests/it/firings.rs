//! Windows that give results early and late, on real processes: every row comes behind time, and a kill in the middle.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use levada_common::graph::JobGraph;
use levada_integration_tests::bids::bid;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use serde_json::Value;

use crate::nexmark;

/// Four seconds of event time.
const EVENTS: u64 = 400_000;

const SIZE_MS: i64 = 700;

const GAP_MS: i64 = 150;

/// Time runs ahead of the rows, so that windows are over before their last rows come.
const GRAPH: &str = r#"
version: 1
name: updates
sources:
  bids:
    nexmark: { table: bid }
    watermark: { column: dateTime, expression: "dateTime + interval '300 milliseconds'", max_future: off }
transforms:
  counts: { inputs: [bids], key_by: [bidder], window: WINDOW, aggregate: { n: count(*) } }
sinks:
  out: { inputs: [counts], file: { format: ndjson } }
"#;

fn graph(window: &str, out: &Path) -> JobGraph {
    nexmark::graph(&GRAPH.replace("WINDOW", window), 2, EVENTS, Some(80_000), out)
}

/// Bids by bidder and window start.
type Counts = BTreeMap<(u64, i64), u64>;

fn tumbling() -> Counts {
    let mut counts = Counts::new();
    for bid in (0..EVENTS).filter_map(bid) {
        *counts.entry((bid.bidder, bid.time_ms.div_euclid(SIZE_MS) * SIZE_MS)).or_default() += 1;
    }
    counts
}

fn sessions() -> Counts {
    let (mut counts, mut open) = (Counts::new(), BTreeMap::<u64, (i64, i64)>::new());
    for bid in (0..EVENTS).filter_map(bid) {
        let session = open.entry(bid.bidder).or_insert((bid.time_ms, bid.time_ms));
        if bid.time_ms > session.1 {
            session.0 = bid.time_ms;
        }
        session.1 = bid.time_ms + GAP_MS;
        *counts.entry((bid.bidder, session.0)).or_default() += 1;
    }
    counts
}

/// What the published rows come to, and how many of them are updates: counts that replace each other only grow, parts add up, and
/// what was taken back never comes again.
fn standing(out: &Path, adds_up: bool) -> anyhow::Result<(Counts, usize)> {
    let (mut counts, mut gone, mut updates) = (Counts::new(), Vec::new(), 0);
    for line in output_lines(out)? {
        let row: Value = serde_json::from_str(&line)?;
        let start = string_to_timestamp_nanos(row["window_start"].as_str().expect("a time"))? / 1_000_000;
        let (bidder, n) = (row["bidder"].as_u64().expect("a bidder"), row["n"].as_u64().expect("a count"));
        if row["_op"] == "-D" {
            gone.push((bidder, start));
        }
        let stood = counts.entry((bidder, start)).or_insert(0);
        *stood = if adds_up { *stood + n } else { (*stood).max(n) };
        updates += usize::from(row["_op"] == "+U");
    }
    counts.retain(|key, _| !gone.contains(key));
    Ok((counts, updates))
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_that_update_survive_a_kill() -> anyhow::Result<()> {
    let (tumbling, sessions) = (tumbling(), sessions());
    assert!(tumbling.len() > 1_000 && sessions.len() > 1_000, "the reference is empty");
    let lateness = "allowed_lateness: 2s";
    let windows = [
        (
            "fs",
            format!("{{ tumbling: {{ size: {SIZE_MS}ms }}, early: {{ every: 50ms, rows: 30 }}, {lateness} }}"),
            &tumbling,
            false,
        ),
        ("rocksdb", format!("{{ tumbling: {{ size: {SIZE_MS}ms }}, {lateness}, late: {{ every: 100ms }} }}"), &tumbling, false),
        ("memory", format!("{{ tumbling: {{ size: {SIZE_MS}ms }}, {lateness}, accumulate: false }}"), &tumbling, true),
        ("fs", format!("{{ session: {{ gap: {GAP_MS}ms }}, early: {{ every: 50ms }}, {lateness} }}"), &sessions, false),
    ];
    for (at, (backend, window, expected, adds_up)) in windows.into_iter().enumerate() {
        let mut cluster = Processes::start(Setup::default()).await?;
        let out = cluster.path(&format!("out-{at}"));
        nexmark::finish_after_a_kill(&mut cluster, graph(&window, &out), backend, &out).await?;
        let (found, updates) = standing(&out, adds_up)?;
        assert!(found == *expected, "{window} on {backend}: the rows differ");
        assert_eq!(updates > 1_000, !adds_up, "{window} on {backend}: {updates} updates");
    }
    Ok(())
}
