//! How a table finds its rows: by the key's id alone, or by (key, namespace, map key).

use std::hash::{Hash, Hasher};

use crate::chunked::Chunked;
use crate::key_index::hash::fold;
use crate::key_index::slots::{Probe, Slots, tag};
use crate::types::StateType;

use super::at::{At, NO_KEY, Namespace};

/// The rows of a table.
///
/// Invariant: a row that `insert` gave belongs to the same entry until `release`.
pub(crate) trait RowIndex: Send + 'static {
    /// What an entry has besides key and namespace; `()` but for maps.
    type MapKey: StateType;

    /// Whether a row is a key.
    const BY_KEY: bool;

    /// Whether a key has at most one entry, or one in each window: not for maps.
    const SINGLE: bool;

    /// Bytes of a row, without what is behind pointers.
    const ROW_BYTES: usize;

    /// Whether entries have a namespace.
    fn is_windowed(&self) -> bool;
    /// The row of an entry, if it has one.
    fn find(&self, at: &At, map_key: &Self::MapKey) -> Option<u32>;
    /// The row of an entry, a new one where it had none. Rows are numbered without gaps.
    fn insert(&mut self, at: &At, map_key: &Self::MapKey) -> u32;
    /// The entry of this row is gone: the row may be given to another.
    fn release(&mut self, row: u32);
    /// The first row of a key, of any namespace and map key.
    fn first(&self, key: u32) -> Option<u32>;
    /// The row after this one of the same key.
    fn next(&self, row: u32) -> Option<u32>;
    /// Whose row it is.
    fn key(&self, row: u32) -> u32;
    /// The row's namespace.
    fn namespace(&self, row: u32) -> Option<Namespace>;
    /// The row's map key.
    fn map_key(&self, row: u32) -> &Self::MapKey;
    /// Bytes held, what is behind pointers of map keys included.
    fn memory_bytes(&self) -> usize;
    /// Rows that belong to no entry, where `free_keys` keys have been forgotten.
    fn free_rows(&self, free_keys: usize) -> usize;
}

/// A row per key: the key's id is the row.
#[derive(Debug, Default)]
pub(crate) struct ByKey;

impl RowIndex for ByKey {
    type MapKey = ();
    const BY_KEY: bool = true;
    const SINGLE: bool = true;
    const ROW_BYTES: usize = 0;

    fn is_windowed(&self) -> bool {
        false
    }

    #[inline]
    fn find(&self, at: &At, _map_key: &()) -> Option<u32> {
        Some(at.key)
    }

    #[inline]
    fn insert(&mut self, at: &At, _map_key: &()) -> u32 {
        at.key
    }

    #[inline]
    fn release(&mut self, _row: u32) {}

    fn first(&self, key: u32) -> Option<u32> {
        Some(key)
    }

    fn next(&self, _row: u32) -> Option<u32> {
        None
    }

    #[inline]
    fn key(&self, row: u32) -> u32 {
        row
    }

    fn namespace(&self, _row: u32) -> Option<Namespace> {
        None
    }

    fn map_key(&self, _row: u32) -> &() {
        &()
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn free_rows(&self, free_keys: usize) -> usize {
        free_keys
    }
}

/// No row.
const NONE: u32 = u32::MAX;

/// Entries up to which a key's chain is short: it is walked, which after `touch` needs no memory that is far away.
const SHORT: u32 = 4;

/// A row per entry; those of a key are a chain.
///
/// Invariant: the slots have the entries of chains that are not short, and no others.
pub(crate) struct ByEntry<M> {
    windowed: bool,
    slots: Slots,
    entries: Chunked<Entry<M>>,
    /// The namespaces of the rows, where the state is windowed.
    namespaces: Chunked<Namespace>,
    /// The chain of each key.
    chains: Chunked<Chain>,
    free: Vec<u32>,
    heap_bytes: usize,
}

/// The entries of a key, newest first.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: u32,
    len: u32,
}

