//! Cutting bytes into records: lines that end at LF or CRLF; a lone CR stays, the last line needs no end.
//!
//! A record that is too long is skipped without being held. Invariant: the position is the offset of the first record that was
//! not given, wherever the chunks were cut.

use memchr::memchr;

/// Longest record, in bytes, without its end.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// Kept of a buffer that a long record has grown.
const CARRY_BYTES_KEPT: usize = 64 << 10;

/// What was cut off.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A record, without its end.
    Record {
        /// Offset of its first byte.
        start: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A record above `RECORD_BYTES_MAX`, which was skipped.
    TooLong {
        /// Offset of its first byte.
        start: u64,
        /// Its bytes as far as they were seen, its end included.
        length: u64,
    },
}

/// Cuts chunks into records.
///
/// Contract: `push` only after `next_frame` gave `None`; `finish` at the end of the input, until it gives `None`.
#[derive(Debug, Default)]
pub struct Framer {
    chunk: Vec<u8>,
    at: usize,
    /// Beginning of a record whose end has not come.
    carry: Vec<u8>,
    /// Whether `carry` was given and is to be emptied.
    is_given: bool,
    /// Bytes of a record that is too long, dropped so far.
    skipped: u64,
    position: u64,
}

impl Framer {
    /// Starts anew at this offset; what was not given is dropped.
    pub fn start(&mut self, position: u64) {
        self.at = self.chunk.len();
        self.is_given = true;
        self.drop_given();
        self.skipped = 0;
        self.position = position;
    }

    /// The offset of the first record that was not given.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Takes the bytes that follow; gives the last chunk back, to be filled again.
    pub fn push(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        debug_assert_eq!(self.at, self.chunk.len(), "a chunk is pushed before the last one is cut");
        self.at = 0;
        std::mem::replace(&mut self.chunk, chunk)
    }

    /// The next record; `None` where more bytes are needed.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        self.drop_given();
        let Some(length) = memchr(b'\n', &self.chunk[self.at..]) else {
            self.keep_rest();
            return None;
        };
        let from = self.at;
        self.at += length + 1;
        if self.carry.is_empty() && self.skipped == 0 {
            let start = self.position;
            self.position += length as u64 + 1;
            let bytes = without_cr(&self.chunk[from..from + length]);
            return Some(frame(start, bytes, length as u64 + 1));
        }
        self.end_carried(from, length)
    }

    /// The last record, where the input does not end at a line's end.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        self.drop_given();
        let length = self.skipped + self.carry.len() as u64;
        if length == 0 {
            return None;
        }
        let start = self.position;
        self.position += length;
        self.is_given = true;
        if std::mem::take(&mut self.skipped) > 0 {
            return Some(Frame::TooLong { start, length });
        }
        Some(frame(start, &self.carry, length))
    }

    /// Ends the record that began in an earlier chunk with `length` bytes at `from` of this one.
    fn end_carried(&mut self, from: usize, length: usize) -> Option<Frame<'_>> {
        let start = self.position;
        let total = self.skipped + (self.carry.len() + length) as u64 + 1;
        self.position += total;
        self.is_given = true;
        let is_skipped = std::mem::take(&mut self.skipped) > 0;
        if is_skipped || total > RECORD_BYTES_MAX as u64 + 2 {
            return Some(Frame::TooLong { start, length: total });
        }
        self.carry.extend_from_slice(&self.chunk[from..from + length]);
        Some(frame(start, without_cr(&self.carry), total))
    }

    /// Keeps the rest of the chunk, the beginning of a record, unless that is too long already (its CR may still come).
    fn keep_rest(&mut self) {
        let rest = &self.chunk[self.at..];
        if self.skipped > 0 || self.carry.len() + rest.len() > RECORD_BYTES_MAX + 1 {
            self.skipped += (self.carry.len() + rest.len()) as u64;
            self.carry.clear();
            self.carry.shrink_to(CARRY_BYTES_KEPT);
        } else {
            self.carry.extend_from_slice(rest);
        }
        self.at = self.chunk.len();
    }

    #[inline]
    fn drop_given(&mut self) {
        if self.is_given {
            self.is_given = false;
            self.carry.clear();
            self.carry.shrink_to(CARRY_BYTES_KEPT);
        }
    }
}

#[inline]
fn frame(start: u64, bytes: &[u8], length: u64) -> Frame<'_> {
    if bytes.len() > RECORD_BYTES_MAX { Frame::TooLong { start, length } } else { Frame::Record { start, bytes } }
}

