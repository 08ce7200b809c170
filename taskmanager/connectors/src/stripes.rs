//! Splits of a source that counts: a range of numbers cut into blocks, block b in stripe b mod 64.
//!
//! A subtask reads the blocks of all its stripes in ascending order, so what it gives is ordered whatever stripes it has.
//! Positions are per stripe and do not depend on the parallelism.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::ConnectorError;

/// Most stripes of a source.
pub const STRIPES_MAX: u64 = 64;

/// One stripe and how far it is read: a split, and an entry of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stripe {
    /// Which one.
    stripe: u64,
    /// How many there are.
    of: u64,
    /// The first number of the stripe that is not read.
    next: u64,
}

/// The splits of the numbers `0..end` in blocks of `block`: at least one, also for no numbers at all.
pub fn list(end: u64, block: u64) -> Vec<String> {
    let of = end.div_ceil(block).clamp(1, STRIPES_MAX);
    (0..of).map(|stripe| entry(&Stripe { stripe, of, next: stripe * block })).collect()
}

/// The stripes of one subtask.
#[derive(Debug)]
pub struct Stripes {
    block: u64,
    end: u64,
    /// Unfinished stripes, ascending by `next`.
    open: VecDeque<Stripe>,
    finished: Vec<Stripe>,
}

impl Stripes {
    /// Takes splits or entries of a snapshot of the numbers `0..end`.
    pub fn new(entries: &[String], block: u64, end: u64) -> Result<Self, ConnectorError> {
        let mut stripes = Self { block, end, open: VecDeque::new(), finished: Vec::new() };
        for text in entries {
            let stripe: Stripe = serde_json::from_str(text)
                .map_err(|error| ConnectorError::BadEntry { entry: text.clone(), reason: error.to_string() })?;
            if stripe.of == 0 || stripe.of > STRIPES_MAX || stripe.stripe >= stripe.of {
                return Err(ConnectorError::BadEntry { entry: text.clone(), reason: "no such stripe".into() });
            }
            stripes.put(stripe);
        }
        Ok(stripes)
    }

    /// The numbers that come next, up to the end of their block; `None` at the end.
    pub fn peek(&self) -> Option<Range<u64>> {
        let stripe = self.open.front()?;
        let block_end = (stripe.next / self.block + 1) * self.block;
        Some(stripe.next..block_end.min(self.end))
    }

    /// The numbers of `peek` before `to` are read.
    pub fn advance(&mut self, to: u64) {
        let mut stripe = self.open.pop_front().expect("advance follows a peek");
        debug_assert!(to >= stripe.next && to <= (stripe.next / self.block + 1) * self.block);
        let block_start = stripe.next / self.block * self.block;
        if to == block_start + self.block {
            stripe.next = block_start.saturating_add(self.block.saturating_mul(stripe.of));
            self.put(stripe);
        } else {
            stripe.next = to;
            if to >= self.end {
                self.finished.push(stripe);
            } else {
                self.open.push_front(stripe);
            }
        }
    }

    /// An entry per stripe.
    pub fn snapshot(&self) -> Vec<String> {
        let mut stripes: Vec<&Stripe> = self.open.iter().chain(&self.finished).collect();
        stripes.sort_by_key(|stripe| stripe.stripe);
        stripes.into_iter().map(entry).collect()
    }

    /// The part of all numbers that these stripes have: a subtask's share of the source's rate.
    pub fn share(&self) -> f64 {
        let stripes = self.open.iter().chain(&self.finished);
        stripes.map(|stripe| 1.0 / stripe.of as f64).sum()
    }

    fn put(&mut self, stripe: Stripe) {
        if stripe.next >= self.end {
            self.finished.push(stripe);
        } else if self.open.back().is_none_or(|last| last.next < stripe.next) {
            self.open.push_back(stripe);
        } else {
            let place = self.open.partition_point(|other| other.next < stripe.next);
            self.open.insert(place, stripe);
        }
    }
}

fn entry(stripe: &Stripe) -> String {
    serde_json::to_string(stripe).expect("a stripe has only numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads at most `budget` numbers in steps of at most `step`.
    fn read(stripes: &mut Stripes, budget: u64, step: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(range) = stripes.peek() {
            let left = budget - numbers.len() as u64;
            if left == 0 {
                break;
            }
            let to = (range.start + step.min(left)).min(range.end);
            numbers.extend(range.start..to);
            stripes.advance(to);
        }
        numbers
    }

    #[test]
    fn nothing_to_count_is_one_stripe_at_its_end() {
        let entries = list(0, 1000);
        assert_eq!(entries.len(), 1);
        assert_eq!(Stripes::new(&entries, 1000, 0).expect("own entries").peek(), None);
        assert_eq!(list(1_000_000, 1000).len(), 64);
        assert_eq!(list(2001, 1000).len(), 3);
    }

    #[test]
    fn a_foreign_entry_is_refused() {
        let error = Stripes::new(&["{\"path\":\"x\"}".into()], 1, 10).expect_err("not a stripe");
        assert!(error.to_string().contains("path"), "{error}");
        assert!(Stripes::new(&["{\"stripe\":64,\"of\":64,\"next\":0}".into()], 1, 10).is_err());
    }

    proptest! {
        #[test]
        fn every_number_once_and_in_order_over_restores(
            end in 0u64..700, block in 1u64..9, step in 1u64..5, first in 0u64..700, a in 1usize..5, b in 1usize..5,
        ) {
            let mut all = Vec::new();
            let deal = |entries: &[String], over: usize| -> Vec<Stripes> {
                (0..over)
                    .map(|subtask| {
                        let mine: Vec<String> = entries.iter().skip(subtask).step_by(over).cloned().collect();
                        Stripes::new(&mine, block, end).expect("own entries")
                    })
                    .collect()
            };
            let mut entries = Vec::new();
            for mut stripes in deal(&list(end, block), a) {
                let numbers = read(&mut stripes, first / a as u64, step);
                prop_assert!(numbers.is_sorted());
                all.extend(numbers);
                entries.extend(stripes.snapshot());
            }
            let mut share = 0.0;
            for mut stripes in deal(&entries, b) {
                share += stripes.share();
                let numbers = read(&mut stripes, u64::MAX, step);
                prop_assert!(numbers.is_sorted());
                all.extend(numbers);
            }
            prop_assert!((share - 1.0).abs() < 1e-9);
            all.sort_unstable();
            prop_assert_eq!(all, (0..end).collect::<Vec<_>>());
        }
    }
}
