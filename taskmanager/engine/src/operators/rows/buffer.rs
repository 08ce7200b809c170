//! Rows that are appended, read by number and dropped all at once.
//!
//! Rows stand in chunks that never change, so a snapshot refers to them without a copy. Small chunks are merged with ones of
//! about their size: a row is copied a few times at most, however small the batches are. Must never know what a column means.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use arrow::compute::concat;
use arrow::error::ArrowError;

/// Rows up to which chunks are merged.
const CHUNK_ROWS_MAX: usize = 8192;

/// Bytes up to which chunks are merged: of texts a column has no more than 2 GiB.
const CHUNK_BYTES_MAX: usize = 64 << 20;

/// The number of no row.
pub(in crate::operators) const NO_ROW: u32 = u32::MAX;

/// Rows with consecutive numbers.
#[derive(Debug)]
pub(in crate::operators) struct Chunk {
    /// Number of the first one.
    pub(in crate::operators) start: usize,
    /// How many.
    pub(in crate::operators) rows: usize,
    pub(in crate::operators) columns: Vec<ArrayRef>,
    bytes: usize,
}

/// Rows by number, from 0.
#[derive(Debug, Default)]
pub(in crate::operators) struct RowBuffer {
    chunks: Vec<Chunk>,
    rows: usize,
    bytes: usize,
}

