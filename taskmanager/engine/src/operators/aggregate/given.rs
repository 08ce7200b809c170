//! What was given last of each group, where it goes out once more with the result that replaces it: a row for each group that was
//! given.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use levada_state::rows::Rows;

use super::group_rows::GroupRows;
use crate::aggregate::Given;

/// The results, by group.
pub(super) struct GivenRows(GroupRows);

impl GivenRows {
    /// Without groups; of results of this type, a struct.
    pub(super) fn new(result: DataType) -> Self {
        Self(GroupRows::new(vec![result]))
    }
}

impl Given for GivenRows {
    fn resize(&mut self, groups: usize) {
        self.0.resize(groups);
    }

    fn put(&mut self, groups: &[u32], results: &ArrayRef) {
        if results.null_count() == 0 {
            return self.0.put(groups, std::slice::from_ref(results));
        }
        let (known, others): (Vec<u32>, Vec<u32>) = (0..results.len() as u32).partition(|row| results.is_valid(*row as usize));
        let of = |rows: &[u32]| rows.iter().map(|row| groups[*row as usize]).collect::<Vec<u32>>();
        self.0.forget(of(&others).into_iter());
        if !known.is_empty() {
            let groups = of(&known);
            let known = take(results, &UInt32Array::from(known), None).expect("rows of the results");
            self.0.put(&groups, &[known]);
        }
    }

    fn forget(&mut self, group: u32) {
        self.0.forget(std::iter::once(group));
    }

    fn read(&self, rows: Rows<'_>) -> ArrayRef {
        let rows: Vec<u32> = rows.map(|group| self.0.row(group as u32));
        self.0.columns(&rows).swap_remove(0)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}
