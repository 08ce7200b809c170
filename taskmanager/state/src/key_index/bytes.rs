//! Keys of bytes, dense by id: up to 16 bytes stand in the row itself, longer ones in an arena.

use super::ABSENT;
use super::arena::Arena;
use super::free::FreeIds;
use super::hash::{hash_long, hash_short};
use super::slots::{BLOCK, FirstSlot, Probe, Slots, tag};
use crate::chunked::Chunked;

/// Longest key that stands in its row.
const SHORT_BYTES_MAX: usize = 16;

/// A key as it is probed for, and as it is kept.
///
/// `word` of a short key: its bytes, zeros behind. Of a long one: its hash above the place of its first byte in the arena
/// (when kept) or in the batch (when probed for), so 64 bits each.
#[derive(Debug, Clone, Copy)]
struct Key {
    word: [u64; 2],
    len: u32,
}

impl Key {
    #[inline]
    fn is_short(&self) -> bool {
        self.len as usize <= SHORT_BYTES_MAX
    }
}

/// The keys and their index.
#[derive(Debug)]
pub(super) struct ByteKeys {
    keys: Chunked<Key>,
    arena: Arena,
    slots: Slots,
    free: FreeIds,
}

impl ByteKeys {
    pub(super) fn new() -> Self {
        Self { keys: Chunked::default(), arena: Arena::default(), slots: Slots::new(), free: FreeIds::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Appends the id of each of `rows` keys, which stand in `data` where `range` says.
    pub(super) fn intern(&mut self, data: &[u8], rows: usize, range: impl Fn(usize) -> (usize, usize), ids: &mut Vec<u32>) {
        self.look_up(data, rows, range, ids, Self::intern_key);
    }

    /// As `intern`, `ABSENT` for a key that is not there.
    pub(super) fn find(&mut self, data: &[u8], rows: usize, range: impl Fn(usize) -> (usize, usize), ids: &mut Vec<u32>) {
        self.look_up(data, rows, range, ids, |keys, key, tag, data| keys.find_key(key, tag, data));
    }

    /// Appends ids; `miss` says that of a key that does not stand in its tag's first slot.
    #[inline]
    fn look_up(
        &mut self,
        data: &[u8],
        rows: usize,
        range: impl Fn(usize) -> (usize, usize),
        ids: &mut Vec<u32>,
        miss: impl Fn(&mut Self, Key, u32, &[u8]) -> u32,
    ) {
        ids.reserve(rows);
        let mut keys = [Key { word: [0; 2], len: 0 }; BLOCK];
        let (mut tags, mut firsts) = ([0u32; BLOCK], [FirstSlot::default(); BLOCK]);
        for start in (0..rows).step_by(BLOCK) {
            let len = BLOCK.min(rows - start);
            for row in 0..len {
                let (from, to) = range(start + row);
                (keys[row], tags[row]) = probe_key(data, from, to);
            }
            self.slots.first_slots(&tags[..len], &mut firsts);
            if self.slots.is_large() {
                let rows = firsts[..len].iter().map(|first| self.keys.get(first.row()).map_or(0, |key| key.word[0]));
                std::hint::black_box(rows.fold(0, |all, word| all ^ word));
            }
            ids.extend(keys[..len].iter().zip(tags.iter().zip(&firsts)).map(
                |(key, (tag, first))| match self.keys.get(first.row()) {
                    Some(kept) if key.is_short() && kept.word == key.word && kept.len == key.len => first.row() as u32,
                    _ => miss(self, *key, *tag, data),
                },
            ));
        }
    }

    /// The id of one key.
    pub(super) fn intern_one(&mut self, bytes: &[u8]) -> u32 {
        let (key, tag) = probe_key(bytes, 0, bytes.len());
        self.intern_key(key, tag, bytes)
    }

    /// The id of one key, `ABSENT` where it is not there.
    pub(super) fn find_one(&self, bytes: &[u8]) -> u32 {
        let (key, tag) = probe_key(bytes, 0, bytes.len());
        self.find_key(key, tag, bytes)
    }

    #[inline]
    fn intern_key(&mut self, key: Key, tag: u32, data: &[u8]) -> u32 {
        match self.probe(&key, tag, data) {
            Probe::Found(id) => id,
            Probe::Empty(place) => {
                let id = self.keep(key, data);
                self.slots.occupy(place, tag, id);
                id
            }
        }
    }

    #[inline]
    fn find_key(&self, key: Key, tag: u32, data: &[u8]) -> u32 {
        match self.probe(&key, tag, data) {
            Probe::Found(id) => id,
            Probe::Empty(_) => ABSENT,
        }
    }

    #[inline]
    fn probe(&self, key: &Key, tag: u32, data: &[u8]) -> Probe {
        if key.is_short() {
            self.slots.probe(tag, |id| {
                let kept = &self.keys[id as usize];
                kept.word == key.word && kept.len == key.len
            })
        } else {
            self.slots.probe(tag, |id| {
                let kept = &self.keys[id as usize];
                kept.len == key.len && kept.word[1] == key.word[1] && self.long(kept) == long_in(data, key)
            })
        }
    }

    /// Adds a row that no probe finds.
    pub(super) fn push_hidden(&mut self) -> u32 {
        self.put(Key { word: [u64::MAX; 2], len: 0 })
    }

    /// Takes out a row that `push_hidden` added.
    pub(super) fn remove_hidden(&mut self, id: u32) {
        self.free.give(id);
    }

    /// Takes a row out.
    ///
    /// Contract: it is there, and not hidden.
    pub(super) fn remove(&mut self, id: u32) {
        let key = self.keys[id as usize];
        if key.is_short() {
            let bytes = u128::from(key.word[0]) | u128::from(key.word[1]) << 64;
            self.slots.remove(tag(hash_short(bytes, key.len as usize)), id);
        } else {
            self.slots.remove(tag(key.word[1]), id);
            self.arena.release(key.word[0], key.len as usize);
        }
        self.free.give(id);
    }

    pub(super) fn free(&mut self) -> &mut FreeIds {
        &mut self.free
    }

    pub(super) fn live(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    fn keep(&mut self, mut key: Key, data: &[u8]) -> u32 {
        if !key.is_short() {
            key.word[0] = self.arena.keep(long_in(data, &key));
        }
        self.put(key)
    }

    fn put(&mut self, key: Key) -> u32 {
        match self.free.take() {
            Some(id) => {
                self.keys[id as usize] = key;
                id
            }
            None => {
                self.keys.push(key);
                self.keys.len() as u32 - 1
            }
        }
    }

    #[inline]
    fn long(&self, key: &Key) -> &[u8] {
        self.arena.get(key.word[0], key.len as usize)
    }

    /// Appends the bytes of a row's key.
    #[inline]
    pub(super) fn append(&self, id: usize, out: &mut Vec<u8>) {
        let key = &self.keys[id];
        if key.is_short() {
            let len = out.len();
            let bytes = u128::from(key.word[0]) | u128::from(key.word[1]) << 64;
            // A copy of fixed size and a cut are faster than a copy of the key's own size.
            out.extend_from_slice(&bytes.to_le_bytes());
            out.truncate(len + key.len as usize);
        } else {
            out.extend_from_slice(self.long(key));
        }
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.arena.clear();
        self.slots.clear();
        self.free.clear();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.arena.memory_bytes() + self.slots.memory_bytes() + self.free.memory_bytes()
    }
}

/// The key that stands in `data[from..to]`, and its tag.
#[inline]
fn probe_key(data: &[u8], from: usize, to: usize) -> (Key, u32) {
    let len = to - from;
    if len > SHORT_BYTES_MAX {
        let hash = hash_long(&data[from..to]);
        return (Key { word: [from as u64, hash], len: len as u32 }, tag(hash));
    }
    let bytes = short_bytes(data, from, len);
    let hash = hash_short(bytes, len);
    (Key { word: [bytes as u64, (bytes >> 64) as u64], len: len as u32 }, tag(hash))
}

/// Reads 16 bytes whatever the length, and cuts off what lies behind; only at the end of `data` byte by byte.
#[inline]
fn short_bytes(data: &[u8], from: usize, len: usize) -> u128 {
    let bytes = match data.get(from..from + SHORT_BYTES_MAX) {
        Some(chunk) => u128::from_le_bytes(chunk.try_into().expect("16 bytes were cut")),
        None => {
            let mut chunk = [0; SHORT_BYTES_MAX];
            chunk[..len].copy_from_slice(&data[from..from + len]);
            u128::from_le_bytes(chunk)
        }
    };
    if len == 0 { 0 } else { bytes & (u128::MAX >> (128 - 8 * len as u32)) }
}

#[inline]
fn long_in<'a>(data: &'a [u8], key: &Key) -> &'a [u8] {
    let from = key.word[0] as usize;
    &data[from..from + key.len as usize]
}