impl RowBuffer {
    /// Number of rows.
    pub(in crate::operators) fn len(&self) -> usize {
        self.rows
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The chunks, in the order of their rows.
    pub(in crate::operators) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Appends rows, at least one. They are copied: what comes may be a part of a larger buffer.
    pub(in crate::operators) fn push(&mut self, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let rows = columns[0].len();
        assert!(self.rows + rows < NO_ROW as usize, "a pane has fewer than 2^32 - 1 rows on each side");
        let (mut merged, mut first) = (rows, self.chunks.len());
        let mut bytes: usize = columns.iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum();
        while let Some(chunk) = first.checked_sub(1).map(|at| &self.chunks[at])
            && chunk.rows <= 2 * merged
            && chunk.rows + merged <= CHUNK_ROWS_MAX
            && chunk.bytes + bytes <= CHUNK_BYTES_MAX
        {
            (merged, bytes, first) = (merged + chunk.rows, bytes + chunk.bytes, first - 1);
        }
        let old: Vec<Chunk> = self.chunks.drain(first..).collect();
        let columns = columns.iter().enumerate().map(|(at, column)| {
            if old.is_empty() {
                return copy(column);
            }
            let parts: Vec<&dyn Array> = old.iter().map(|chunk| chunk.columns[at].as_ref()).chain([column.as_ref()]).collect();
            concat(&parts)
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let bytes = columns.iter().map(|column| column.get_array_memory_size()).sum();
        self.bytes = self.bytes + bytes - old.iter().map(|chunk| chunk.bytes).sum::<usize>();
        self.rows += rows;
        self.chunks.push(Chunk { start: self.rows - merged, rows: merged, columns, bytes });
        Ok(())
    }

    /// These rows chunk by chunk: the number of the first one, and their columns. A few rows of a chunk are copied, so that whoever
    /// keeps them does not keep all of it.
    pub(in crate::operators) fn parts(
        &self,
        rows: Range<usize>,
    ) -> impl Iterator<Item = Result<(usize, Vec<ArrayRef>), ArrowError>> {
        let first = self.chunks.partition_point(|chunk| chunk.start + chunk.rows <= rows.start);
        let (from, until) = (rows.start, rows.end);
        let chunks = self.chunks[first..].iter().take_while(move |chunk| from.max(chunk.start) < until);
        chunks.map(move |chunk| {
            let (start, end) = (from.max(chunk.start), until.min(chunk.start + chunk.rows));
            let slices = chunk.columns.iter().map(|column| column.slice(start - chunk.start, end - start));
            let is_small = (end - start) * 2 < chunk.rows;
            let columns = slices.map(|slice| if is_small { copy(&slice) } else { Ok(slice) });
            Ok((start, columns.collect::<Result<_, _>>()?))
        })
    }

    /// The columns of a row's chunk, and its place there.
    pub(in crate::operators) fn at(&self, row: usize) -> (&[ArrayRef], usize) {
        let (chunk, place) = self.place(row);
        (&self.chunks[chunk].columns, place)
    }

    /// The chunk of a row and its place there.
    #[inline]
    pub(super) fn place(&self, row: usize) -> (usize, usize) {
        let at = self.chunks.partition_point(|chunk| chunk.start <= row) - 1;
        (at, row - self.chunks[at].start)
    }

    /// The chunk of each of these rows, and the place in it; `NO_ROW` is behind the last chunk.
    pub(super) fn places(&self, rows: &[u32]) -> Vec<(usize, usize)> {
        let (mut at, mut span) = (0, 0..0);
        let place = |row: &u32| {
            if *row == NO_ROW {
                return (self.chunks.len(), 0);
            }
            let row = *row as usize;
            if !span.contains(&row) {
                at = self.place(row).0;
                span = self.chunks[at].start..self.chunks[at].start + self.chunks[at].rows;
            }
            (at, row - span.start)
        };
        rows.iter().map(place).collect()
    }
}

/// A copy of the column that shares nothing with it.
fn copy(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let data = column.to_data();
    let mut copied = MutableArrayData::new(vec![&data], false, data.len());
    copied.try_extend(0, 0, data.len())?;
    Ok(make_array(copied.freeze()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Int64Type};
    use std::sync::Arc;

    use super::super::Part;
    use super::*;

    fn columns(from: usize, rows: usize) -> Vec<ArrayRef> {
        let numbers = (from..from + rows).map(|row| row as i64);
        let texts = (from..from + rows).map(|row| (row % 3 > 0).then(|| format!("row {row}")));
        vec![Arc::new(Int64Array::from_iter_values(numbers)), Arc::new(StringArray::from_iter(texts))]
    }

    #[test]
    fn rows_keep_their_numbers_while_chunks_are_merged() {
        for sizes in [vec![1; 3000], vec![128; 200], vec![8192, 1, 8191, 8192, 5], vec![20_000, 3, 3, 3]] {
            let (mut buffer, mut rows) = (RowBuffer::default(), 0);
            for size in sizes {
                // A part of larger arrays, as an exchange sends them.
                let parts: Vec<ArrayRef> = columns(rows, size + 7).iter().map(|column| column.slice(0, size)).collect();
                buffer.push(&parts).expect("columns of one type");
                rows += size;
            }
            assert_eq!(buffer.len(), rows);
            assert!(buffer.chunks().len() <= rows / CHUNK_ROWS_MAX * 2 + 16, "{} chunks of {rows} rows", buffer.chunks().len());
            let mut wanted: Vec<u32> = (0..rows as u32).rev().step_by(7).collect();
            wanted.push(NO_ROW);
            let part = Part::kept(&buffer, &wanted);
            let numbers = part.column(0, &DataType::Int64, wanted.len()).expect("they are there");
            let texts = part.column(1, &DataType::Utf8, wanted.len()).expect("they are there");
            for (at, row) in wanted.iter().enumerate().take(wanted.len() - 1) {
                assert_eq!(numbers.as_primitive::<Int64Type>().value(at), i64::from(*row));
                let text = texts.is_valid(at).then(|| texts.as_string::<i32>().value(at).to_owned());
                assert_eq!(text, (row % 3 > 0).then(|| format!("row {row}")));
            }
            assert!(numbers.is_null(wanted.len() - 1) && texts.is_null(wanted.len() - 1));
            for range in [0..rows, 0..1, rows / 3..rows / 2, rows - 1..rows, 5..5] {
                let mut next = range.start;
                for part in buffer.parts(range.clone()) {
                    let (first, columns) = part.expect("columns can be copied");
                    let values = columns[0].as_primitive::<Int64Type>().values();
                    assert!(first == next && values.iter().copied().eq(next as i64..(next + values.len()) as i64));
                    next += values.len();
                }
                assert_eq!(next, range.end);
            }
        }
    }
}
