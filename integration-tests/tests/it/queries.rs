//! The benchmark's queries against a slow reference: the number of their rows, and the sum of these rows' hashes.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada::cluster::{Embedded, EmbeddedOptions};
use levada_integration_tests::auctions::{
    averages_of_categories, averages_of_sellers, bids_with_auctions, highest_bids, last_bids, new_sellers, suggestions,
    winning_bids,
};
use levada_integration_tests::bids::Bid;
use levada_integration_tests::digest::{fnv1a, row_hash};
use levada_integration_tests::nodes::tally::{self, Totals};
use levada_integration_tests::queries::{NAMES, Query};
use levada_integration_tests::statistics::{Statistics, channel, statistics};
use levada_integration_tests::windows::{bids, bids_per_bidder, highest, hottest, sessions, sliding};
use levada_proto::v1::JobState;

const EVENTS: u64 = 200_000;

/// Eleven and a half seconds of event time: the windows of ten seconds end in the middle of it.
const WINDOWED_EVENTS: u64 = 1_150_000;

/// The number of a query's rows and the sum of their hashes.
fn totals(rows: impl IntoIterator<Item = [u64; 4]>) -> (u64, u64) {
    rows.into_iter().fold((0, 0), |(count, sum), row| (count + 1, sum.wrapping_add(row_hash(row))))
}

/// What comes out of a query over so many events.
async fn run(name: &str, events: u64, parallelism: u32) -> anyhow::Result<(u64, u64)> {
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
    let query =
        Query { name: name.into(), backend: "memory".into(), parallelism, events, checkpoint: None, dir: None, file: None };
    let job = cluster.submit(&query.graph().expect("there is such a query"), "query.yaml").await?;
    let status = cluster.wait(&job).await?;
    cluster.shutdown().await;
    assert_eq!(status.state(), JobState::Finished, "{name}: {}", status.failure);
    assert!(status.nodes.iter().all(|node| node.late_rows == 0), "{name}: no row is late");
    Ok((sums.rows(), sums.hash()))
}

fn whole(bid: Bid) -> [u64; 4] {
    [bid.auction, bid.bidder, bid.price, bid.time_ms as u64]
}

/// What q13's table has for a bid.
pub fn value(bid: &Bid) -> u64 {
    bid.auction % 10_000 * 3 + 1
}

/// Of each query without windows of more than a second, or with windows of the clock: what the reference says.
fn expected() -> Vec<(&'static str, (u64, u64))> {
    let text = |text: &str| fnv1a(text.as_bytes());
    let q20 = bids_with_auctions(EVENTS, |auction, _| auction.category == 10);
    let (of_day, of_auction) = (statistics(EVENTS, |_| ()), statistics(EVENTS, |bid| bid.auction));
    let of_channel = statistics(EVENTS, |bid| channel(bid.auction));
    let least = |all: &Statistics| all.prices.iter().copied().min().expect("a group has a bid");
    let greatest = |all: &Statistics| all.prices.iter().copied().max().expect("a group has a bid");
    let bidders: BTreeSet<u64> = bids(EVENTS).map(|bid| bid.bidder).collect();
    vec![
        ("q0", totals(bids(EVENTS).map(whole))),
        ("q1", totals(bids(EVENTS).map(|bid| whole(Bid { price: bid.price * 908 / 1000, ..bid })))),
        ("q2", totals(bids(EVENTS).filter(|bid| bid.auction % 123 == 0).map(|bid| [bid.auction, bid.price, 0, 0]))),
        (
            "q3",
            totals(
                suggestions(EVENTS).iter().map(|(one, auction)| [text(&one.name), text(one.city), text(one.state), auction.id]),
            ),
        ),
        ("q4", totals(averages_of_categories(EVENTS).into_iter().map(|(category, average)| [category, average, 0, 0]))),
        ("q6", totals(averages_of_sellers(EVENTS).into_iter().map(|(seller, average)| [seller, average, 0, 0]))),
        ("q8", totals(new_sellers(EVENTS).iter().map(|person| [person.id, text(&person.name), 0, 0]))),
        ("q9", totals(winning_bids(EVENTS).into_iter().map(|(auction, (bidder, price))| [auction, bidder, price, 0]))),
        ("q12", totals(bidders.into_iter().map(|bidder| [bidder, 0, 0, 0]))),
        ("q13", totals(bids(EVENTS).map(|bid| [bid.auction, bid.bidder, bid.price, value(&bid)]))),
        ("q15", totals(of_day.values().map(|all| [all.bids[1], all.bidders()[0], all.bidders()[3], all.auctions()[2]]))),
        ("q16", totals(of_channel.iter().map(|(name, all)| [text(name), all.bids[3], all.bidders()[2], all.auctions()[0]]))),
        ("q17", totals(of_auction.iter().map(|(auction, all)| [*auction, all.bids[2], least(all), greatest(all)]))),
        ("q18", totals(last_bids(EVENTS).into_iter().map(|bid| [bid.bidder, bid.auction, bid.price, bid.time_ms as u64]))),
        ("q19", totals(highest_bids(EVENTS).iter().map(|(place, bid)| [bid.auction, *place, bid.bidder, bid.price]))),
        ("q20", totals(q20.iter().map(|(_, bid)| whole(*bid)))),
    ]
}

