//! Rows of several buffers, by key: what is there of a window when it fires.
//!
//! Rows keep the order in which they stand in the buffers. Must never know what a window is.

use arrow::array::ArrayRef;
use levada_state::key_index::KeyIndex;

use super::{NO_ROW, Part, RowBuffer};

/// From each row a link to the one of its key before it, over all rows of some buffers.
#[derive(Debug, Default)]
pub(in crate::operators) struct Grouped {
    /// Of each key: its last row.
    last: Vec<u32>,
    /// Of each row: the one of its key before it.
    before: Vec<u32>,
}

impl Grouped {
    /// Links further rows, which have these keys.
    pub(in crate::operators) fn push(&mut self, index: &mut KeyIndex, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        assert!(self.before.len() + rows < NO_ROW as usize, "a window has fewer than 2^32 - 1 rows");
        ids.clear();
        index.intern(keys, rows, ids);
        self.last.resize(index.len(), NO_ROW);
        self.before.reserve(rows);
        for id in ids {
            let row = self.before.len() as u32;
            self.before.push(std::mem::replace(&mut self.last[*id as usize], row));
        }
    }

    /// Links, of further rows whose keys are new, the first of each; answers which these are.
    ///
    /// Contract: nothing else enters keys into the index.
    pub(in crate::operators) fn push_first(
        &mut self,
        index: &mut KeyIndex,
        keys: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Vec<u32> {
        ids.clear();
        index.intern(keys, rows, ids);
        let mut new = Vec::new();
        for (row, id) in ids.iter().enumerate() {
            if *id as usize == self.last.len() {
                new.push(row as u32);
                self.last.push(self.before.len() as u32);
                self.before.push(NO_ROW);
            }
        }
        new
    }

    /// Number of keys.
    pub(in crate::operators) fn keys(&self) -> usize {
        self.last.len()
    }

    /// The last row of a key.
    #[inline]
    pub(in crate::operators) fn last(&self, key: u32) -> u32 {
        self.last[key as usize]
    }

    /// The row of the same key before this one, or `NO_ROW`.
    #[inline]
    pub(in crate::operators) fn before(&self, row: u32) -> u32 {
        self.before[row as usize]
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        (self.last.capacity() + self.before.capacity()) * size_of::<u32>()
    }

    /// Appends the rows of a key, in order.
    pub(in crate::operators) fn rows_of(&self, key: u32, rows: &mut Vec<u32>) {
        let start = rows.len();
        let mut at = self.last.get(key as usize).copied().unwrap_or(NO_ROW);
        while at != NO_ROW {
            rows.push(at);
            at = self.before[at as usize];
        }
        rows[start..].reverse();
    }
}

/// These rows, numbered over all buffers; `NO_ROW` gives nulls.
pub(in crate::operators) fn rows_of<'a>(buffers: &[&'a RowBuffer], rows: &[u32]) -> Part<'a> {
    if let [buffer] = buffers {
        return Part::kept(buffer, rows);
    }
    let chunks: Vec<&[ArrayRef]> =
        buffers.iter().flat_map(|buffer| buffer.chunks()).map(|chunk| chunk.columns.as_slice()).collect();
    let mut starts = Vec::with_capacity(chunks.len());
    let mut next = 0;
    for chunk in buffers.iter().flat_map(|buffer| buffer.chunks()) {
        starts.push(next);
        next += chunk.rows;
    }
    let place = |row: &u32| {
        if *row == NO_ROW {
            return (chunks.len(), 0);
        }
        let chunk = starts.partition_point(|start| *start <= *row as usize) - 1;
        (chunk, *row as usize - starts[chunk])
    };
    Part::Kept { places: rows.iter().map(place).collect(), chunks, has_nulls: rows.contains(&NO_ROW) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, Int64Array};
    use arrow::datatypes::{DataType, Int64Type};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn each_key_has_its_rows_in_order() {
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut index, mut grouped, mut ids) = (KeyIndex::new(&[DataType::Int64]), Grouped::default(), Vec::new());
            let (mut buffers, mut model, mut next) = (Vec::new(), BTreeMap::<i64, Vec<i64>>::new(), 0);
            for _ in 0..rng.random_range(1..4) {
                let mut buffer = RowBuffer::default();
                for _ in 0..rng.random_range(1..40) {
                    let keys: Vec<i64> = (0..rng.random_range(1..300)).map(|_| rng.random_range(0..50)).collect();
                    let values = Int64Array::from_iter_values(next..next + keys.len() as i64);
                    keys.iter().zip(next..).for_each(|(key, value)| model.entry(*key).or_default().push(value));
                    next += keys.len() as i64;
                    buffer.push(&[Arc::new(Int64Array::from(keys)) as ArrayRef, Arc::new(values)]).unwrap();
                }
                buffers.push(buffer);
            }
            for chunk in buffers.iter().flat_map(RowBuffer::chunks) {
                grouped.push(&mut index, &chunk.columns[..1], chunk.rows, &mut ids);
            }
            let buffers: Vec<&RowBuffer> = buffers.iter().collect();
            let keys = index.keys(levada_state::rows::Rows::first(index.len()));
            assert_eq!(index.len(), model.len(), "seed {seed}");
            for (id, key) in keys[0].as_primitive::<Int64Type>().values().iter().enumerate() {
                let mut rows = Vec::new();
                grouped.rows_of(id as u32, &mut rows);
                let values = rows_of(&buffers, &rows).column(1, &DataType::Int64, rows.len()).unwrap();
                assert_eq!(values.as_primitive::<Int64Type>().values().to_vec(), model[key], "seed {seed}: key {key}");
                let last = rows_of(&buffers, &[NO_ROW, grouped.last(id as u32)]).column(1, &DataType::Int64, 2).unwrap();
                assert!(last.is_null(0) && last.as_primitive::<Int64Type>().value(1) == *model[key].last().unwrap());
            }
        }
    }
}