impl Chain {
    const EMPTY: Self = Self { first: NONE, len: 0 };

    fn is_short(self) -> bool {
        self.len <= SHORT
    }
}

/// Whose row it is, and its neighbours in the key's chain.
struct Entry<M> {
    key: u32,
    next: u32,
    previous: u32,
    map_key: M,
}

impl<M: StateType + Hash + Eq> ByEntry<M> {
    /// Without rows.
    pub(super) fn new(windowed: bool) -> Self {
        Self {
            windowed,
            slots: Slots::new(),
            entries: Chunked::default(),
            namespaces: Chunked::default(),
            chains: Chunked::default(),
            free: Vec::new(),
            heap_bytes: 0,
        }
    }

    #[inline]
    fn tag(&self, key: u32, namespace: Option<Namespace>, map_key: &M) -> u32 {
        let mut hasher = EntryHasher(u64::from(key));
        if let Some(namespace) = namespace {
            hasher.write_i64(namespace.start);
            hasher.write_i64(namespace.end);
        }
        map_key.hash(&mut hasher);
        tag(hasher.finish())
    }

    /// The namespace that counts here.
    #[inline]
    fn own(&self, namespace: Option<Namespace>) -> Option<Namespace> {
        if self.windowed { namespace } else { None }
    }

    #[inline]
    fn chain(&self, key: u32) -> Chain {
        self.chains.get(key as usize).copied().unwrap_or(Chain::EMPTY)
    }

    /// Looks for an entry in the chain that begins here.
    #[inline]
    fn walk(&self, first: u32, namespace: Option<Namespace>, map_key: &M) -> Option<u32> {
        let mut rows = std::iter::successors(Some(first).filter(|row| *row != NONE), |row| self.next(*row));
        let is_wanted = |row: &u32| {
            self.entries[*row as usize].map_key == *map_key
                && namespace.is_none_or(|namespace| self.namespaces[*row as usize] == namespace)
        };
        rows.find(is_wanted)
    }

    /// Puts the entries of a chain into the slots.
    #[cold]
    fn index_chain(&mut self, key: u32) {
        let mut next = self.first(key);
        while let Some(row) = next {
            next = self.next(row);
            let tag = self.tag(key, self.namespace(row), self.map_key(row));
            if let Probe::Empty(place) = self.slots.probe(tag, |_| false) {
                self.slots.occupy(place, tag, row);
            }
        }
    }

    /// Takes the entries of a chain out of the slots.
    #[cold]
    fn unindex_chain(&mut self, key: u32) {
        let mut next = self.first(key);
        while let Some(row) = next {
            next = self.next(row);
            self.slots.remove(self.tag(key, self.namespace(row), self.map_key(row)), row);
        }
    }

    #[inline]
    fn probe(&self, tag: u32, key: u32, namespace: Option<Namespace>, map_key: &M) -> Probe {
        self.slots.probe(tag, |row| {
            let entry = &self.entries[row as usize];
            entry.key == key
                && entry.map_key == *map_key
                && namespace.is_none_or(|namespace| self.namespaces[row as usize] == namespace)
        })
    }

