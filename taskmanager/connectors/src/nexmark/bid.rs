//! The columns of bids: the hottest loops of the benchmark, one per column over all runs of a batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringBuilder, TimestampMillisecondArray};

use super::event::{Run, any_auction, any_person, below, cut, hi, lo, pool, price};

/// Names, in order.
pub(super) const COLUMNS: &[&str] = &["auction", "bidder", "price", "dateTime", "extra"];

/// A bid's extra has at most this many bytes.
const EXTRA_BYTES_MAX: usize = 54 + 27;

/// The column `name` of these runs, `rows` in all.
pub(super) fn column(name: &str, runs: &[Run], rows: usize) -> ArrayRef {
    match name {
        "auction" => auction(runs, rows),
        "bidder" => bidder(runs, rows),
        "price" => prices(runs, rows),
        "dateTime" => times(runs, rows),
        _ => extra(runs, rows),
    }
}

fn auction(runs: &[Run], rows: usize) -> ArrayRef {
    let mut values: Vec<i64> = Vec::with_capacity(rows);
    for run in runs {
        let last = 3 * run.group + 2;
        let hot = (1000 + last / 100 * 100) as i64;
        let any = any_auction(last);
        // The upper half's first bit: one of two is the hot auction.
        values.extend(run.draws(0).map(|word| select(!((word as i64) >> 63), any.id(lo(word)), hot)));
    }
    Arc::new(Int64Array::from(values))
}

fn bidder(runs: &[Run], rows: usize) -> ArrayRef {
    let mut values: Vec<i64> = Vec::with_capacity(rows);
    for run in runs {
        let hot = (1000 + run.group / 100 * 100 + 1) as i64;
        let any = any_person(run.group);
        // The upper half's first two bits: three of four are the hot bidder.
        values.extend(run.draws(1).map(|word| select(((word >> 62) as i64 - 1) >> 63, any.id(lo(word)), hot)));
    }
    Arc::new(Int64Array::from(values))
}

/// `a` where the mask is all ones, `b` where it is 0. By arithmetic: a branch on random bits is mispredicted every other time.
#[inline]
fn select(mask: i64, a: i64, b: i64) -> i64 {
    b ^ ((a ^ b) & mask)
}

fn prices(runs: &[Run], rows: usize) -> ArrayRef {
    let mut values: Vec<i64> = Vec::with_capacity(rows);
    for run in runs {
        values.extend(run.draws(2).map(price));
    }
    Arc::new(Int64Array::from(values))
}

/// The times of rows of any kind.
pub(super) fn times(runs: &[Run], rows: usize) -> ArrayRef {
    let mut values: Vec<i64> = Vec::with_capacity(rows);
    for run in runs {
        values.extend(std::iter::repeat_n(run.time_ms(), run.rows as usize));
    }
    Arc::new(TimestampMillisecondArray::from(values))
}

fn extra(runs: &[Run], rows: usize) -> ArrayRef {
    let pool = pool();
    let mut values = StringBuilder::with_capacity(rows, rows * EXTRA_BYTES_MAX);
    for run in runs {
        for word in run.draws(3) {
            values.append_value(cut(pool, lo(word), 54 + below(hi(word), 28)));
        }
    }
    Arc::new(values.finish())
}
