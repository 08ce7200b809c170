//! Statistics of Nexmark's bids by sets and lists: what aggregates over distinct values and over some rows only are held against.

use std::collections::{BTreeMap, BTreeSet};

use crate::bids::{Bid, bid};

/// What is known of a group of bids: in all, and by the rank of the price, below 10,000, below 1,000,000 and above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bids in all, and of each rank.
    pub bids: [u64; 4],
    bidders: [BTreeSet<u64>; 4],
    auctions: [BTreeSet<u64>; 4],
    /// The prices.
    pub prices: Vec<u64>,
}

impl Statistics {
    /// Bidders in all, and of each rank.
    pub fn bidders(&self) -> [u64; 4] {
        self.bidders.each_ref().map(|set| set.len() as u64)
    }

    /// Auctions in all, and of each rank.
    pub fn auctions(&self) -> [u64; 4] {
        self.auctions.each_ref().map(|set| set.len() as u64)
    }

    fn add(&mut self, bid: &Bid) {
        let rank = match bid.price {
            ..10_000 => 1,
            10_000..1_000_000 => 2,
            _ => 3,
        };
        for at in [0, rank] {
            self.bids[at] += 1;
            self.bidders[at].insert(bid.bidder);
            self.auctions[at].insert(bid.auction);
        }
        self.prices.push(bid.price);
    }
}

/// The statistics of the bids among the first `events` events, by what `group` gives.
pub fn statistics<K: Ord>(events: u64, group: impl Fn(&Bid) -> K) -> BTreeMap<K, Statistics> {
    let mut groups: BTreeMap<K, Statistics> = BTreeMap::new();
    for bid in (0..events).filter_map(bid) {
        groups.entry(group(&bid)).or_default().add(&bid);
    }
    groups
}

/// The channel that q16 gives to an auction.
pub fn channel(auction: u64) -> &'static str {
    ["Google", "Facebook", "Baidu", "Apple"][(auction % 4) as usize]
}
