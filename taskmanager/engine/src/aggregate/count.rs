//! `count`: rows, or rows in which the argument is not null.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use levada_state::rows::Rows;

use super::{Accumulator, Groups, Overflow, nulls_of};

/// A counter per group; with a column it counts what is not null there.
#[derive(Debug, Default)]
pub(super) struct Count {
    counts: Vec<i64>,
}

impl Accumulator for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        let nulls = columns.first().and_then(nulls_of);
        if let Groups::One { group, rows } = groups {
            self.counts[group as usize] += (rows - nulls.map_or(0, |nulls| nulls.null_count())) as i64;
        } else {
            groups.each_valid(nulls, |_, group| self.counts[group] += 1);
        }
        Ok(())
    }

    fn retract(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        let nulls = columns.first().and_then(nulls_of);
        groups.each_valid(nulls, |_, group| self.counts[group] -= 1);
        Ok(())
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        let counts = states[0].as_primitive::<Int64Type>().values();
        groups.each_valid(None, |row, group| self.counts[group] += counts[row]);
        Ok(())
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        let counts = states[0].as_primitive::<Int64Type>().values();
        groups.iter().zip(counts).for_each(|(group, count)| self.counts[*group as usize] = *count);
    }

    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from(rows.gather(&self.counts)))]
    }

    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        self.read(rows)
    }

    fn clear(&mut self) {
        self.counts.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}
