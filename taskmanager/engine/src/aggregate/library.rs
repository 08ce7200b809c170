//! What the engine asks of a library that has aggregates: pure functions of columns.
//!
//! Must never know which library; `levada-sql` has one.

use arrow::array::ArrayRef;

/// Columns of which each row belongs to one of some groups.
#[derive(Debug, Clone, Copy)]
pub struct OfGroups<'a> {
    /// Each row's group, below the number of groups.
    pub groups: &'a [usize],
    /// The columns, as long.
    pub columns: &'a [ArrayRef],
}

/// An aggregate of a library, made for one call.
///
/// Shape of states: the columns of `LibraryCall::state`, of exactly their Arrow types. Shape of rows: the call's columns, in the
/// order of `LibraryCall::reads`. Contract: pure; nothing is kept between calls.
pub trait LibraryAggregate: Send + Sync {
    /// The states of so many groups: what `known` has of some of them, once each, with the rows that come.
    ///
    /// Errors: the reason as text, where the rows cannot be aggregated.
    fn update(&self, groups: usize, known: OfGroups<'_>, rows: OfGroups<'_>) -> Result<Vec<ArrayRef>, String>;

    /// The states of so many groups: all that `parts` have of each, in order.
    ///
    /// Errors: the reason as text.
    fn merge(&self, groups: usize, parts: &[OfGroups<'_>]) -> Result<Vec<ArrayRef>, String>;

    /// The results of so many groups: of the states that `known` has of some of them, and of no rows for the others. Shape: one
    /// column of the call's result.
    ///
    /// Errors: the reason as text.
    fn read(&self, groups: usize, known: OfGroups<'_>) -> Result<ArrayRef, String>;
}
