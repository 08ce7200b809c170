//! What every column is made of: counter-based random words, the pool of letters, and the last ids before an event.
//!
//! All arithmetic is on 64-bit words that wrap; division truncates. Event n is the (n mod 50)th of group n / 50, and within a
//! group almost everything but the random words is constant: that is what makes the columns cheap.

use std::sync::LazyLock;

/// The increment of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The time of event 0, in milliseconds since 1970.
const START_MS: i64 = 1_700_000_000_000;

/// Events of a group: one person, three auctions, 46 bids.
pub(super) const GROUP: u64 = 50;

const POOL_BYTES: u64 = 65_536;

/// The letters that every string is cut from.
static POOL: LazyLock<String> =
    LazyLock::new(|| (0..POOL_BYTES).map(|i| char::from(b'a' + below(mix(0x5EED + i) >> 32, 26) as u8)).collect());

/// Rows of one kind out of one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// The group: n / 50 of every row.
    pub group: u64,
    /// The first row's n mod 50.
    pub offset: u64,
    /// Rows, at least 1.
    pub rows: u64,
}

impl Run {
    /// The number of the first row's event.
    pub fn first(&self) -> u64 {
        self.group * GROUP + self.offset
    }

    /// The rows' events.
    pub fn events(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        let first = self.first();
        (0..self.rows as usize).map(move |i| first + i as u64)
    }

    /// The `k`th random word of every row.
    #[inline]
    pub fn draws(&self, k: u64) -> impl ExactSizeIterator<Item = u64> + use<> {
        let start = (8 * self.first() + k + 1).wrapping_mul(GOLDEN);
        (0..self.rows as usize).map(move |i| mix(start.wrapping_add((i as u64).wrapping_mul(GOLDEN.wrapping_mul(8)))))
    }

    /// The time of every row, in milliseconds: 100,000 events a second make 100 a millisecond, which two groups fill.
    pub fn time_ms(&self) -> i64 {
        START_MS + (self.group / 2) as i64
    }
}

/// The `k`th random word of event `n`.
#[inline]
pub(super) fn draw(n: u64, k: u64) -> u64 {
    mix((8u64.wrapping_mul(n).wrapping_add(k + 1)).wrapping_mul(GOLDEN))
}

/// SplitMix64's finaliser.
#[inline]
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The upper half of a word.
#[inline]
pub(super) fn hi(word: u64) -> u64 {
    word >> 32
}

/// The lower half of a word.
#[inline]
pub(super) fn lo(word: u64) -> u64 {
    word & 0xFFFF_FFFF
}

/// Uniform in `0..m` out of `u` < 2³², for m < 2³¹.
#[inline]
pub(super) fn below(u: u64, m: u64) -> u64 {
    (u * m) >> 32
}

/// Log-uniform by decade: 100 to 10⁸ − 1.
#[inline]
pub(super) fn price(word: u64) -> i64 {
    // A decade's least price, and the number of prices in it.
    const DECADES: [(u64, u64); 8] = [
        (100, 900),
        (1_000, 9_000),
        (10_000, 90_000),
        (100_000, 900_000),
        (1_000_000, 9_000_000),
        (10_000_000, 90_000_000),
        (0, 0),
        (0, 0),
    ];
    // `below` gives 0 to 5; the mask lets the compiler drop the check of the bound.
    let (least, count) = DECADES[(below(hi(word), 6) & 7) as usize];
    (least + below(lo(word), count)) as i64
}

/// The pool, to cut several strings from.
pub(super) fn pool() -> &'static str {
    &POOL
}

/// A string of `len` letters, at most 1024, at a place that `u` < 2³² chooses.
#[inline]
pub(super) fn cut(pool: &'static str, u: u64, len: u64) -> &'static str {
    let start = below(u, POOL_BYTES - 1024) as usize;
    &pool[start..start + len as usize]
}

/// How long an event's filling is, so that the event has about `rest` bytes more.
pub(super) fn extra_len(rest: i64, u: u64) -> u64 {
    if rest <= 0 {
        return 0;
    }
    let delta = (rest * 2 + 5) / 10;
    (rest - delta) as u64 + if delta == 0 { 0 } else { below(u, 2 * delta as u64) }
}

/// Ids among which one is drawn: `first + below(u, count)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub first: u64,
    pub count: u64,
}

impl Choice {
    /// The id that `u` < 2³² chooses.
    #[inline]
    pub fn id(self, u: u64) -> i64 {
        (1000 + self.first + below(u, self.count)) as i64
    }
}

/// Any of the last hundred auctions before event `n`'s group ends, or one of ten to come; `last` is the newest.
#[inline]
pub(super) fn any_auction(last: u64) -> Choice {
    let first = last.saturating_sub(100);
    Choice { first, count: last - first + 11 }
}

/// Any of the last thousand persons up to the one of `group`, or one of ten to come.
#[inline]
pub(super) fn any_person(group: u64) -> Choice {
    let people = group + 1;
    let active = people.min(1000);
    Choice { first: people - active, count: active + 10 }
}
