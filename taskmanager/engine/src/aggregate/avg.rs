//! `avg`: a total and a count, divided once when read.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Int64Type;
use levada_common::types::LogicalType;
use levada_state::rows::Rows;

use super::sum::Totals;
use super::{Accumulator, Groups, Overflow, nulls_of};

/// A total and a count per group; null over no value.
#[derive(Debug)]
pub(super) struct Avg {
    totals: Totals,
    counts: Vec<i64>,
}

impl Avg {
    /// The mean of a column of this type.
    pub(super) fn new(argument: &LogicalType) -> Self {
        Self { totals: Totals::new(argument), counts: Vec::new() }
    }

    fn nulls(&self, rows: Rows<'_>) -> Option<NullBuffer> {
        let present = rows.map(|group| self.counts[group] > 0);
        present.contains(&false).then(|| NullBuffer::from(present))
    }
}

impl Accumulator for Avg {
    fn resize(&mut self, groups: usize) {
        self.totals.resize(groups);
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        groups.each_valid(nulls_of(&columns[0]), |_, group| self.counts[group] += 1);
        self.totals.update(groups, &columns[0])
    }

    fn retract(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        groups.each_valid(nulls_of(&columns[0]), |_, group| self.counts[group] -= 1);
        self.totals.retract(groups, &columns[0])
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        let counts = states[1].as_primitive::<Int64Type>().values();
        groups.each_valid(None, |row, group| self.counts[group] += counts[row]);
        self.totals.merge(groups, &states[0])
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        let counts = states[1].as_primitive::<Int64Type>().values();
        groups.iter().zip(counts).for_each(|(group, count)| self.counts[*group as usize] = *count);
        self.totals.assign(groups, &states[0]);
    }

    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let means = rows.map(|group| match self.counts[group] {
            0 => 0.0,
            count => self.totals.mean(group, count),
        });
        vec![Arc::new(Float64Array::new(means.into(), self.nulls(rows)))]
    }

    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let counts: ArrayRef = Arc::new(Int64Array::from(rows.gather(&self.counts)));
        vec![self.totals.states(rows, self.nulls(rows)), counts]
    }

    fn clear(&mut self) {
        self.totals.clear();
        self.counts.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.totals.memory_bytes() + self.counts.capacity() * size_of::<i64>()
    }
}
