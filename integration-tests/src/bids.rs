//! Nexmark's bids once more, row by row and as plainly as they are defined: what the columnar source is held against.

use crate::digest::{GOLDEN, mix};

/// A bid, without its padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bid {
    /// The auction.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// How much.
    pub price: u64,
    /// When, in milliseconds of event time.
    pub time_ms: i64,
}

pub(crate) fn draw(n: u64, k: u64) -> u64 {
    mix((8 * n + k + 1).wrapping_mul(GOLDEN))
}

pub(crate) fn below(bits: u64, bound: u64) -> u64 {
    (bits * bound) >> 32
}

pub(crate) fn last_auction(n: u64) -> u64 {
    let (epoch, offset) = (n / 50, n % 50);
    match offset {
        0 => (3 * epoch).saturating_sub(1),
        1..4 => 3 * epoch + offset - 1,
        _ => 3 * epoch + 2,
    }
}

/// Event `n`, where it is a bid.
pub fn bid(n: u64) -> Option<Bid> {
    if n % 50 < 4 {
        return None;
    }
    let halves = |k| (draw(n, k) >> 32, draw(n, k) & 0xFFFF_FFFF);
    let ((hi0, lo0), (hi1, lo1), (hi2, lo2)) = (halves(0), halves(1), halves(2));
    let auction = if below(hi0, 2) > 0 {
        last_auction(n) / 100 * 100
    } else {
        let least = last_auction(n).saturating_sub(100);
        least + below(lo0, last_auction(n) - least + 1 + 10)
    };
    let bidder = if below(hi1, 4) > 0 {
        n / 50 / 100 * 100 + 1
    } else {
        let people = n / 50 + 1;
        let active = people.min(1000);
        people - active + below(lo1, active + 10)
    };
    let decade = 10u64.pow(below(hi2, 6) as u32);
    let price = 100 * decade + below(lo2, 900 * decade);
    Some(Bid { auction: 1000 + auction, bidder: 1000 + bidder, price, time_ms: 1_700_000_000_000 + (n / 100) as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bids_are_those_of_the_definition() {
        assert_eq!(bid(3), None);
        let known = [(4, 1003, 1000, 4_150_573, 1_700_000_000_000), (1_234_567, 75_009, 25_601, 14_131_905, 1_700_000_012_345)];
        for (n, auction, bidder, price, time_ms) in known {
            assert_eq!(bid(n), Some(Bid { auction, bidder, price, time_ms }));
        }
    }
}
