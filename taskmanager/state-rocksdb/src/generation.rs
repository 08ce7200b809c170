//! Changes of one state on their way into the database: encoded as they come, put in order when the generation ends.

use std::sync::Arc;

use levada_state::cold::{Addresses, Change};
use levada_state::row_codec::{LayoutError, RowBytes};

use crate::database::Family;

/// Rows that are read ahead: in the order of their keys each is a miss of the caches, and so they overlap.
const TOUCHED_ROWS: usize = 64;

/// What is done with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// The entry has the value of this number.
    Put(u32),
    /// The entry is gone.
    Delete,
    /// Everything that begins with the key is gone, as far as it came before.
    Clear,
}

/// Where what a generation comes to is written, in the order of the keys.
pub trait Sink {
    /// Why it fails.
    type Error;
    /// An entry.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    /// An entry that is gone.
    fn delete(&mut self, key: &[u8]) -> Result<(), Self::Error>;
}

/// Changes of one state that are not written.
#[derive(Debug)]
pub struct Generation {
    family: Arc<Family>,
    keys: RowBytes,
    values: RowBytes,
    ops: Vec<Op>,
}

impl Generation {
    /// Without changes.
    pub fn new(family: Arc<Family>) -> Self {
        Self { family, keys: RowBytes::new(), values: RowBytes::new(), ops: Vec::new() }
    }

    /// The state.
    pub fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes of what is to be written.
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.values.bytes()
    }

    /// Forgets all changes and keeps the memory, but not that of an uncommonly large generation.
    pub fn clear(&mut self) {
        if self.keys.memory_bytes() + self.values.memory_bytes() > 256 << 20 {
            (self.keys, self.values, self.ops) = (RowBytes::new(), RowBytes::new(), Vec::new());
        }
        self.keys.clear();
        self.values.clear();
        self.ops.clear();
    }

    /// The addresses in `change` that mean everything below them, whose entries in the database must be deleted by `delete`
    /// before the change is added.
    pub fn clears(&self, change: &Change) -> Result<Option<RowBytes>, LayoutError> {
        let Some(deletes) = change.deletes.as_ref().filter(|deletes| self.is_clear(deletes)) else { return Ok(None) };
        let mut prefixes = RowBytes::new();
        self.family.layout.write_keys(deletes, &mut prefixes, &mut Vec::new())?;
        Ok(Some(prefixes))
    }

    fn is_clear(&self, deletes: &Addresses) -> bool {
        self.family.layout.has_below() && deletes.below.is_empty()
    }

    /// Adds the deletion of one entry.
    pub fn delete(&mut self, key: &[u8]) {
        self.keys.push(key);
        self.ops.push(Op::Delete);
    }

    /// Adds a change.
    pub fn add(&mut self, change: &Change) -> Result<(), LayoutError> {
        if let Some(deletes) = &change.deletes {
            self.family.layout.write_keys(deletes, &mut self.keys, &mut Vec::new())?;
            self.ops.resize(self.keys.len(), if self.is_clear(deletes) { Op::Clear } else { Op::Delete });
        }
        if let Some(upserts) = &change.upserts {
            let first = self.values.len() as u32;
            self.family.layout.write(upserts, &mut self.keys, &mut self.values)?;
            self.ops.extend((first..self.values.len() as u32).map(Op::Put));
        }
        Ok(())
    }

    /// Writes what all changes come to, each entry once, in the order of their keys.
    pub fn write<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let rows = self.keys.in_order();
        // The last prefix that was cleared, and by which change. Prefixes are not each other's, and stand before what they clear.
        let mut cleared: Option<(&[u8], u32)> = None;
        let (mut rest, mut touched) = (&rows[..], 0);
        while let Some(first) = rest.first() {
            let at = rows.len() - rest.len();
            if at >= touched {
                touched = rows.len().min(at + TOUCHED_ROWS);
                self.touch(&rows[at..touched]);
            }
            let key = self.keys.get(*first as usize);
            let same = rest.iter().take_while(|row| self.keys.get(**row as usize) == key).count();
            let (of_key, after) = rest.split_at(same);
            rest = after;
            let last = |clear: bool| of_key.iter().rev().copied().find(|row| (self.op(*row) == Op::Clear) == clear);
            if let Some(row) = last(true) {
                cleared = Some((key, row));
            }
            let Some(row) = last(false) else { continue };
            let is_cleared = cleared.is_some_and(|(prefix, by)| by > row && key.starts_with(prefix));
            match self.op(row) {
                Op::Put(value) if !is_cleared => sink.put(key, self.values.get(value as usize))?,
                _ => sink.delete(key)?,
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn touch(&self, rows: &[u32]) {
        let ends = |bytes: &[u8]| u32::from(bytes.first().copied().unwrap_or(0)) + u32::from(bytes.last().copied().unwrap_or(0));
        let read = rows.iter().map(|row| {
            let of_value = match self.op(*row) {
                Op::Put(value) => ends(self.values.get(value as usize)),
                Op::Delete | Op::Clear => 0,
            };
            ends(self.keys.get(*row as usize)) + of_value
        });
        std::hint::black_box(read.sum::<u32>());
    }

    fn op(&self, row: u32) -> Op {
        self.ops[row as usize]
    }
}
