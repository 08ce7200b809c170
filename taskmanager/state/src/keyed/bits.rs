//! One bit a row.

/// The bits; those behind the last that was set are zero.
#[derive(Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Whether the row's bit is set.
    #[inline]
    pub(super) fn get(&self, row: u32) -> bool {
        self.words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Sets the row's bit; answers whether it was not.
    #[inline]
    pub(super) fn set(&mut self, row: u32) -> bool {
        let at = row as usize / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let bit = 1 << (row % 64);
        let was_zero = self.words[at] & bit == 0;
        self.words[at] |= bit;
        was_zero
    }

    /// Sets the row's bit.
    #[inline]
    pub(super) fn set_one(&mut self, row: u32) {
        self.set(row);
    }

    /// Clears the row's bit.
    #[inline]
    pub(super) fn clear(&mut self, row: u32) {
        if let Some(word) = self.words.get_mut(row as usize / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    /// The bits, in words of 64.
    pub(super) fn words(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
