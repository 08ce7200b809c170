//! The results that were given last, where each is given again with the one that replaces it.
//!
//! Kept beside the accumulators and moved with them, as marks are. Must never know how a result is computed.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use levada_state::rows::Rows;

use super::{Groups, nulls_of};

/// The results of all groups: a column of structs, null where none was given or it is not known which.
pub trait Given: Send {
    /// There are `groups` groups now; never fewer than before. New ones have none.
    fn resize(&mut self, groups: usize);

    /// Puts results in the place of what these groups had; each group once.
    fn put(&mut self, groups: &[u32], results: &ArrayRef);

    /// A group has none any more.
    fn forget(&mut self, group: u32);

    /// The results of these groups.
    fn read(&self, rows: Rows<'_>) -> ArrayRef;

    /// Forgets every group.
    fn clear(&mut self);

    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// Makes what keeps the results of one table or pane.
pub(crate) type MakeGiven = Box<dyn Fn() -> Box<dyn Given> + Send + Sync>;

/// Puts those results that are known in the place of what their groups had.
pub(super) fn put_known(given: &mut dyn Given, groups: Groups<'_>, results: &ArrayRef) {
    if results.null_count() == results.len() {
        return;
    }
    let (mut known, mut rows) = (Vec::new(), Vec::new());
    groups.each_valid(nulls_of(results), |row, group| {
        known.push(group as u32);
        rows.push(row as u32);
    });
    let results = take(results, &UInt32Array::from(rows), None).expect("rows of the results");
    given.put(&known, &results);
}
