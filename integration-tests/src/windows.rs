//! Nexmark's windows over bids, row by row and as plainly as they are defined: what the window operators are held against.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::bids::{Bid, bid};

/// The bids of the first `events` events.
pub fn bids(events: u64) -> impl Iterator<Item = Bid> {
    (0..events).filter_map(bid)
}

/// By the end of each window of `size_ms` that slides by `slide_ms`, the bids of each of their numbers, over the first `events` events.
pub fn sliding(events: u64, size_ms: i64, slide_ms: i64, number: impl Fn(&Bid) -> u64) -> BTreeMap<i64, BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::<i64, BTreeMap<u64, u64>>::new();
    for bid in bids(events) {
        let first = bid.time_ms.div_euclid(slide_ms) * slide_ms;
        for start in (0..).map(|n| first - n * slide_ms).take_while(|start| start + size_ms > bid.time_ms) {
            *counts.entry(start + size_ms).or_default().entry(number(&bid)).or_default() += 1;
        }
    }
    counts
}

/// Query q5 over the first `events` events: by the end of each sliding window, an auction with most bids, and how many.
pub fn hottest(events: u64, size_ms: i64, slide_ms: i64) -> Vec<(i64, u64, u64)> {
    let counts = sliding(events, size_ms, slide_ms, |bid| bid.auction);
    let most = |counts: &BTreeMap<u64, u64>| counts.values().copied().max().expect("a window has a bid");
    let rows = counts.iter().flat_map(|(end, counts)| {
        let most = most(counts);
        counts.iter().filter(move |(_, bids)| **bids == most).map(move |(auction, bids)| (*end, *auction, *bids))
    });
    rows.collect()
}

/// Query q7 over the first `events` events: the highest bid of each window of ten seconds; of equal ones the earliest.
pub fn highest(events: u64) -> Vec<Bid> {
    let mut highest = BTreeMap::<i64, Bid>::new();
    let order = |bid: &Bid| (Reverse(bid.price), bid.time_ms, bid.auction, bid.bidder);
    for bid in bids(events) {
        let best = highest.entry(bid.time_ms.div_euclid(10_000)).or_insert(bid);
        if order(&bid) < order(best) {
            *best = bid;
        }
    }
    highest.into_values().collect()
}

/// Query q11 over the first `events` events: by bidder and session start, end and bids.
pub fn sessions(events: u64, gap_ms: i64) -> Vec<(u64, i64, i64, u64)> {
    let mut open = BTreeMap::<u64, (i64, i64, u64)>::new();
    let mut rows = Vec::new();
    let row = |bidder: u64, (start, end, bids): (i64, i64, u64)| (bidder, start, end, bids);
    for bid in bids(events) {
        let session = open.entry(bid.bidder).or_insert((bid.time_ms, bid.time_ms, 0));
        if bid.time_ms > session.1 && session.2 > 0 {
            rows.push(row(bid.bidder, *session));
            *session = (bid.time_ms, bid.time_ms, 0);
        }
        (session.1, session.2) = (bid.time_ms + gap_ms, session.2 + 1);
    }
    rows.extend(open.into_iter().map(|(bidder, session)| row(bidder, session)));
    rows
}

/// Query q12 by event time over the first `events` events: by the end of each window of ten seconds and bidder, the bids.
pub fn bids_per_bidder(events: u64) -> BTreeMap<(i64, u64), u64> {
    let mut counts = BTreeMap::new();
    bids(events).for_each(|bid| *counts.entry(((bid.time_ms.div_euclid(10_000) + 1) * 10_000, bid.bidder)).or_default() += 1);
    counts
}
