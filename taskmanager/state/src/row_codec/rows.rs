//! Rows of bytes, one behind the other.

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
        // The first bytes as a number that orders as they do: most comparisons need no more.
        let start = |row: &[u8]| {
            let mut bytes = [0; 8];
            let count = row.len().min(8);
            bytes[..count].copy_from_slice(&row[..count]);
            u64::from_be_bytes(bytes)
        };
        let mut places: Vec<(u64, u32)> = self.iter().enumerate().map(|(number, row)| (start(row), number as u32)).collect();
        places.sort_unstable_by(|left, right| {
            let row = |place: &(u64, u32)| self.get(place.1 as usize);
            left.0.cmp(&right.0).then_with(|| row(left).cmp(row(right))).then(left.1.cmp(&right.1))
        });
        places.into_iter().map(|(_, number)| number).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_whatever_their_length() {
        let texts = ["b", "", "a", "ab", "abcdefgh\0", "abcdefgh", "a", "abcdefgi", "a\0"];
        let mut rows = RowBytes::new();
        texts.iter().for_each(|text| rows.push(text.as_bytes()));
        let found: Vec<(&str, u32)> = rows.in_order().into_iter().map(|row| (texts[row as usize], row)).collect();
        let mut expected: Vec<(&str, u32)> = texts.into_iter().zip(0..).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
