//! The columns of auctions.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringBuilder, TimestampMillisecondArray};

use super::bid::times;
use super::event::{Run, any_person, below, cut, draw, extra_len, hi, lo, pool, price};

/// Names, in order.
pub(super) const COLUMNS: &[&str] =
    &["id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra"];

/// Events for which an auction stays open.
const OPEN_EVENTS: u64 = 1666;

/// Events a millisecond.
const EVENTS_PER_MS: u64 = 100;

/// The column `name` of these runs, `rows` in all.
pub(super) fn column(name: &str, runs: &[Run], rows: usize) -> ArrayRef {
    match name {
        "id" => integers(runs, rows, |run, n| (1000 + 3 * run.group + (n - run.first() + run.offset) - 1) as i64),
        "itemName" => strings(runs, rows, |_, n| item_name(n)),
        "description" => strings(runs, rows, |_, n| description(n)),
        "initialBid" => integers(runs, rows, |_, n| price(draw(n, 2))),
        "reserve" => integers(runs, rows, |_, n| price(draw(n, 2)) + price(draw(n, 3))),
        "dateTime" => times(runs, rows),
        "expires" => {
            let values = runs.iter().flat_map(|run| run.events().map(move |n| expires(run, n)));
            Arc::new(TimestampMillisecondArray::from_iter_values(values))
        }
        "seller" => integers(runs, rows, seller),
        "category" => integers(runs, rows, |_, n| 10 + below(hi(draw(n, 1)), 5) as i64),
        _ => strings(runs, rows, |_, n| extra(n)),
    }
}

fn seller(run: &Run, n: u64) -> i64 {
    let word = draw(n, 0);
    if word >> 62 != 0 { (1000 + run.group / 100 * 100) as i64 } else { any_person(run.group).id(lo(word)) }
}

fn expires(run: &Run, n: u64) -> i64 {
    let horizon = (n + OPEN_EVENTS) / EVENTS_PER_MS - n / EVENTS_PER_MS;
    run.time_ms() + 1 + below(lo(draw(n, 1)), (2 * horizon).max(1)) as i64
}

fn item_name(n: u64) -> &'static str {
    let word = draw(n, 4);
    cut(pool(), lo(word), 3 + below(hi(word), 17))
}

fn description(n: u64) -> &'static str {
    let word = draw(n, 5);
    cut(pool(), lo(word), 3 + below(hi(word), 97))
}

fn extra(n: u64) -> &'static str {
    let word = draw(n, 6);
    let rest = 500 - (48 + item_name(n).len() + description(n).len()) as i64;
    cut(pool(), lo(word), extra_len(rest, hi(word)))
}

/// A column of whole numbers.
pub(super) fn integers(runs: &[Run], rows: usize, value: impl Fn(&Run, u64) -> i64) -> ArrayRef {
    let mut values: Vec<i64> = Vec::with_capacity(rows);
    for run in runs {
        values.extend(run.events().map(|n| value(run, n)));
    }
    Arc::new(Int64Array::from(values))
}

fn strings(runs: &[Run], rows: usize, value: impl Fn(&Run, u64) -> &'static str) -> ArrayRef {
    let mut values = StringBuilder::with_capacity(rows, rows * 64);
    for run in runs {
        for n in run.events() {
            values.append_value(value(run, n));
        }
    }
    Arc::new(values.finish())
}
