//! Joins, top-N and deduplication: Nexmark's queries against a slow reference, and on real processes with a kill in the middle.

use std::path::Path;
use std::sync::Arc;

use levada::cluster::{Embedded, EmbeddedOptions};
use levada_integration_tests::auctions::{bids_with_auctions, highest_bids, last_bids, new_sellers, suggestions, winning_bids};
use levada_integration_tests::bids::{Bid, bid};
use levada_integration_tests::digest::{fnv1a, row_hash};
use levada_integration_tests::nodes::tally::{self, Totals};
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::queries::Query;
use levada_integration_tests::statistics::{Statistics, channel, statistics};
use levada_proto::v1::JobState;
use serde_json::{Value, json};

use crate::nexmark::{finish_after_a_kill, graph};

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

fn bids(events: u64) -> impl Iterator<Item = Bid> {
    (0..events).filter_map(bid)
}

/// What q13's table has for a bid.
fn value(bid: &Bid) -> u64 {
    bid.auction % 10_000 * 3 + 1
}

/// The number of a query's rows and the sum of their hashes.
fn totals(rows: impl IntoIterator<Item = [u64; 4]>) -> (u64, u64) {
    rows.into_iter().fold((0, 0), |(count, sum), row| (count + 1, sum.wrapping_add(row_hash(row))))
}

#[tokio::test(flavor = "multi_thread")]
async fn nexmark_queries_give_the_counts_and_hashes_of_the_reference() -> anyhow::Result<()> {
    let text = |text: &str| fnv1a(text.as_bytes());
    let q20 = bids_with_auctions(EVENTS, |auction, _| auction.category == 10);
    let (of_day, of_auction) = (statistics(EVENTS, |_| ()), statistics(EVENTS, |bid| bid.auction));
    let of_channel = statistics(EVENTS, |bid| channel(bid.auction));
    let least = |all: &Statistics| all.prices.iter().copied().min().expect("a group has a bid");
    let greatest = |all: &Statistics| all.prices.iter().copied().max().expect("a group has a bid");
    let expected = [
        (
            "q3",
            totals(
                suggestions(EVENTS).iter().map(|(one, auction)| [text(&one.name), text(one.city), text(one.state), auction.id]),
            ),
        ),
        ("q8", totals(new_sellers(EVENTS).iter().map(|person| [person.id, text(&person.name), 0, 0]))),
        ("q9", totals(winning_bids(EVENTS).into_iter().map(|(auction, (bidder, price))| [auction, bidder, price, 0]))),
        ("q13", totals(bids(EVENTS).map(|bid| [bid.auction, bid.bidder, bid.price, value(&bid)]))),
        ("q15", totals(of_day.values().map(|all| [all.bids[1], all.bidders()[0], all.bidders()[3], all.auctions()[2]]))),
        ("q16", totals(of_channel.iter().map(|(name, all)| [text(name), all.bids[3], all.bidders()[2], all.auctions()[0]]))),
        ("q17", totals(of_auction.iter().map(|(auction, all)| [*auction, all.bids[2], least(all), greatest(all)]))),
        ("q18", totals(last_bids(EVENTS).iter().map(|bid| [bid.bidder, bid.auction, bid.price, bid.time_ms as u64]))),
        ("q19", totals(highest_bids(EVENTS).iter().map(|(place, bid)| [bid.auction, *place, bid.bidder, bid.price]))),
        ("q20", totals(q20.iter().map(|(auction, bid)| [auction.id, bid.bidder, bid.price, bid.time_ms as u64]))),
    ];
    for (name, expected) in expected {
        let groups_min = if matches!(name, "q15" | "q16") { 1 } else { 100 };
        assert!(expected.0 >= groups_min, "{name}: the reference is nearly empty");
        for parallelism in [1, 2] {
            let sums = Arc::new(Totals::default());
            let options = EmbeddedOptions { slots: parallelism, ..EmbeddedOptions::default() };
            let cluster = Embedded::start(options, {
                let sums = Arc::clone(&sums);
                move |builder| {
                    let (declaration, factory) = tally::sink(Arc::clone(&sums));
                    builder.sink(declaration, factory)
                }
            });
            let cluster = cluster.await?;
            let (backend, events) = ("memory".into(), EVENTS);
            let query = Query { name: name.into(), backend, parallelism, events, checkpoint: None, dir: None, file: None };
            let job = cluster.submit(&query.graph().expect("there is such a query"), "query.yaml").await?;
            let status = cluster.wait(&job).await?;
            cluster.shutdown().await;
            assert_eq!(status.state(), JobState::Finished, "{name}: {}", status.failure);
            assert!(status.nodes.iter().all(|node| node.late_rows == 0), "{name}: no row is late");
            assert_eq!((sums.rows(), sums.hash()), expected, "{name} at parallelism {parallelism}");
        }
    }
    Ok(())
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
