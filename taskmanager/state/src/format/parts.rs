//! The bytes of a file in memory, in parts: a large one needs no memory in one piece, and is not copied to be read.

use std::ops::Range;

use bytes::Bytes;

use super::decode::Corrupt;

/// The bytes of a file.
#[derive(Debug, Clone)]
pub struct FileBytes {
    parts: Vec<Bytes>,
    part_bytes: usize,
    length: usize,
}

impl FileBytes {
    /// Of parts of one length, but for the last, which may be shorter.
    pub fn new(parts: Vec<Bytes>) -> Self {
        let part_bytes = parts.first().map_or(1, |part| part.len().max(1));
        let length = parts.iter().map(Bytes::len).sum();
        Self { parts, part_bytes, length }
    }

    /// Number of bytes.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Compares the bytes with the CRC-32C that was noted when they were written.
    ///
    /// Contract: to be called before `decode_range`, which trusts its bytes.
    pub fn verify(&self, expected: u32) -> Result<(), Corrupt> {
        let found = self.parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        if found == expected { Ok(()) } else { Err(Corrupt { expected, found }) }
    }

    /// Some of the bytes; those beyond the end are left out. They are copied only where they cross parts.
    pub(super) fn range(&self, range: Range<u64>) -> Bytes {
        let (start, end) = (range.start as usize, self.length.min(range.end as usize));
        if start >= end {
            return Bytes::new();
        }
        let within = |at: usize| {
            let of_part = at * self.part_bytes;
            let part = &self.parts[at];
            part.slice(start.saturating_sub(of_part)..part.len().min(end - of_part))
        };
        let (first, last) = (start / self.part_bytes, (end - 1) / self.part_bytes);
        if first == last {
            return within(first);
        }
        let mut bytes = Vec::with_capacity(end - start);
        (first..=last).for_each(|at| bytes.extend_from_slice(&within(at)));
        bytes.into()
    }
}

impl From<Bytes> for FileBytes {
    fn from(bytes: Bytes) -> Self {
        Self::new(vec![bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_of_every_cut_has_its_bytes() {
        let whole: Vec<u8> = (0..23).collect();
        for part in 1..=24 {
            let file = FileBytes::new(whole.chunks(part).map(Bytes::copy_from_slice).collect());
            assert_eq!(file.length(), 23);
            file.verify(crc32c::crc32c(&whole)).unwrap();
            assert!(file.verify(1).is_err());
            for start in 0..=23 {
                for end in start..=30 {
                    assert_eq!(file.range(start as u64..end as u64), whole[start..end.min(23)], "{start}..{end} of {part}");
                }
            }
        }
        assert!(FileBytes::new(Vec::new()).range(0..3).is_empty());
    }
}