    fn add(&mut self, key: u32, namespace: Option<Namespace>, map_key: &M) -> u32 {
        self.heap_bytes += if M::ON_HEAP { map_key.heap_bytes() } else { 0 };
        self.chains.grow_to(key as usize + 1, || Chain::EMPTY);
        let Chain { first: next, len } = self.chains[key as usize];
        let entry = Entry { key, next, previous: NONE, map_key: map_key.clone() };
        let row = match self.free.pop() {
            Some(row) => {
                self.entries[row as usize] = entry;
                row
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        if let Some(namespace) = namespace {
            self.namespaces.grow_to(row as usize + 1, || namespace);
            self.namespaces[row as usize] = namespace;
        }
        if next != NONE {
            self.entries[next as usize].previous = row;
        }
        self.chains[key as usize] = Chain { first: row, len: len + 1 };
        row
    }
}

impl<M: StateType + Hash + Eq> RowIndex for ByEntry<M> {
    type MapKey = M;
    const BY_KEY: bool = false;
    const SINGLE: bool = size_of::<M>() == 0;
    const ROW_BYTES: usize = size_of::<Entry<M>>();

    fn is_windowed(&self) -> bool {
        self.windowed
    }

    #[inline]
    fn find(&self, at: &At, map_key: &M) -> Option<u32> {
        let (namespace, chain) = (self.own(at.namespace), self.chain(at.key));
        if chain.is_short() {
            return self.walk(chain.first, namespace, map_key);
        }
        match self.probe(self.tag(at.key, namespace, map_key), at.key, namespace, map_key) {
            Probe::Found(row) => Some(row),
            Probe::Empty(_) => None,
        }
    }

    #[inline]
    fn insert(&mut self, at: &At, map_key: &M) -> u32 {
        let (namespace, chain) = (self.own(at.namespace), self.chain(at.key));
        if chain.is_short() {
            return self.walk(chain.first, namespace, map_key).unwrap_or_else(|| {
                let row = self.add(at.key, namespace, map_key);
                if !self.chain(at.key).is_short() {
                    self.index_chain(at.key);
                }
                row
            });
        }
        let tag = self.tag(at.key, namespace, map_key);
        match self.probe(tag, at.key, namespace, map_key) {
            Probe::Found(row) => row,
            Probe::Empty(place) => {
                let row = self.add(at.key, namespace, map_key);
                self.slots.occupy(place, tag, row);
                row
            }
        }
    }

    fn release(&mut self, row: u32) {
        let key = self.key(row);
        let was_short = self.chain(key).is_short();
        if !was_short {
            self.slots.remove(self.tag(key, self.namespace(row), self.map_key(row)), row);
        }
        let entry = &mut self.entries[row as usize];
        self.heap_bytes -= if M::ON_HEAP { entry.map_key.heap_bytes() } else { 0 };
        let (next, previous) = (entry.next, entry.previous);
        entry.key = NO_KEY;
        let chain = &mut self.chains[key as usize];
        chain.len -= 1;
        match previous {
            NONE => chain.first = next,
            previous => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        self.free.push(row);
        if !was_short && self.chain(key).is_short() {
            self.unindex_chain(key);
        }
    }

    #[inline]
    fn first(&self, key: u32) -> Option<u32> {
        Some(self.chain(key).first).filter(|row| *row != NONE)
    }

    #[inline]
    fn next(&self, row: u32) -> Option<u32> {
        Some(self.entries[row as usize].next).filter(|row| *row != NONE)
    }

    #[inline]
    fn key(&self, row: u32) -> u32 {
        self.entries[row as usize].key
    }

    #[inline]
    fn namespace(&self, row: u32) -> Option<Namespace> {
        if self.windowed { self.namespaces.get(row as usize).copied() } else { None }
    }

    #[inline]
    fn map_key(&self, row: u32) -> &M {
        &self.entries[row as usize].map_key
    }

    fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.entries.memory_bytes()
            + self.namespaces.memory_bytes()
            + self.chains.memory_bytes()
            + self.free.capacity() * size_of::<u32>()
            + self.heap_bytes
    }

    fn free_rows(&self, _free_keys: usize) -> usize {
        self.free.len()
    }
}

/// Hashes an entry's address: words folded by multiplication, as key indexes do. Never stored.
struct EntryHasher(u64);

impl EntryHasher {
    #[inline]
    fn word(&mut self, word: u64) {
        self.0 = fold(self.0 ^ 0x9e37_79b9_7f4a_7c15, word ^ 0xd6e8_feb8_6659_fd93).wrapping_add(word);
    }
}

impl Hasher for EntryHasher {
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.0 ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db)
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
            self.word(u64::from_le_bytes(*chunk));
            rest = tail;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.word(u64::from(word));
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.word(u64::from(word));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.word(word as u64);
    }
}
