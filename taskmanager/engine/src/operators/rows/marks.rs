//! A bit for each row or key: whether it has met one.

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, Buffer};

/// The bits from `start` on; those that `words` lacks are not set. A barrier does this for whole states, so it goes by words.
pub(super) fn bits_of(words: &[u64], start: usize, len: usize) -> BooleanBuffer {
    let (from, to) = (start / 64, (start + len).div_ceil(64));
    let known = words.get(from..to.min(words.len())).unwrap_or_default();
    let mut copied = Vec::with_capacity(to - from);
    copied.extend(known.iter().map(|word| word.to_le()));
    copied.resize(to - from, 0);
    BooleanBuffer::new(Buffer::from_vec(copied), start % 64, len)
}

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
        BooleanArray::new(bits_of(&self.words, start, len), None)
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_bits_of_every_range() {
        let mut marks = Marks::default();
        marks.resize(200);
        (0..200).filter(|at| at * at % 7 < 3).for_each(|at| _ = marks.set(at));
        for start in [0, 1, 63, 64, 65, 190, 255, 256, 300] {
            for len in [0, 1, 2, 63, 64, 65, 130] {
                let expected: Vec<bool> = (start..start + len).map(|at| marks.has(at as u32)).collect();
                let found: Vec<bool> = marks.column(start, len).values().iter().collect();
                assert_eq!(found, expected, "{len} from {start} on");
            }
        }
    }
}