#[inline]
fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record's offset and bytes; `None` for one that is too long.
    type Cut = (u64, Option<Vec<u8>>);

    fn take(frame: Frame<'_>) -> Cut {
        match frame {
            Frame::Record { start, bytes } => (start, Some(bytes.to_vec())),
            Frame::TooLong { start, .. } => (start, None),
        }
    }

    /// Cuts `input`, given in chunks of these sizes, again and again.
    fn cut(input: &[u8], sizes: &[usize]) -> Vec<Cut> {
        let (mut framer, mut cuts, mut from) = (Framer::default(), Vec::new(), 0);
        for size in sizes.iter().cycle() {
            while let Some(frame) = framer.next_frame() {
                cuts.push(take(frame));
            }
            if from == input.len() {
                break;
            }
            let to = input.len().min(from + size);
            framer.push(input[from..to].to_vec());
            from = to;
        }
        if let Some(frame) = framer.finish() {
            cuts.push(take(frame));
        }
        assert_eq!(framer.finish(), None);
        assert_eq!(framer.position(), input.len() as u64);
        cuts
    }

    /// The rule, written down plainly.
    fn model(input: &[u8]) -> Vec<Cut> {
        let (mut cuts, mut start) = (Vec::new(), 0);
        while start < input.len() {
            let end = input[start..].iter().position(|byte| *byte == b'\n').map(|length| start + length);
            let mut line = &input[start..end.unwrap_or(input.len())];
            if end.is_some() && line.ends_with(b"\r") {
                line = &line[..line.len() - 1];
            }
            cuts.push((start as u64, (line.len() <= RECORD_BYTES_MAX).then(|| line.to_vec())));
            start = end.map_or(input.len(), |end| end + 1);
        }
        cuts
    }

    #[test]
    fn line_ends_are_found_wherever_the_chunks_are_cut() {
        let input = b"x1\r\nx2\n\r\n\nx\r3\r\r\nx4\r\n\r";
        let expected = model(input);
        let lines: Vec<&[u8]> = expected.iter().map(|cut| cut.1.as_deref().expect("short")).collect();
        assert_eq!(lines, [&b"x1"[..], b"x2", b"", b"", b"x\r3\r", b"x4", b"\r"]);
        for first in 1..=input.len() {
            for second in 1..=input.len() {
                assert_eq!(cut(input, &[first, second]), expected, "chunks of {first} and {second}");
            }
        }
    }

    #[test]
    fn a_cr_at_the_end_of_a_chunk_belongs_to_its_lf() {
        for at in [4095usize, 4096, 8191, 65535, 1_048_575] {
            for cr in [at - 1, at, at + 1] {
                let mut input = vec![b'y'; cr];
                input.extend_from_slice(b"\r\nx\n");
                let expected = vec![(0, Some(vec![b'y'; cr])), (cr as u64 + 2, Some(b"x".to_vec()))];
                for size in [4096, 8192, 65536, 1 << 20] {
                    assert_eq!(cut(&input, &[size]), expected, "CR at {cr}, chunks of {size}");
                }
            }
        }
    }

    #[test]
    fn a_record_at_the_limit_passes_and_a_longer_one_is_skipped_once() {
        for (extra, end, is_good) in [
            (0, "\n", true),
            (0, "\r\n", true),
            (1, "\n", false),
            (1, "\r\n", false),
            (0, "", true),
            (1, "", false),
            (9_000_000, "\n", false),
        ] {
            let mut input = b"good\n".to_vec();
            input.extend(std::iter::repeat_n(b'z', RECORD_BYTES_MAX + extra));
            input.extend_from_slice(end.as_bytes());
            if !end.is_empty() {
                input.extend_from_slice(b"after");
            }
            for size in [1 << 20, RECORD_BYTES_MAX + 6, RECORD_BYTES_MAX + 7, 1 << 26, 65_537] {
                let cuts = cut(&input, &[size]);
                assert_eq!(cuts, model(&input), "{extra} {end:?} {size}");
                assert_eq!(cuts[1].1.is_some(), is_good);
            }
        }
    }

    #[test]
    fn a_record_without_end_is_not_held() {
        let mut framer = Framer::default();
        for _ in 0..64 {
            framer.push(vec![b'q'; 1 << 20]);
            assert_eq!(framer.next_frame(), None);
            assert!(framer.carry.capacity() <= 2 * (RECORD_BYTES_MAX + 1));
        }
        assert_eq!(framer.position(), 0, "a restart would begin at the record's start");
        assert_eq!(framer.carry.capacity(), CARRY_BYTES_KEPT);
        assert_eq!(framer.finish(), Some(Frame::TooLong { start: 0, length: 64 << 20 }));
    }

    proptest! {
        #[test]
        fn cutting_agrees_with_the_rule(
            input in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a')], 0..60),
            sizes in proptest::collection::vec(1usize..9, 1..5),
        ) {
            prop_assert_eq!(cut(&input, &sizes), model(&input));
        }
    }
}
