//! One bit a row.

/// The bits; those behind the last that was set are zero.
#[derive(Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// So many bits, all of them set.
    pub fn ones(rows: usize) -> Self {
        let mut words = vec![u64::MAX; rows.div_ceil(64)];
        if let Some(last) = words.last_mut().filter(|_| !rows.is_multiple_of(64)) {
            *last = !(u64::MAX << (rows % 64));
        }
        Self { words }
    }

    /// Whether the row's bit is set.
    #[inline]
    pub fn get(&self, row: u32) -> bool {
        self.words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Sets the row's bit; answers whether it was not.
    #[inline]
    pub fn set(&mut self, row: u32) -> bool {
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
    pub fn set_one(&mut self, row: u32) {
        self.set(row);
    }

    /// Sets the bits of these rows, all of which are among the first `len`.
    #[inline]
    pub fn set_all(&mut self, rows: &[u32], len: usize) {
        let words = len.div_ceil(64);
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
        rows.iter().for_each(|row| self.words[*row as usize / 64] |= 1 << (row % 64));
    }

    /// Sets every bit that is set in `others`.
    pub fn unite(&mut self, others: &Self) {
        if others.words.len() > self.words.len() {
            self.words.resize(others.words.len(), 0);
        }
        self.words.iter_mut().zip(&others.words).for_each(|(word, other)| *word |= other);
    }

    /// Clears the row's bit.
    #[inline]
    pub fn clear(&mut self, row: u32) {
        if let Some(word) = self.words.get_mut(row as usize / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    /// Clears the row's bit; answers whether it was set.
    #[inline]
    pub fn take(&mut self, row: u32) -> bool {
        let was_set = self.get(row);
        self.clear(row);
        was_set
    }

    /// Whether one of these rows' bits is set.
    pub fn any_in(&self, rows: std::ops::Range<u32>) -> bool {
        let (first, last) = (rows.start as usize / 64, rows.end.saturating_sub(1) as usize / 64);
        let words = self.words.get(first..self.words.len().min(last + 1)).unwrap_or_default();
        let in_word = |(at, word): (usize, &u64)| {
            let below = if at == first { !(u64::MAX << (rows.start % 64)) } else { 0 };
            let above = if at == last && !rows.end.is_multiple_of(64) { u64::MAX << (rows.end % 64) } else { 0 };
            word & !below & !above != 0
        };
        !rows.is_empty() && (first..).zip(words).any(in_word)
    }

    /// The bits, in words of 64.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bits, in words of 64, to be changed.
    pub fn words_mut(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// Clears all bits and keeps the memory.
    pub fn clear_all(&mut self) {
        self.words.fill(0);
    }

    /// Number of bits that are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The rows whose bit is set, in ascending order.
    pub fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        let in_word = |(at, word): (usize, &u64)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at as u32 * 64 + bit)
            })
        };
        self.words.iter().enumerate().flat_map(in_word)
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_rows() {
        let mut bits = Bits::default();
        bits.set_all(&[3, 64, 129, 3], 200);
        assert!(bits.set(130) && !bits.set(64));
        bits.clear(3);
        assert_eq!((bits.rows().collect::<Vec<_>>(), bits.count()), (vec![64, 129, 130], 3));
        for rows in [0..64, 65..129, 130..130, 131..400, 500..600, 65..66] {
            assert!(!bits.any_in(rows.clone()), "{rows:?}");
        }
        for rows in [64..65, 0..65, 129..130, 130..131, 0..500, 128..192, 63..66] {
            assert!(bits.any_in(rows.clone()), "{rows:?}");
        }
        let mut all = Bits::ones(65);
        assert_eq!((all.count(), all.get(64), all.get(65)), (65, true, false));
        all.unite(&bits);
        assert_eq!(all.count(), 67);
        all.clear_all();
        assert_eq!(all.rows().next(), None);
        assert_eq!(Bits::ones(0).rows().next(), None);
    }
}
