//! The rows of both sides and their keys: as one to a store.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use levada_state::key_index::KeyIndex;

use super::super::shape::Shape;
use super::side::Standing;
use crate::error::EngineError;
use crate::operators::rows::{HeapParts, HeapsByKey, Held, KeyedRowStore, Taken};

/// Both sides.
pub(super) struct Sides {
    shape: Arc<Shape>,
    /// The keys of both.
    index: KeyIndex,
    pub(super) sides: [Standing; 2],
}

impl Sides {
    pub(super) fn new(shape: &Arc<Shape>, ttl_ms: Option<i64>) -> Self {
        let index = KeyIndex::new(&shape.sides[0].key_types);
        let sides = [0, 1].map(|side: usize| Standing::new(&shape.sides[side], ttl_ms));
        Self { shape: Arc::clone(shape), index, sides }
    }

    /// The keys of rows, made where they are new; `columns` are those of the keys.
    pub(super) fn intern(&mut self, columns: &[ArrayRef], rows: usize) -> Vec<u32> {
        let mut keys = Vec::with_capacity(rows);
        self.index.intern(columns, rows, &mut keys);
        self.index.drain_reused(&mut Vec::new());
        self.resize();
        keys
    }

    /// Number of keys that were made.
    pub(super) fn keys(&self) -> usize {
        self.index.len()
    }

    /// Gives back what rows that are gone held, and keys without rows; a store takes care of those by itself.
    pub(super) fn tidy(&mut self, store: Option<&mut KeyedRowStore>) -> Result<(), EngineError> {
        let mut emptied = Vec::new();
        for side in &mut self.sides {
            side.tidy().map_err(|source| self.shape.kernel(source))?;
            emptied.append(&mut side.take_emptied());
        }
        self.forget_emptied(emptied, store);
        Ok(())
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.sides.iter().map(|side| side.heap.len()).sum()
    }

    /// Bytes that each side holds.
    pub(super) fn bytes(&self) -> [usize; 2] {
        [0, 1].map(|side: usize| self.sides[side].memory_bytes() + self.index.memory_bytes() / 2)
    }
}

impl HeapsByKey for Sides {
    fn index(&mut self) -> &mut KeyIndex {
        &mut self.index
    }

    fn known_keys(&self) -> &KeyIndex {
        &self.index
    }

    fn resize(&mut self) {
        for side in &mut self.sides {
            side.lists.resize(self.index.len(), side.heap.numbers());
        }
    }

    fn heaps(&self) -> usize {
        self.sides.len()
    }

    fn heap(&mut self, at: usize) -> HeapParts<'_> {
        self.sides[at].parts()
    }

    fn take_in(&mut self, at: usize, taken: Taken) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.shape);
        self.sides[at].take_in(&shape.sides[at], taken).map_err(|source| shape.kernel(source))
    }

    fn has_rows(&self, key: u32) -> bool {
        self.sides.iter().any(|side| side.lists.len(key) > 0)
    }

    fn forget_rows(&mut self, key: u32) {
        self.sides.iter_mut().for_each(|side| side.forget_rows(key));
    }

    fn kernel(&self, source: ArrowError) -> EngineError {
        self.shape.kernel(source)
    }

    fn held_bytes(&self) -> Held {
        let (keys, live) = (self.index.len(), self.index.live());
        let idle_keys = self.index.memory_bytes() / keys.max(1) * (keys - live);
        let idle: usize = self.sides.iter().map(|side| side.idle_bytes(live)).sum();
        Held { bytes: self.bytes().iter().sum(), idle_bytes: idle + idle_keys }
    }
}
