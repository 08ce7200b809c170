//! A bit for each row or key: whether it has met one.

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;

/// The bits; those that were never set are not there.
#[derive(Debug, Clone, Default)]
pub(in crate::operators) struct Marks {
    words: Vec<u64>,
}

impl Marks {
    /// Makes room for `len` bits.
    pub(in crate::operators) fn resize(&mut self, len: usize) {
        self.words.resize(len.div_ceil(64).max(self.words.len()), 0);
    }

    /// Sets a bit for which there is room; answers whether it was not set.
    #[inline]
    pub(in crate::operators) fn set(&mut self, at: u32) -> bool {
        let (word, bit) = (&mut self.words[at as usize / 64], 1 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether a bit is set; one without room is not.
    #[inline]
    pub(in crate::operators) fn has(&self, at: u32) -> bool {
        self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Takes a bit back.
    pub(in crate::operators) fn clear(&mut self, at: u32) {
        if let Some(word) = self.words.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// The bits from `start` on, as a column.
    pub(in crate::operators) fn column(&self, start: usize, len: usize) -> BooleanArray {
        BooleanArray::new(BooleanBuffer::collect_bool(len, |at| self.has((start + at) as u32)), None)
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
