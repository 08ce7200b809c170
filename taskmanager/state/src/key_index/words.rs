//! The index over one key column of up to 64 bits a value.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use levada_common::keys::normalise_key_column;

use super::ABSENT;
use super::free::FreeIds;
use super::hash::hash_word;
use super::slots::{BLOCK, FirstSlot, Probe, Slots, tag};
use crate::chunked::Chunked;
use crate::fixed;
use crate::rows::Rows;

/// Keys as words, dense by id; null is a key of its own beside the table.
#[derive(Debug)]
pub(super) struct WordKeys {
    data_type: DataType,
    keys: Chunked<i64>,
    slots: Slots,
    free: FreeIds,
    null_id: Option<u32>,
    scratch: Vec<i64>,
}

impl WordKeys {
    pub(super) fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            keys: Chunked::default(),
            slots: Slots::new(),
            free: FreeIds::default(),
            null_id: None,
            scratch: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn intern(&mut self, column: &ArrayRef, ids: &mut Vec<u32>) {
        self.look_up(column, ids, Self::intern_word, Self::intern_null);
    }

    pub(super) fn find(&mut self, column: &ArrayRef, ids: &mut Vec<u32>) {
        self.look_up(column, ids, |keys, word, tag| keys.find_word(word, tag), |keys| keys.null_id.unwrap_or(ABSENT));
    }

    /// Appends the id of each row: `miss` says that of a word that does not stand in its tag's first slot, `null` that of null.
    #[inline]
    fn look_up(
        &mut self,
        column: &ArrayRef,
        ids: &mut Vec<u32>,
        miss: impl Fn(&mut Self, i64, u32) -> u32,
        null: impl Fn(&mut Self) -> u32,
    ) {
        let column = match self.data_type {
            DataType::Float32 | DataType::Float64 => &normalise_key_column(ArrayRef::clone(column)),
            _ => column,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let words = fixed::ordered(column, &mut scratch);
        ids.reserve(words.len());
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => self.look_up_words(words, ids, miss),
            Some(nulls) => {
                for (row, word) in words.iter().enumerate() {
                    let id = if nulls.is_valid(row) { miss(self, *word, tag(hash_word(*word as u64))) } else { null(self) };
                    ids.push(id);
                }
            }
        }
        self.scratch = scratch;
    }

    #[inline]
    fn look_up_words(&mut self, words: &[i64], ids: &mut Vec<u32>, miss: impl Fn(&mut Self, i64, u32) -> u32) {
        let (mut tags, mut firsts) = ([0u32; BLOCK], [FirstSlot::default(); BLOCK]);
        for block in words.chunks(BLOCK) {
            for (tag_of, word) in tags.iter_mut().zip(block) {
                *tag_of = tag(hash_word(*word as u64));
            }
            self.slots.first_slots(&tags[..block.len()], &mut firsts);
            if self.slots.is_large() {
                let rows = firsts[..block.len()].iter().map(|first| self.keys.get(first.row()).copied().unwrap_or(0));
                std::hint::black_box(rows.fold(0, |all, word| all ^ word));
            }
            ids.extend(block.iter().zip(tags.iter().zip(&firsts)).map(|(word, (tag, first))| match self.keys.get(first.row()) {
                Some(kept) if kept == word => first.row() as u32,
                _ => miss(self, *word, *tag),
            }));
        }
    }

    #[inline]
    fn intern_word(&mut self, word: i64, tag: u32) -> u32 {
        match self.slots.probe(tag, |id| self.keys[id as usize] == word) {
            Probe::Found(id) => id,
            Probe::Empty(place) => {
                let id = self.keep(word);
                self.slots.occupy(place, tag, id);
                id
            }
        }
    }

    #[inline]
    fn find_word(&self, word: i64, tag: u32) -> u32 {
        match self.slots.probe(tag, |id| self.keys[id as usize] == word) {
            Probe::Found(id) => id,
            Probe::Empty(_) => ABSENT,
        }
    }

    fn intern_null(&mut self) -> u32 {
        match self.null_id {
            Some(id) => id,
            None => {
                let id = self.keep(0);
                *self.null_id.insert(id)
            }
        }
    }

    fn keep(&mut self, word: i64) -> u32 {
        match self.free.take() {
            Some(id) => {
                self.keys[id as usize] = word;
                id
            }
            None => {
                self.keys.push(word);
                self.keys.len() as u32 - 1
            }
        }
    }

    pub(super) fn remove(&mut self, id: u32) {
        match self.null_id == Some(id) {
            true => self.null_id = None,
            false => self.slots.remove(tag(hash_word(self.keys[id as usize] as u64)), id),
        }
        self.free.give(id);
    }

    pub(super) fn free(&mut self) -> &mut FreeIds {
        &mut self.free
    }

    pub(super) fn live(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    pub(super) fn keys(&self, rows: Rows<'_>) -> ArrayRef {
        let nulls = self.null_id.and_then(|null_id| {
            let valid = rows.map(|id| id as u32 != null_id);
            valid.contains(&false).then(|| NullBuffer::from(valid))
        });
        fixed::from_ordered(rows.map(|id| self.keys[id]), nulls, &self.data_type)
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.slots.clear();
        self.free.clear();
        self.null_id = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.slots.memory_bytes() + self.free.memory_bytes()
    }
}
