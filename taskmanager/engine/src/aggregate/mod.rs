//! Aggregates, column by column: vectors indexed by group, filled a batch at a time.
//!
//! Must never know: keys, windows, snapshots; a group is a number. The layout of states is fixed by
//! `levada_common::aggregate_state` and stands in snapshots.

mod avg;
mod count;
mod extreme;
mod given;
mod library;
mod marks;
mod ordered;
mod plan;
mod presence;
mod set;
mod sum;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use levada_state::rows::Rows;

pub(crate) use extreme::bytes_column;
pub use given::Given;
pub use library::{LibraryAggregate, OfGroups};
pub use marks::Marks;
pub use plan::AggregatePlan;
pub(crate) use plan::Make;
pub use set::{AggregateSet, CallOverflow};

/// Which group each row of a batch belongs to.
#[derive(Debug, Clone, Copy)]
pub enum Groups<'a> {
    /// Row i belongs to the i-th of these.
    Each(&'a [u32]),
    /// All of `rows` rows belong to one group.
    One {
        /// The group.
        group: u32,
        /// Number of rows.
        rows: usize,
    },
}

impl Groups<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Each(groups) => groups.len(),
            Self::One { rows, .. } => *rows,
        }
    }

    /// Calls `visit` with row and group of each row that is not null.
    #[inline(always)]
    fn each_valid(&self, nulls: Option<&NullBuffer>, mut visit: impl FnMut(usize, usize)) {
        match (self, nulls) {
            (Self::Each(groups), None) => groups.iter().enumerate().for_each(|(row, group)| visit(row, *group as usize)),
            (Self::Each(groups), Some(nulls)) => nulls.valid_indices().for_each(|row| visit(row, groups[row] as usize)),
            (Self::One { group, rows }, None) => (0..*rows).for_each(|row| visit(row, *group as usize)),
            (Self::One { group, .. }, Some(nulls)) => nulls.valid_indices().for_each(|row| visit(row, *group as usize)),
        }
    }
}

/// The nulls of a column, if it has any.
fn nulls_of(column: &ArrayRef) -> Option<&NullBuffer> {
    column.nulls().filter(|nulls| nulls.null_count() > 0)
}

/// A sum left its type in this group, or a library cannot take the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// The group.
    pub group: usize,
    /// What a library says.
    pub reason: Option<Arc<str>>,
}

impl Overflow {
    /// A sum left its type.
    fn of(group: usize) -> Self {
        Self { group, reason: None }
    }
}

/// One aggregate, or several that share their work, over all groups.
///
/// Contract: groups are dense. After `resize` to more groups, the next `update`, `merge` or `assign` has at least one row of each
/// group that is new, new groups first appearing in ascending order; a group that never got a row reads as over no rows.
pub trait Accumulator: Send {
    /// There are `groups` groups now; never fewer than before.
    fn resize(&mut self, groups: usize);

    /// Takes rows in. Shape: the columns that this aggregate was planned with, one value per row of `groups`.
    ///
    /// Errors: a sum left its type; the aggregate is of no use after that.
    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow>;

    /// Takes back rows that were taken in. Shape: as for `update`.
    ///
    /// Contract: only where `takes_back` says so. Errors: as for `update`.
    fn retract(&mut self, _groups: Groups<'_>, _columns: &[ArrayRef]) -> Result<(), Overflow> {
        unreachable!("an aggregation that takes rows back is planned of aggregates that can")
    }

    /// Whether rows can be taken back.
    fn takes_back(&self) -> bool {
        false
    }

    /// Takes states in, as `states` gives them; rows of a group in the order in which their parts came.
    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow>;

    /// Gives these groups these states, whatever they had. Shape: as for `merge`, each group once, in the order of `states`.
    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]);

    /// The results of these groups: a column per call that is served.
    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef>;

    /// The states of these groups: the columns of its `AggregateUnit`.
    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef>;

    /// Forgets every group and keeps the memory.
    fn clear(&mut self);

    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

#[cfg(test)]
mod tests;
