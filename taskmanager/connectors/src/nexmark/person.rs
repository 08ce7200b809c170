//! The columns of persons.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};

use super::auction::integers;
use super::bid::times;
use super::event::{Run, below, cut, draw, extra_len, hi, lo, pool};

/// Names, in order.
pub(super) const COLUMNS: &[&str] = &["id", "name", "email", "creditCard", "city", "state", "dateTime", "extra"];

const FIRST: [&str; 11] = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];
const LAST: [&str; 9] = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
const CITIES: [&str; 10] =
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"];
const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];

/// Bytes of every e-mail address: 7, `@`, 5, `.com`.
const EMAIL_BYTES: usize = 17;

/// Bytes of every card number: four times four digits and three spaces.
const CARD_BYTES: usize = 19;

/// The column `name` of these runs, `rows` in all.
pub(super) fn column(name: &str, runs: &[Run], rows: usize) -> ArrayRef {
    match name {
        "id" => integers(runs, rows, |run, _| (1000 + run.group) as i64),
        "name" => strings(runs, rows, |n, text| {
            let (first, last) = names(n);
            text.push_str(first);
            text.push(' ');
            text.push_str(last);
        }),
        "email" => strings(runs, rows, |n, text| {
            let word = draw(n, 1);
            text.push_str(cut(pool(), hi(word), 7));
            text.push('@');
            text.push_str(cut(pool(), lo(word), 5));
            text.push_str(".com");
        }),
        "creditCard" => strings(runs, rows, |n, text| {
            let (a, b) = (draw(n, 2), draw(n, 3));
            let [p, q, r, s] = [hi(a), lo(a), hi(b), lo(b)].map(|half| below(half, 10_000));
            write!(text, "{p:04} {q:04} {r:04} {s:04}").expect("a String takes everything");
        }),
        "city" => strings(runs, rows, |n, text| text.push_str(city(n))),
        "state" => strings(runs, rows, |n, text| text.push_str(state(n))),
        "dateTime" => times(runs, rows),
        _ => strings(runs, rows, |n, text| text.push_str(extra(n))),
    }
}

fn names(n: u64) -> (&'static str, &'static str) {
    let word = draw(n, 0);
    (FIRST[below(hi(word), 11) as usize], LAST[below(lo(word), 9) as usize])
}

fn city(n: u64) -> &'static str {
    CITIES[below(hi(draw(n, 4)), 10) as usize]
}

fn state(n: u64) -> &'static str {
    STATES[below(lo(draw(n, 4)), 6) as usize]
}

fn extra(n: u64) -> &'static str {
    let word = draw(n, 5);
    let (first, last) = names(n);
    let before = first.len() + 1 + last.len() + EMAIL_BYTES + CARD_BYTES + city(n).len() + state(n).len();
    cut(pool(), lo(word), extra_len(200 - (8 + before) as i64, hi(word)))
}

fn strings(runs: &[Run], rows: usize, append: impl Fn(u64, &mut String)) -> ArrayRef {
    let mut values = StringBuilder::with_capacity(rows, rows * 32);
    let mut text = String::new();
    for n in runs.iter().flat_map(Run::events) {
        text.clear();
        append(n, &mut text);
        values.append_value(&text);
    }
    Arc::new(values.finish())
}
