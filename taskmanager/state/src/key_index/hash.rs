//! The hash of an index in memory: two 64-bit words folded by a multiplication.
//!
//! Never stored and never sent: what is stored is the key's group, from `levada_common::keys`.

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash of one 64-bit word.
#[inline]
pub(crate) fn hash_word(word: u64) -> u64 {
    fold(word ^ SEED, FACTOR)
}

/// The hash of a key of up to 16 bytes, given as its bytes with zeros behind and its length.
#[inline]
pub(crate) fn hash_short(bytes: u128, len: usize) -> u64 {
    fold(bytes as u64 ^ SEED ^ len as u64, (bytes >> 64) as u64 ^ FACTOR)
}

/// The hash of a key of more than 16 bytes.
pub(crate) fn hash_long(bytes: &[u8]) -> u64 {
    let mut state = SEED ^ bytes.len() as u64;
    let mut rest = bytes;
    while let Some((chunk, tail)) = rest.split_first_chunk::<16>() {
        state = mix(state, *chunk);
        rest = tail;
    }
    let last = bytes.last_chunk::<16>().expect("a long key has more than 16 bytes");
    mix(state, *last)
}

#[inline]
fn mix(state: u64, chunk: [u8; 16]) -> u64 {
    let chunk = u128::from_le_bytes(chunk);
    fold(state ^ chunk as u64, (chunk >> 64) as u64 ^ FACTOR).wrapping_add(state.rotate_left(23))
}

#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
