//! The rows of one side that stand: a heap, their lists by key, and, on a changelog, which row stands for each unique key.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::error::ArrowError;
use levada_common::ids::CheckpointId;
use levada_state::key_index::KeyIndex;
use levada_state::snapshot::StatePart;

use super::changes::What;
use crate::operators::rows::{Marks, NO_ROW, RowHeap, RowLists, Saving, Sweep};
use crate::operators::waiting::Side;

/// The rows of one side.
pub(super) struct Standing {
    pub(super) heap: RowHeap,
    pub(super) lists: RowLists,
    /// Rows that went out without one of the other side, and were not taken back.
    pub(super) alone: Marks,
    saves_alone: bool,
    /// On a changelog.
    unique: Option<Unique>,
    /// Where rows have a time to live; then their last column says since when they stand.
    sweep: Option<Sweep>,
    saving: Saving,
    /// Keys that may have no row on this side any more.
    emptied: Vec<u32>,
}

/// Which row stands for each unique key.
struct Unique {
    index: KeyIndex,
    /// By unique key.
    rows: Vec<u32>,
    /// By row.
    keys: Vec<u32>,
    /// Unique keys that may have no row any more.
    emptied: Vec<u32>,
}

impl Standing {
    pub(super) fn new(side: &Side, ttl_ms: Option<i64>) -> Self {
        let unique = side.unique_types().map(|types| Unique {
            index: KeyIndex::new(&types),
            rows: Vec::new(),
            keys: Vec::new(),
            emptied: Vec::new(),
        });
        let (heap, lists, saving) = (RowHeap::default(), RowLists::default(), Saving::default());
        let (alone, saves_alone) = (Marks::default(), side.saves_marks);
        Self { heap, lists, alone, saves_alone, unique, sweep: ttl_ms.map(Sweep::new), saving, emptied: Vec::new() }
    }

    /// Appends rows to the heap, standing since now, and their numbers to `numbers`.
    pub(super) fn push(&mut self, mut columns: Vec<ArrayRef>, numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        if let Some(sweep) = &self.sweep {
            columns.push(Arc::new(TimestampMillisecondArray::from(vec![sweep.now_ms(); columns[0].len()])));
        }
        self.restore(&columns, numbers)
    }

    /// Appends rows to the heap that say since when they stand, where that matters.
    pub(super) fn restore(&mut self, columns: &[ArrayRef], numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        self.heap.push(columns, numbers)?;
        self.alone.resize(self.heap.numbers());
        numbers.iter().for_each(|row| self.alone.clear(*row));
        if let Some(unique) = &mut self.unique {
            unique.keys.resize(self.heap.numbers(), 0);
        }
        Ok(())
    }

    /// The unique keys of rows, made where they are new.
    pub(super) fn uniques(&mut self, columns: &[ArrayRef], rows: usize, uniques: &mut Vec<u32>) {
        if let Some(unique) = &mut self.unique {
            unique.index.intern(columns, rows, uniques);
            unique.index.drain_reused(&mut Vec::new());
            unique.rows.resize(unique.index.len().max(unique.rows.len()), NO_ROW);
        }
    }

    /// The row that stands for a unique key.
    pub(super) fn of_unique(&self, unique: u32) -> u32 {
        self.unique.as_ref().map_or(NO_ROW, |all| all.rows[unique as usize])
    }

    /// A row comes, in the place of `standing` where there is one.
    pub(super) fn stand(&mut self, key: u32, meets: bool, unique: Option<u32>, standing: u32, row: u32) -> What {
        if let (Some(all), Some(unique)) = (&mut self.unique, unique) {
            all.rows[unique as usize] = row;
            all.keys[row as usize] = unique;
        }
        let is_first = self.lists.len(key) == 0;
        if standing != NO_ROW {
            self.lists.remove(standing);
            self.heap.remove(standing);
        }
        if meets || unique.is_some() {
            self.lists.insert(key, NO_ROW, row);
        } else {
            // No one meets it, and nothing takes it back.
            self.heap.remove(row);
            self.emptied.push(key);
        }
        match standing {
            NO_ROW => What::Insert { row, is_first },
            before => What::Update { before, after: row },
        }
    }

    /// A row that stands goes.
    pub(super) fn fall(&mut self, row: u32) -> What {
        let key = self.lists.key(row);
        self.lists.remove(row);
        self.heap.remove(row);
        if let Some(all) = &mut self.unique {
            let unique = all.keys[row as usize];
            all.rows[unique as usize] = NO_ROW;
            all.emptied.push(unique);
        }
        self.emptied.push(key);
        What::Delete { row, was_last: self.lists.len(key) == 0 }
    }

    /// Keys were made and may have no row.
    pub(super) fn note_emptied(&mut self, key: u32, unique: Option<u32>) {
        self.emptied.push(key);
        if let (Some(all), Some(unique)) = (&mut self.unique, unique) {
            all.emptied.push(unique);
        }
    }

    /// Keys that may have no row on this side any more, since the last call.
    pub(super) fn take_emptied(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.emptied)
    }

    /// Lets the rows go whose time to live is over, of the next blocks in turn. Answers when to be called again.
    pub(super) fn expire(&mut self, time_ms: i64) -> Option<i64> {
        let sweep = self.sweep.as_mut()?;
        let over = sweep.over(time_ms, &self.heap);
        let next = sweep.next_tick();
        for row in over {
            self.fall(row);
        }
        Some(next)
    }

    /// Whether its rows have a time to live.
    pub(super) fn expires(&self) -> bool {
        self.sweep.is_some()
    }

    /// The synchronous part of a snapshot.
    pub(super) fn snapshot(&mut self, checkpoint: CheckpointId, side: &Side) -> StatePart {
        let places: Vec<usize> = side.saved.iter().copied().chain(self.sweep.as_ref().map(|_| side.saved.len())).collect();
        let reader = self.saving.begin(checkpoint, &self.heap, self.saves_alone.then_some(&self.alone), &side.pieces, &places);
        self.saving.advance();
        StatePart { meta: side.state.clone(), contents: reader.into() }
    }

    /// Sends a further piece of a snapshot; answers whether more remain.
    pub(super) fn save_next(&mut self) -> bool {
        self.saving.advance()
    }

    /// Gives a snapshot up.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.saving.abandon(checkpoint);
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let unique = self
            .unique
            .as_ref()
            .map_or(0, |all| all.index.memory_bytes() + (all.rows.capacity() + all.keys.capacity()) * size_of::<u32>());
        self.heap.memory_bytes() + self.lists.memory_bytes() + unique
    }

    /// Gives back what rows that are gone held.
    ///
    /// Contract: nothing refers to them any more.
    pub(super) fn tidy(&mut self) -> Result<(), ArrowError> {
        if let Some(moved) = self.heap.tidy()? {
            self.lists.resize(0, self.heap.numbers());
            for (before, now) in moved.before.into_iter().zip(moved.now) {
                self.lists.renumber(before, now);
                self.alone.resize(self.heap.numbers());
                self.alone.clear(now);
                if self.alone.has(before) {
                    self.alone.set(now);
                }
                if let Some(all) = &mut self.unique {
                    all.keys.resize(self.heap.numbers(), 0);
                    let unique = all.keys[before as usize];
                    all.keys[now as usize] = unique;
                    all.rows[unique as usize] = now;
                }
            }
        }
        if let Some(all) = &mut self.unique {
            all.emptied.sort_unstable();
            all.emptied.dedup();
            for unique in std::mem::take(&mut all.emptied) {
                if all.rows[unique as usize] == NO_ROW {
                    all.index.remove(unique);
                }
            }
        }
        Ok(())
    }
}
