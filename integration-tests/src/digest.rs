//! The hashes by which results are compared across engines: a sum over rows, so that order does not matter.

/// The odd constant of SplitMix64.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser.
pub fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Number `n` of the stream of 32-bit halves that keys and words are drawn from.
pub fn draw(n: u64) -> u64 {
    mix(n.wrapping_add(1).wrapping_mul(GOLDEN))
}

/// The hash of one row of up to four columns; missing ones are 0.
pub fn row_hash([a, b, c, d]: [u64; 4]) -> u64 {
    absorb(absorb(absorb(absorb_first(a), b), c), d)
}

/// A row's hash after its first column.
pub fn absorb_first(value: u64) -> u64 {
    mix(value.wrapping_mul(GOLDEN).wrapping_add(1))
}

/// A row's hash after one more column.
pub fn absorb(hash: u64, value: u64) -> u64 {
    mix(hash.wrapping_add(value).wrapping_mul(GOLDEN))
}

/// FNV-1a, 64 bits: how a string enters a row's hash.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_hash_depends_on_every_column_and_its_place() {
        let base = row_hash([1, 2, 3, 4]);
        for other in [[0, 2, 3, 4], [1, 0, 3, 4], [1, 2, 0, 4], [1, 2, 3, 0], [2, 1, 3, 4]] {
            assert_ne!(row_hash(other), base);
        }
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
