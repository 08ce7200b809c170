//! A batch of rows as parts of sessions: what of a key's rows is in one session is one part, with accumulators of its own.
//!
//! One pass where the rows of each key, as they come, hold one session open; a sort of those keys' rows only for which it is not so.
//! Keeps nothing from one batch to the next but memory. Must never know the sessions that are open.

use arrow::array::ArrayRef;
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;

use super::super::shape::Shape;
use super::rows::SessionRows;
use super::source::Bounds;
use crate::aggregate::{AggregateSet, Groups};
use crate::error::EngineError;

/// No part.
const NONE: u32 = u32::MAX;

/// The part of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Its key, by number in the batch.
    pub(super) key: u32,
    /// Its first time.
    pub(super) start: i64,
    /// The time up to which it holds the session open.
    pub(super) end: i64,
}

/// Turns batches into parts.
#[derive(Debug)]
pub(super) struct Collapse {
    keys: KeyIndex,
    set: AggregateSet,
    parts: Vec<Part>,
    /// Parts by key and start.
    order: Vec<u32>,
    /// By row: its key, and once the batch is taken its part.
    ids: Vec<u32>,
    /// By key: whether its rows may be in several sessions.
    scattered: Vec<bool>,
}

impl Collapse {
    /// For batches of this aggregation.
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            keys: KeyIndex::new(&shape.key_types),
            set: shape.plan.accumulators(),
            parts: Vec::new(),
            order: Vec::new(),
            ids: Vec::new(),
            scattered: Vec::new(),
        }
    }

    /// The parts of the batch, in order of first appearance.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parts by number, those of a key next to each other and by start.
    pub(super) fn by_key(&self) -> &[u32] {
        &self.order
    }

    /// The part of each row.
    pub(super) fn of_rows(&self) -> &[u32] {
        &self.ids
    }

    /// The keys of the batch, by number.
    pub(super) fn keys(&self) -> Vec<ArrayRef> {
        self.keys.keys(Rows::first(self.keys.len()))
    }

    /// Number of keys.
    pub(super) fn keys_len(&self) -> usize {
        self.keys.len()
    }

    /// The states of these parts.
    pub(super) fn states(&self, parts: Rows<'_>) -> Vec<ArrayRef> {
        self.set.states(parts)
    }

    /// The key columns of the parts.
    pub(super) fn part_keys(&self) -> Vec<ArrayRef> {
        let keys: Vec<u32> = self.parts.iter().map(|part| part.key).collect();
        self.keys.keys(Rows::Ids(&keys))
    }

    /// Takes a batch, at least one row, in place of the last one. A row joins what it touches: sessions `[0, 10)` and `[10, 20)`
    /// are one.
    pub(super) fn take(&mut self, shape: &Shape, rows: &SessionRows) -> Result<(), EngineError> {
        self.intern(&rows.keys, rows.len());
        let Bounds { starts, ends } = &rows.bounds;
        if self.join_in_order(starts, ends) {
            self.sort_scattered(starts, ends);
            self.number_by_appearance();
        }
        self.take_in(shape, &rows.inputs)
    }

    /// As `take`, each row a part of its own.
    pub(super) fn take_each(&mut self, shape: &Shape, rows: &SessionRows) -> Result<(), EngineError> {
        self.intern(&rows.keys, rows.len());
        let Bounds { starts, ends } = &rows.bounds;
        let parts = self.ids.iter().zip(starts.iter().zip(ends));
        self.parts = parts.map(|(key, (start, end))| Part { key: *key, start: *start, end: *end }).collect();
        self.ids = (0..rows.len() as u32).collect();
        self.sort_parts();
        self.take_in(shape, &rows.inputs)
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize) {
        self.keys.clear();
        self.set.clear();
        self.ids.clear();
        self.keys.intern(keys, rows, &mut self.ids);
    }

    /// One part a key, over all rows that touch what came of the key before; answers whether there are others.
    fn join_in_order(&mut self, starts: &[i64], ends: &[i64]) -> bool {
        let keys = self.keys.len();
        self.parts.clear();
        self.parts.extend((0..keys as u32).map(|key| Part { key, start: i64::MAX, end: i64::MIN }));
        self.order.clear();
        self.order.extend(0..keys as u32);
        self.scattered.clear();
        self.scattered.resize(keys, false);
        let mut any_scattered = false;
        for (key, (start, end)) in self.ids.iter().zip(starts.iter().zip(ends)) {
            let part = &mut self.parts[*key as usize];
            if (*start <= part.end && *end >= part.start) || part.end == i64::MIN {
                part.start = part.start.min(*start);
                part.end = part.end.max(*end);
            } else {
                self.scattered[*key as usize] = true;
                any_scattered = true;
            }
        }
        any_scattered
    }

    /// Makes the parts of the scattered keys anew: a key's first stands at the key's number, others at the end.
    fn sort_scattered(&mut self, starts: &[i64], ends: &[i64]) {
        let rows = self.ids.iter().enumerate().filter(|(_, key)| self.scattered[**key as usize]);
        let mut rows: Vec<(u32, i64, i64, u32)> = rows.map(|(row, key)| (*key, starts[row], ends[row], row as u32)).collect();
        rows.sort_unstable();
        let mut last: Option<u32> = None;
        for (key, start, end, row) in rows {
            let before = last.filter(|last| self.parts[*last as usize].key == key);
            let id = match before {
                Some(id) if start <= self.parts[id as usize].end => {
                    let part = &mut self.parts[id as usize];
                    part.end = part.end.max(end);
                    id
                }
                Some(_) => {
                    self.parts.push(Part { key, start, end });
                    self.parts.len() as u32 - 1
                }
                None => {
                    self.parts[key as usize] = Part { key, start, end };
                    key
                }
            };
            self.ids[row as usize] = id;
            last = Some(id);
        }
    }

    /// Numbers the parts in the order in which rows come, as accumulators need it.
    fn number_by_appearance(&mut self) {
        let mut numbers = vec![NONE; self.parts.len()];
        let mut parts = Vec::with_capacity(self.parts.len());
        for id in &mut self.ids {
            let number = &mut numbers[*id as usize];
            if *number == NONE {
                *number = parts.len() as u32;
                parts.push(self.parts[*id as usize]);
            }
            *id = *number;
        }
        self.parts = parts;
        self.sort_parts();
    }

    fn sort_parts(&mut self) {
        self.order.clear();
        self.order.extend(0..self.parts.len() as u32);
        let parts = &self.parts;
        self.order.sort_by_key(|part| (parts[*part as usize].key, parts[*part as usize].start));
    }

    /// Makes each of these parts one with another, which came before it: it has no rows of its own then.
    pub(super) fn unite(&mut self, shape: &Shape, parts: &[(u32, u32)], rows: &SessionRows) -> Result<(), EngineError> {
        let mut of_part: Vec<u32> = (0..self.parts.len() as u32).collect();
        parts.iter().for_each(|(part, into)| of_part[*part as usize] = *into);
        self.ids.iter_mut().for_each(|id| *id = of_part[*id as usize]);
        self.set.clear();
        self.take_in(shape, &rows.inputs)
    }

    fn take_in(&mut self, shape: &Shape, inputs: &[ArrayRef]) -> Result<(), EngineError> {
        self.set.resize(self.parts.len());
        let (keys, parts) = (&self.keys, &self.parts);
        self.set
            .take_in(Groups::Each(&self.ids), inputs)
            .map_err(|overflow| shape.overflow(&overflow, &keys.keys(Rows::Ids(&[parts[overflow.group].key]))))
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.set.memory_bytes() + self.parts.capacity() * size_of::<Part>()
    }
}
