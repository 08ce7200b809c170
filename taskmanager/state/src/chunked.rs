//! A vector in chunks: it grows by a chunk at a time and never moves what it holds.
//!
//! A `Vec` of ten million rows stands still for a tenth of a second when it doubles; this one allocates 16,384 rows. Only the
//! first chunk grows by doubling, so small tables stay small. Must never know what a row is.

use std::ops::{Index, IndexMut};

/// Rows of a chunk, as a power of two.
const CHUNK_BITS: u32 = 14;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Rows by number.
#[derive(Debug)]
pub(crate) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunked<T> {
    /// Number of rows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The row, if it is there.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Option<&T> {
        self.chunks.get(row >> CHUNK_BITS)?.get(row & (CHUNK - 1))
    }

    /// The row, if it is there.
    #[inline]
    pub(crate) fn get_mut(&mut self, row: usize) -> Option<&mut T> {
        self.chunks.get_mut(row >> CHUNK_BITS)?.get_mut(row & (CHUNK - 1))
    }

    /// Appends a row.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.len & (CHUNK - 1) == 0 {
            self.add_chunk();
        }
        self.chunks[self.len >> CHUNK_BITS].push(value);
        self.len += 1;
    }

    #[cold]
    fn add_chunk(&mut self) {
        let at = self.len >> CHUNK_BITS;
        if at == self.chunks.len() {
            self.chunks.push(if at == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
    }

    /// Appends rows until there are `len`; fewer are never left.
    pub(crate) fn grow_to(&mut self, len: usize, mut value: impl FnMut() -> T) {
        while self.len < len {
            self.push(value());
        }
    }

    /// Forgets the rows and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.chunks.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }

    /// Bytes held, without what is behind pointers in rows.
    pub(crate) fn memory_bytes(&self) -> usize {
        let first = self.chunks.first().map_or(0, Vec::capacity);
        (first + self.chunks.len().saturating_sub(1) * CHUNK) * size_of::<T>()
    }
}

impl<T> Index<usize> for Chunked<T> {
    type Output = T;

    #[inline]
    fn index(&self, row: usize) -> &T {
        &self.chunks[row >> CHUNK_BITS][row & (CHUNK - 1)]
    }
}

impl<T> IndexMut<usize> for Chunked<T> {
    #[inline]
    fn index_mut(&mut self, row: usize) -> &mut T {
        &mut self.chunks[row >> CHUNK_BITS][row & (CHUNK - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_where_they_are_across_chunks_and_after_clearing() {
        let mut rows = Chunked::default();
        for round in 0..2 {
            rows.grow_to(2 * CHUNK + 3, {
                let mut next = 0usize;
                move || {
                    next += 1;
                    next - 1 + round
                }
            });
            assert_eq!(rows.len(), 2 * CHUNK + 3);
            for row in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 2] {
                assert_eq!((rows[row], rows.get(row).copied()), (row + round, Some(row + round)));
            }
            assert_eq!(rows.get(2 * CHUNK + 3), None);
            assert!((0..rows.len()).all(|row| rows[row] == row + round));
            rows[CHUNK] = 7;
            assert_eq!(rows.get_mut(CHUNK).copied(), Some(7));
            rows.clear();
            assert_eq!((rows.len(), rows.get(0)), (0, None));
        }
        assert!(rows.memory_bytes() >= 3 * CHUNK * size_of::<usize>());
    }
}
