//! Rows of bytes, one behind the other.

/// Eight bytes of a row as a number that orders as they do, and the row's number.
type Place = (u64, u32);

/// Words of rows after which they are compared whole.
const WORDS_MAX: usize = 16;

/// Rows of bytes; what is appended belongs to the row that `end_row` ends.
#[derive(Debug, Clone, Default)]
pub struct RowBytes {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RowBytes {
    /// No row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of a row.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// The numbers of the rows in the order of their bytes, those of equal ones in their own.
    pub fn in_order(&self) -> Vec<u32> {
        let mut places: Vec<Place> = (0..self.len() as u32).map(|row| (0, row)).collect();
        self.sort(&mut places, 0);
        places.into_iter().map(|(_, row)| row).collect()
    }

    /// Puts rows in order that are equal before `at`: by eight bytes at a time, since rows lie far from each other, and keys of one
    /// group begin alike. Their numbers are in order, so that their bytes are read in the order of memory.
    fn sort(&self, places: &mut [Place], at: usize) {
        let mut is_over = true;
        for (word, row) in &mut *places {
            let rest = self.get(*row as usize).get(at..).unwrap_or_default();
            is_over &= rest.is_empty();
            *word = word_of(rest);
        }
        // Words do not tell an end from zeros. Where many rows begin alike for long, most of them are equal.
        if is_over || at >= WORDS_MAX * size_of::<u64>() {
            places.sort_unstable_by(|(_, left), (_, right)| {
                self.get(*left as usize).cmp(self.get(*right as usize)).then(left.cmp(right))
            });
            return;
        }
        places.sort_unstable();
        for equal in places.chunk_by_mut(|left, right| left.0 == right.0).filter(|equal| equal.len() > 1) {
            self.sort(equal, at + size_of::<u64>());
        }
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[u8]) {
        self.extend(row);
        self.end_row();
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Forgets every row and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends to the row that has not ended.
    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends one byte to the row that has not ended.
    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Ends a row.
    #[inline]
    pub(super) fn end_row(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

/// The first eight bytes, with zeros behind the end.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn assert_in_order(texts: &[Vec<u8>]) {
        let mut rows = RowBytes::new();
        texts.iter().for_each(|text| rows.push(text));
        let mut expected: Vec<u32> = (0..texts.len() as u32).collect();
        expected.sort_by_key(|row| &texts[*row as usize]);
        assert_eq!(rows.in_order(), expected, "{texts:?}");
    }

    #[test]
    fn rows_are_in_order_whatever_their_length() {
        let texts = ["b", "", "a", "ab", "abcdefgh\0", "abcdefgh", "a", "abcdefgi", "a\0", "abcdefgh\0\0\0\0\0\0\0\0\0", ""];
        assert_in_order(&texts.map(|text| text.as_bytes().to_vec()));
    }

    proptest! {
        #[test]
        fn rows_that_begin_alike_are_in_order(alike in 0..200_usize, ends in vec(vec(0..2_u8, 0..20), 0..300)) {
            assert_in_order(&ends.into_iter().map(|end| [vec![b'x'; alike], end].concat()).collect::<Vec<_>>());
        }
    }
}
