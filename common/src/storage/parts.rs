//! How a large object is cut into the parts in which it is written: equal ones, no more than a store takes, few in memory at one time.

use std::ops::Range;

/// A part, as long as there are not too many of them.
pub(super) const PART_BYTES: u64 = 16 << 20;

/// Most parts that S3 takes of an object.
pub(super) const PARTS_MAX: u64 = 10_000;

/// Bytes of parts under way at one time, unless one part is larger.
const BYTES_AT_ONCE: u64 = 4 * PART_BYTES;

/// The parts of an object of so many bytes.
pub(super) fn parts_of(length: u64) -> impl Iterator<Item = Range<u64>> {
    let step = part_bytes(length);
    (0..length).step_by(step as usize).map(move |start| start..length.min(start + step))
}

/// How many of these parts may be under way at one time.
pub(super) fn parts_at_once(length: u64) -> usize {
    (BYTES_AT_ONCE / part_bytes(length)).max(1) as usize
}

fn part_bytes(length: u64) -> u64 {
    length.div_ceil(PARTS_MAX).max(PART_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_never_more_than_s3_takes() {
        for (length, each, at_once) in [
            (1, PART_BYTES, 4),
            (PART_BYTES * PARTS_MAX, PART_BYTES, 4),
            (PART_BYTES * PARTS_MAX + 1, PART_BYTES + 1, 3),
            (200 << 30, 21_474_837, 3),
            (5 << 40, 549_755_814, 1),
        ] {
            assert_eq!((part_bytes(length), parts_at_once(length)), (each, at_once), "{length}");
            let parts: Vec<Range<u64>> = parts_of(length).collect();
            assert!(parts.len() as u64 <= PARTS_MAX, "{length}: {}", parts.len());
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].end - pair[0].start == each));
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, length));
        }
    }
}
