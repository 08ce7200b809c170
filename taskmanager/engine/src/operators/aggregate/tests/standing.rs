//! What stands of a changelog, checked change by change, or of rows in parts, added up.

use std::collections::{BTreeMap, BTreeSet};

/// The rows that stand, by key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) rows: BTreeMap<String, String>,
}

impl Standing {
    /// Takes changes in, texts as the rig gives them; the key is in the first `key_columns` columns after `_op`.
    ///
    /// Panics where an update or delete finds no row, or an insert one.
    pub(super) fn apply(&mut self, changes: Vec<String>, key_columns: usize) {
        self.apply_changes(changes, key_columns, false, &mut BTreeSet::new());
    }

    /// As `apply`, of a changelog that is full or not: each row that goes is one that stands, and is followed by what replaces it. Of
    /// keys in `unknown` the row that stands is not known: it is not given before what replaces it, or any may be taken back.
    pub(super) fn apply_changes(&mut self, changes: Vec<String>, key_columns: usize, full: bool, unknown: &mut BTreeSet<String>) {
        let mut replaced = None;
        for change in changes {
            let (op, row) = change.split_once(',').expect("an operation");
            let (key, values) = cut(row, key_columns);
            assert!(replaced.as_ref().is_none_or(|replaced| op == "2" && *replaced == key), "{change} behind {replaced:?}");
            if op == "1" {
                assert!(full && !unknown.contains(&key), "{change}");
                assert_eq!(self.rows.remove(&key), Some(values), "{change}");
                replaced = Some(key);
                continue;
            }
            if op == "2" && full && replaced.take().is_some() {
                self.rows.insert(key, values);
                continue;
            }
            let is_known = !unknown.remove(&key);
            if full && is_known {
                assert_ne!(op, "2", "{change} without what it replaces");
                assert!(op != "3" || self.rows.get(&key) == Some(&values), "{change}, and {:?} stands", self.rows.get(&key));
            }
            let stood = match op {
                "0" | "2" => self.rows.insert(key.clone(), values),
                "3" => self.rows.remove(&key),
                _ => panic!("{change}"),
            };
            assert_eq!(stood.is_some(), op != "0", "{change}");
        }
        assert_eq!(replaced, None, "what was replaced is followed by what replaces it");
    }

    /// Adds parts up: of the last three columns a count, a sum and a maximum.
    pub(super) fn add(&mut self, parts: Vec<String>, key_columns: usize) {
        for part in parts {
            let (key, values) = cut(&part, key_columns);
            let sum = match self.rows.get(&key) {
                None => values,
                Some(stood) => added(stood, &values),
            };
            self.rows.insert(key, sum);
        }
    }

    /// The rows whose key `filter` takes.
    pub(super) fn only(&self, filter: impl Fn(&str) -> bool) -> Self {
        Self { rows: self.rows.iter().filter(|(key, _)| filter(key)).map(|(key, row)| (key.clone(), row.clone())).collect() }
    }
}

fn cut(row: &str, columns: usize) -> (String, String) {
    let cells: Vec<&str> = row.split(',').collect();
    (cells[..columns].join(","), cells[columns..].join(","))
}

fn added(one: &str, other: &str) -> String {
    let numbers = |row: &str| -> Vec<i64> { row.split(',').map(|cell| cell.parse().expect("a number")).collect() };
    let (one, other) = (numbers(one), numbers(other));
    let (bounds, at) = (one[..one.len() - 3].to_vec(), one.len() - 3);
    assert_eq!(bounds, other[..at], "one window has one time");
    let values = [one[at] + other[at], one[at + 1] + other[at + 1], one[at + 2].max(other[at + 2])];
    bounds.iter().chain(&values).map(i64::to_string).collect::<Vec<_>>().join(",")
}
