//! The index over one key column of up to 64 bits a value.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use levada_common::keys::normalise_key_column;

use super::hash::hash_word;
use super::slots::{BLOCK, Probe, Slots, tag};
use crate::fixed;
use crate::rows::Rows;

/// Keys as words, dense by id; null is a key of its own beside the table.
#[derive(Debug)]
pub(super) struct WordKeys {
    data_type: DataType,
    keys: Vec<i64>,
    slots: Slots,
    null_id: Option<u32>,
    scratch: Vec<i64>,
}

impl WordKeys {
    pub(super) fn new(data_type: DataType) -> Self {
        Self { data_type, keys: Vec::new(), slots: Slots::new(), null_id: None, scratch: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn intern(&mut self, column: &ArrayRef, ids: &mut Vec<u32>) {
        let column = match self.data_type {
            DataType::Float32 | DataType::Float64 => &normalise_key_column(ArrayRef::clone(column)),
            _ => column,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let words = fixed::ordered(column, &mut scratch);
        ids.reserve(words.len());
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => self.intern_words(words, ids),
            Some(nulls) => self.intern_nullable(words, nulls, ids),
        }
        self.scratch = scratch;
    }

    fn intern_words(&mut self, words: &[i64], ids: &mut Vec<u32>) {
        let mut tags = [0u32; BLOCK];
        for block in words.chunks(BLOCK) {
            for (tag_of, word) in tags.iter_mut().zip(block) {
                *tag_of = tag(hash_word(*word as u64));
            }
            self.slots.touch(tags[..block.len()].iter().copied(), |id| self.keys.get(id).copied().unwrap_or(0) as u64);
            ids.extend(block.iter().zip(&tags).map(|(word, tag)| self.intern_word(*word, *tag)));
        }
    }

    fn intern_nullable(&mut self, words: &[i64], nulls: &NullBuffer, ids: &mut Vec<u32>) {
        for (row, word) in words.iter().enumerate() {
            let id = if nulls.is_valid(row) { self.intern_word(*word, tag(hash_word(*word as u64))) } else { self.intern_null() };
            ids.push(id);
        }
    }

    #[inline]
    fn intern_word(&mut self, word: i64, tag: u32) -> u32 {
        let null_id = self.null_id;
        match self.slots.probe(tag, |id| self.keys[id as usize] == word && Some(id) != null_id) {
            Probe::Found(id) => id,
            Probe::Empty(place) => {
                let id = self.keys.len() as u32;
                self.slots.occupy(place, tag, id);
                self.keys.push(word);
                id
            }
        }
    }

    fn intern_null(&mut self) -> u32 {
        *self.null_id.get_or_insert_with(|| {
            self.keys.push(0);
            self.keys.len() as u32 - 1
        })
    }

    pub(super) fn keys(&self, rows: Rows<'_>) -> ArrayRef {
        let nulls = self.null_id.and_then(|null_id| {
            let valid = rows.map(|id| id as u32 != null_id);
            valid.contains(&false).then(|| NullBuffer::from(valid))
        });
        fixed::from_ordered(rows.gather(&self.keys), nulls, &self.data_type)
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.slots.clear();
        self.null_id = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<i64>() + self.slots.memory_bytes()
    }
}
