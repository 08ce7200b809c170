//! Joins on real processes, with a kill in the middle.

use std::path::Path;

use levada_integration_tests::auctions::bids_with_auctions;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::windows::bids;
use serde_json::{Value, json};

use crate::nexmark::{finish_after_a_kill, graph};
use crate::queries::value;

const EVENTS: u64 = 200_000;

const Q13: &str = include_str!("../../../examples/nexmark/q13.yaml");

const Q20: &str = include_str!("../../../examples/nexmark/q20.yaml");

/// The rows that a job published, each with these columns only.
fn rows(out: &Path, columns: &[&str]) -> anyhow::Result<Vec<String>> {
    let chosen = |line: &String| {
        let row: Value = serde_json::from_str(line).expect("a line is JSON");
        json!(columns.iter().map(|column| row[*column].clone()).collect::<Vec<_>>()).to_string()
    };
    let mut rows: Vec<String> = output_lines(out)?.iter().map(chosen).collect();
    rows.sort_unstable();
    Ok(rows)
}

fn sorted(rows: impl Iterator<Item = Value>) -> Vec<String> {
    let mut rows: Vec<String> = rows.map(|row| row.to_string()).collect();
    rows.sort_unstable();
    rows
}

fn q20(events: u64) -> Vec<String> {
    let pairs = bids_with_auctions(events, |auction, _| auction.category == 10);
    sorted(pairs.into_iter().map(|(auction, bid)| json!([auction.id, bid.bidder, bid.price, auction.seller])))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_gives_every_pair_once_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    for backend in ["memory", "fs"] {
        let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
        let out = cluster.path("out");
        let graph = graph(Q20, 2, EVENTS, Some(40_000), &out);
        finish_after_a_kill(&mut cluster, graph, backend, &out).await?;
        assert!(rows(&out, &["auction", "bidder", "price", "seller"])? == q20(EVENTS), "{backend}: the rows differ");
    }
    Ok(())
}

/// The table is read slowly, so that checkpoints and the kill find bids that wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn bids_wait_for_a_table_and_each_is_looked_up_once_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    let expected = sorted(bids(EVENTS).map(|bid| json!([bid.auction, bid.bidder, bid.price, value(&bid)])));
    for backend in ["memory", "rocksdb"] {
        let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
        let out = cluster.path("out");
        let mut graph = graph(Q13, 2, EVENTS, Some(40_000), &out);
        graph.sources[1].options.insert("rate".into(), 5_000.into());
        finish_after_a_kill(&mut cluster, graph, backend, &out).await?;
        assert!(rows(&out, &["auction", "bidder", "price", "value"])? == expected, "{backend}: the rows differ");
    }
    Ok(())
}
