//! Nexmark's auctions and persons, row by row and as plainly as they are defined, and the joins of them by nested maps: what the
//! columnar source and the join operators are held against.

use std::collections::{BTreeMap, BTreeSet};

use crate::bids::{Bid, below, bid, draw, last_auction};

/// An auction, as far as the queries ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auction {
    /// Its id.
    pub id: u64,
    /// Who sells.
    pub seller: u64,
    /// Its category.
    pub category: u64,
    /// When it opened, in milliseconds of event time.
    pub time_ms: i64,
    /// When it closes.
    pub expires_ms: i64,
}

/// A person, as far as the queries ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The id.
    pub id: u64,
    /// The name.
    pub name: String,
    /// Where the person lives.
    pub city: &'static str,
    /// In which state.
    pub state: &'static str,
    /// When, in milliseconds of event time.
    pub time_ms: i64,
}

const FIRST_NAMES: [&str; 11] = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];

const LAST_NAMES: [&str; 9] = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];

const CITIES: [&str; 10] =
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"];

const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];

fn time_ms(n: u64) -> i64 {
    1_700_000_000_000 + (n / 100) as i64
}

fn halves(n: u64, k: u64) -> (u64, u64) {
    let word = draw(n, k);
    (word >> 32, word & 0xFFFF_FFFF)
}

/// Event `n`, where it is an auction.
pub fn auction(n: u64) -> Option<Auction> {
    if !(1..4).contains(&(n % 50)) {
        return None;
    }
    let ((hi0, lo0), (hi1, lo1)) = (halves(n, 0), halves(n, 1));
    let person = n / 50;
    let seller = if below(hi0, 4) > 0 {
        person / 100 * 100
    } else {
        let active = (person + 1).min(1000);
        person + 1 - active + below(lo0, active + 10)
    };
    let horizon = time_ms(n + 1666) - time_ms(n);
    Some(Auction {
        id: 1000 + last_auction(n),
        seller: 1000 + seller,
        category: 10 + below(hi1, 5),
        time_ms: time_ms(n),
        expires_ms: time_ms(n) + 1 + below(lo1, (2 * horizon as u64).max(1)) as i64,
    })
}

/// Event `n`, where it is a person.
pub fn person(n: u64) -> Option<Person> {
    if !n.is_multiple_of(50) {
        return None;
    }
    let (hi, lo) = halves(n, 0);
    let name = format!("{} {}", FIRST_NAMES[below(hi, 11) as usize], LAST_NAMES[below(lo, 9) as usize]);
    let (hi, lo) = halves(n, 4);
    let (city, state) = (CITIES[below(hi, 10) as usize], STATES[below(lo, 6) as usize]);
    Some(Person { id: 1000 + n / 50, name, city, state, time_ms: time_ms(n) })
}

/// Query q8 over the first `events` events: persons who sold in the ten seconds in which they appeared.
pub fn new_sellers(events: u64) -> Vec<Person> {
    let window = |time_ms: i64| time_ms.div_euclid(10_000);
    let sold: BTreeSet<(i64, u64)> =
        (0..events).filter_map(auction).map(|auction| (window(auction.time_ms), auction.seller)).collect();
    (0..events).filter_map(person).filter(|person| sold.contains(&(window(person.time_ms), person.id))).collect()
}

/// Each bid of the first `events` events with its auction, where that is among them and `holds`.
pub fn bids_with_auctions(events: u64, holds: impl Fn(&Auction, &Bid) -> bool) -> Vec<(Auction, Bid)> {
    let auctions: BTreeMap<u64, Auction> = (0..events).filter_map(auction).map(|auction| (auction.id, auction)).collect();
    let with_auction = |bid: Bid| auctions.get(&bid.auction).map(|auction| (*auction, bid));
    (0..events).filter_map(bid).filter_map(with_auction).filter(|(auction, bid)| holds(auction, bid)).collect()
}

