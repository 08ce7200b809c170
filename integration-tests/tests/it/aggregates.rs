//! Aggregates over distinct values and over changelogs, on real processes with a kill in the middle.

use std::collections::BTreeMap;
use std::path::Path;

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::statistics::{channel, statistics};
use serde_json::{Value, json};

use crate::nexmark::{finish_after_a_kill, graph};

const EVENTS: u64 = 200_000;

const Q16: &str = include_str!("../../../examples/nexmark/q16.yaml");

/// How many auctions have so many bids: an aggregate over the changes of another.
const HISTOGRAM: &str = "
version: 1
name: histogram
sources:
  bids:
    nexmark: { events: 1, table: bid }
    watermark: none
transforms:
  counts:
    inputs: [bids]
    key_by: [auction]
    aggregate: { bids: count(*), highest: max(price) }
  histogram:
    inputs: [counts]
    key_by: [bids]
    aggregate: { auctions: count(*), sum: sum(highest), least: min(auction), greatest: max(auction), prices: count(distinct highest) }
    changelog: full
sinks:
  out:
    inputs: [histogram]
    file: { path: out, format: ndjson }
";

/// The rows of a full changelog that stand at its end, whatever the order in which its files are read: each as often as it came,
/// less as often as it went.
fn standing(out: &Path, columns: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut counts = BTreeMap::<String, i64>::new();
    for line in output_lines(out)? {
        let row: Value = serde_json::from_str(&line)?;
        let chosen = json!(columns.iter().map(|column| row[*column].clone()).collect::<Vec<_>>()).to_string();
        *counts.entry(chosen).or_default() += if matches!(row["_op"].as_str(), Some("+I" | "+U")) { 1 } else { -1 };
    }
    counts.retain(|_, count| *count != 0);
    assert!(counts.values().all(|count| *count == 1), "a row stands more than once, or went without coming");
    Ok(counts.into_keys().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_values_are_counted_once_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    let of_channel = statistics(EVENTS, |bid| channel(bid.auction));
    let expected: Vec<String> = of_channel
        .iter()
        .map(|(name, all)| {
            json!([name, all.bids[0], all.bids[3], all.bidders()[0], all.bidders()[2], all.auctions()[1]]).to_string()
        })
        .collect();
    let columns = ["channel", "total_bids", "rank3_bids", "total_bidders", "rank2_bidders", "rank1_auctions"];
    for backend in ["fs", "rocksdb"] {
        let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
        let out = cluster.path("out");
        let mut graph = graph(Q16, 2, EVENTS, Some(40_000), &out);
        graph.transforms[1].changelog_full = true;
        finish_after_a_kill(&mut cluster, graph, backend, &out).await?;
        assert_eq!(sorted(standing(&out, &columns)?), sorted(expected.clone()), "{backend}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_an_aggregate_are_aggregated_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    let of_auction = statistics(EVENTS, |bid| bid.auction);
    let mut groups = BTreeMap::<u64, Vec<(u64, u64)>>::new();
    for (auction, all) in &of_auction {
        let highest = all.prices.iter().copied().max().expect("it has a bid");
        groups.entry(all.bids[0]).or_default().push((*auction, highest));
    }
    let expected = groups.iter().map(|(bids, auctions)| {
        let prices: std::collections::BTreeSet<u64> = auctions.iter().map(|(_, price)| *price).collect();
        let sum: u64 = auctions.iter().map(|(_, price)| price).sum();
        let (first, last) = (auctions[0].0, auctions[auctions.len() - 1].0);
        json!([bids, auctions.len(), sum, first, last, prices.len()]).to_string()
    });
    let expected = sorted(expected.collect());
    assert!(expected.len() > 10, "the reference is nearly empty");
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = graph(HISTOGRAM, 2, EVENTS, Some(40_000), &out);
    finish_after_a_kill(&mut cluster, graph, "fs", &out).await?;
    let found = standing(&out, &["bids", "auctions", "sum", "least", "greatest", "prices"])?;
    assert_eq!(sorted(found), expected);
    Ok(())
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}
