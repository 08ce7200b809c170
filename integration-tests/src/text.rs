//! The text that word counts run on: words of a fixed list with weights that fall like 1 / rank, the same on every machine.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::digest::{draw, mix};

/// Different words.
pub const VOCABULARY: usize = 100_000;

const WORDS_PER_LINE: u64 = 12;

/// The words and the running sum of their weights.
pub struct Text {
    words: Vec<Vec<u8>>,
    cumulated: Vec<u64>,
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

/// A number below `bound`, from 32 random bits.
fn below(bits: u64, bound: u64) -> u64 {
    (bits * bound) >> 32
}

fn letter(bits: u64) -> u8 {
    b'a' + below(bits >> 32, 26) as u8
}

impl Text {
    /// Makes the list.
    pub fn new() -> Self {
        let words = (0..VOCABULARY as u64).map(word).collect();
        let mut sum = 0;
        let cumulated = (0..VOCABULARY as u64)
            .map(|i| {
                sum += (1u64 << 32) / (i + 1);
                sum
            })
            .collect();
        Self { words, cumulated }
    }

    /// Word number `n` of the text.
    pub fn word(&self, n: u64) -> &[u8] {
        let total = *self.cumulated.last().expect("there are words");
        let x = ((u128::from(draw(n) >> 1) * 2 * u128::from(total)) >> 64) as u64;
        &self.words[self.cumulated.partition_point(|sum| *sum <= x)]
    }

    /// Writes lines of 12 words to `path`, up to the first line end at or past `bytes`; answers the number of words.
    pub fn write(&self, path: &Path, bytes: u64) -> io::Result<u64> {
        let mut out = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
        let (mut written, mut n) = (0u64, 0u64);
        while written < bytes {
            for place in 0..WORDS_PER_LINE {
                let word = self.word(n);
                out.write_all(word)?;
                out.write_all(if place + 1 == WORDS_PER_LINE { b"\n" } else { b" " })?;
                written += word.len() as u64 + 1;
                n += 1;
            }
        }
        out.flush()?;
        Ok(n)
    }
}

/// Word `i`: a prefix of up to four letters, then `i` in four letters of base 26.
fn word(i: u64) -> Vec<u8> {
    let prefix = below(mix(0x77 + i) >> 32, 5);
    let mut word: Vec<u8> = (0..prefix).map(|k| letter(mix(0x0100_0000 + 8 * i + k))).collect();
    word.extend([17_576, 676, 26, 1].map(|unit| b'a' + (i / unit % 26) as u8));
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_begins_as_it_always_did() {
        let text = Text::new();
        let start: Vec<String> = (0..5).map(|n| String::from_utf8_lossy(text.word(n)).into_owned()).collect();
        assert_eq!(start, ["mbkcg", "rdvtaadz", "javsaaaa", "ceaau", "aaab"]);
    }
}
