//! What is known of each group where results are given more than once: rows taken in since the last result, and whether there was
//! one.
//!
//! Kept beside the accumulators and moved with them, so that it is in partials, snapshots and stores like any other state. Must
//! never know when results are given.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::datatypes::Int64Type;
use levada_state::rows::Rows;

use super::Groups;

/// The marks of all groups. As an accumulator is used, with columns as in `FiringSpec::state_columns`.
#[derive(Debug, Default)]
pub struct Marks {
    rows: Vec<i64>,
    given: Vec<bool>,
}

impl Marks {
    /// Rows that the group has taken in since it was last given.
    #[inline]
    pub fn rows(&self, group: u32) -> i64 {
        self.rows[group as usize]
    }

    /// Whether a result of the group was given.
    #[inline]
    pub fn is_given(&self, group: u32) -> bool {
        self.given[group as usize]
    }

    /// Whether the group has a result that was not given.
    #[inline]
    pub fn is_due(&self, group: u32) -> bool {
        self.rows[group as usize] > 0 || !self.given[group as usize]
    }

    /// The group's result is given now.
    #[inline]
    pub fn give(&mut self, group: u32) {
        (self.rows[group as usize], self.given[group as usize]) = (0, true);
    }

    /// The group's result was taken back.
    pub fn take_back(&mut self, group: u32) {
        self.given[group as usize] = false;
    }

    pub(super) fn resize(&mut self, groups: usize) {
        self.rows.resize(groups, 0);
        self.given.resize(groups, false);
    }

    pub(super) fn update(&mut self, groups: Groups<'_>) {
        match groups {
            Groups::One { group, rows } => self.rows[group as usize] += rows as i64,
            Groups::Each(groups) => groups.iter().for_each(|group| self.rows[*group as usize] += 1),
        }
    }

    pub(super) fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) {
        let (rows, given) = columns(states);
        groups.each_valid(None, |row, group| {
            self.rows[group] += rows[row];
            self.given[group] |= given.value(row);
        });
    }

    pub(super) fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        let (rows, given) = columns(states);
        for (row, group) in groups.iter().enumerate() {
            (self.rows[*group as usize], self.given[*group as usize]) = (rows[row], given.value(row));
        }
    }

    pub(super) fn states(&self, rows: Rows<'_>) -> [ArrayRef; 2] {
        let given: BooleanArray = rows.gather(&self.given).into();
        [Arc::new(Int64Array::from(rows.gather(&self.rows))), Arc::new(given)]
    }

    /// The numbers of those of these states that have a result which was not given.
    pub(super) fn due_rows(states: &[ArrayRef]) -> impl Iterator<Item = u32> + '_ {
        let (rows, given) = columns(states);
        (0..).zip(rows).filter(move |(row, rows)| **rows > 0 || !given.value(*row as usize)).map(|(row, _)| row)
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.given.clear();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<i64>() + self.given.capacity()
    }
}

fn columns(states: &[ArrayRef]) -> (&[i64], &BooleanArray) {
    (states[0].as_primitive::<Int64Type>().values(), states[1].as_boolean())
}