/// Of each query with windows of ten seconds.
fn expected_of_windows() -> Vec<(&'static str, (u64, u64))> {
    let events = WINDOWED_EVENTS;
    let hottest = hottest(events, 10_000, 2_000);
    let sessions = sessions(events, 10_000);
    let sliding = |slide_ms, number: fn(&Bid) -> u64| {
        let counts = sliding(events, 10_000, slide_ms, number).into_iter();
        totals(counts.flat_map(|(end, counts)| counts.into_iter().map(move |(number, bids)| [number, bids, end as u64, 0])))
    };
    vec![
        ("q5", totals(hottest.into_iter().map(|(end, auction, bids)| [auction, bids, end as u64, 0]))),
        ("q7", totals(highest(events).into_iter().map(whole))),
        ("q7k", totals(highest(events).into_iter().map(whole))),
        ("q11", totals(sessions.into_iter().map(|(bidder, start, end, bids)| [bidder, bids, start as u64, end as u64]))),
        ("q12e", totals(bids_per_bidder(events).into_iter().map(|((end, bidder), bids)| [bidder, bids, end as u64, 0]))),
        ("few2s", sliding(2_000, |bid| bid.auction % 100)),
        ("few100ms", sliding(100, |bid| bid.auction % 100)),
        ("many2s", sliding(2_000, |bid| bid.auction)),
        ("many100ms", sliding(100, |bid| bid.auction)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_give_the_counts_and_hashes_of_the_reference() -> anyhow::Result<()> {
    for (name, expected) in expected() {
        let groups_min = if matches!(name, "q4" | "q15" | "q16") { 1 } else { 100 };
        assert!(expected.0 >= groups_min, "{name}: the reference is nearly empty");
        for parallelism in [1, 2] {
            assert_eq!(run(name, EVENTS, parallelism).await?, expected, "{name} at parallelism {parallelism}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_with_windows_give_the_counts_and_hashes_of_the_reference() -> anyhow::Result<()> {
    for (name, expected) in expected_of_windows() {
        assert!(expected.0 >= 2, "{name}: the reference has one window");
        assert_eq!(run(name, WINDOWED_EVENTS, 2).await?, expected, "{name}");
    }
    Ok(())
}

#[test]
fn every_query_but_that_of_a_text_has_a_reference() {
    let mut names: Vec<&str> = expected().into_iter().chain(expected_of_windows()).map(|(name, _)| name).collect();
    names.push("words");
    names.sort_unstable();
    let mut all = NAMES.to_vec();
    all.sort_unstable();
    assert_eq!(names, all);
}