/// Query q9 over the first `events` events: by auction, the bidder and the price of the highest bid while it was open.
pub fn winning_bids(events: u64) -> BTreeMap<u64, (u64, u64)> {
    let in_time = |auction: &Auction, bid: &Bid| (auction.time_ms..=auction.expires_ms).contains(&bid.time_ms);
    let mut best: BTreeMap<u64, Bid> = BTreeMap::new();
    for (_, bid) in bids_with_auctions(events, in_time) {
        let order = |bid: &Bid| (std::cmp::Reverse(bid.price), bid.time_ms, bid.bidder);
        let best = best.entry(bid.auction).or_insert(bid);
        if order(&bid) < order(best) {
            *best = bid;
        }
    }
    best.into_iter().map(|(auction, bid)| (auction, (bid.bidder, bid.price))).collect()
}

/// Query q4 over the first `events` events: by category, the average of its auctions' winning bids, without its fraction.
pub fn averages_of_categories(events: u64) -> BTreeMap<u64, u64> {
    averages(sold(events).into_iter().map(|(auction, price)| (auction.category, price)))
}

/// Query q6 over the first `events` events: by seller, the average price of the last ten auctions, without its fraction.
pub fn averages_of_sellers(events: u64) -> BTreeMap<u64, u64> {
    let mut of_sellers: BTreeMap<u64, Vec<(Auction, u64)>> = BTreeMap::new();
    sold(events).into_iter().for_each(|(auction, price)| of_sellers.entry(auction.seller).or_default().push((auction, price)));
    let last = of_sellers.into_values().flat_map(|mut sold| {
        sold.sort_by_key(|(auction, _)| std::cmp::Reverse((auction.expires_ms, auction.id)));
        sold.into_iter().take(10)
    });
    averages(last.map(|(auction, price)| (auction.seller, price)))
}

/// The auctions that got a bid while they were open, with the highest.
fn sold(events: u64) -> Vec<(Auction, u64)> {
    let prices = winning_bids(events);
    let auctions = (0..events).filter_map(auction);
    auctions.filter_map(|auction| prices.get(&auction.id).map(|(_, price)| (auction, *price))).collect()
}

fn averages(prices: impl Iterator<Item = (u64, u64)>) -> BTreeMap<u64, u64> {
    let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (key, price) in prices {
        let (sum, count) = sums.entry(key).or_default();
        (*sum, *count) = (*sum + price, *count + 1);
    }
    sums.into_iter().map(|(key, (sum, count))| (key, sum / count)).collect()
}

/// Query q3 over the first `events` events: auctions of category 10 with the sellers who live in reach.
pub fn suggestions(events: u64) -> Vec<(Person, Auction)> {
    let in_reach = |person: &Person| ["OR", "ID", "CA"].contains(&person.state);
    let persons = (0..events).filter_map(person).filter(in_reach);
    let persons: BTreeMap<u64, Person> = persons.map(|person| (person.id, person)).collect();
    let auctions = (0..events).filter_map(auction).filter(|auction| auction.category == 10);
    auctions.filter_map(|auction| Some((persons.get(&auction.seller)?.clone(), auction))).collect()
}

/// Query q18 over the first `events` events: the last bid of each bidder on each auction, the highest of those in one millisecond.
pub fn last_bids(events: u64) -> Vec<Bid> {
    let mut last: BTreeMap<(u64, u64), Bid> = BTreeMap::new();
    for bid in (0..events).filter_map(bid) {
        let kept = last.entry((bid.bidder, bid.auction)).or_insert(bid);
        if (bid.time_ms, bid.price) > (kept.time_ms, kept.price) {
            *kept = bid;
        }
    }
    last.into_values().collect()
}

/// Query q19 over the first `events` events: the ten highest bids of each auction, with their places.
pub fn highest_bids(events: u64) -> Vec<(u64, Bid)> {
    let mut all: BTreeMap<u64, Vec<Bid>> = BTreeMap::new();
    (0..events).filter_map(bid).for_each(|bid| all.entry(bid.auction).or_default().push(bid));
    let best = all.into_values().flat_map(|mut bids| {
        bids.sort_by_key(|bid| (std::cmp::Reverse(bid.price), bid.time_ms, bid.bidder));
        bids.into_iter().take(10).enumerate().map(|(at, bid)| (at as u64 + 1, bid))
    });
    best.collect()
}
