//! The rows of one side that stand: a heap, their lists by key, and, on a changelog, which row stands for each unique key.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, TimestampMillisecondArray};
use arrow::compute::filter;
use arrow::error::ArrowError;
use levada_common::ids::CheckpointId;
use levada_state::key_index::KeyIndex;
use levada_state::snapshot::StatePart;

use super::changes::What;
use crate::error::EngineError;
use crate::operators::rows::{
    EntryPlaces, HeapParts, KeyedRowStore, Marks, NO_ROW, RowHeap, RowLists, Saving, StoredRows, Sweep, Taken,
};
use crate::operators::waiting::Side;

/// The rows of one side.
pub(super) struct Standing {
    pub(super) heap: RowHeap,
    pub(super) lists: RowLists,
    /// Rows that went out without one of the other side, and were not taken back.
    alone: Marks,
    saves_alone: bool,
    /// On a changelog.
    unique: Option<Unique>,
    /// Where rows have a time to live; then their last column says since when they stand.
    sweep: Option<Sweep>,
    saving: Saving,
    /// What the store has of the rows, where there is one; then they have a column of numbers before that.
    stored: Option<StoredRows>,
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
        let (sweep, stored) = (ttl_ms.map(Sweep::new), None);
        Self { heap, lists, alone, saves_alone, unique, sweep, saving, stored, emptied: Vec::new() }
    }

    /// Stands in front of a store from now on; what has no stamp there and needs one stands since `since_ms`.
    pub(super) fn stand_before(&mut self, store: &mut KeyedRowStore, side: &Side, since_ms: i64) -> Result<(), EngineError> {
        let (keys, others) = side.saved.split_at(side.key_types.len());
        let number = side.input.fields().len();
        let since = self.sweep.as_ref().map(|_| number + 1);
        let values = others.iter().copied().map(Some).chain(self.saves_alone.then_some(None)).collect();
        let (keys, width) = (keys.to_vec(), number + 1 + usize::from(since.is_some()));
        let places = EntryPlaces { keys, window: None, values, number, since, width };
        self.stored = Some(store.open_rows(&side.state, places, since_ms)?);
        self.heap.stand_before_store();
        Ok(())
    }

    /// Appends rows to the heap, standing since now, and their numbers to `numbers`.
    pub(super) fn push(&mut self, columns: Vec<ArrayRef>, numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        let rows = columns[0].len();
        let now = |sweep: &Sweep| Arc::new(TimestampMillisecondArray::from(vec![sweep.now_ms(); rows])) as ArrayRef;
        let since = self.sweep.as_ref().map(now);
        self.restore(columns, since, numbers)
    }

    /// Appends rows to the heap that stand since then, where that matters.
    pub(super) fn restore(
        &mut self,
        mut columns: Vec<ArrayRef>,
        since: Option<ArrayRef>,
        numbers: &mut Vec<u32>,
    ) -> Result<(), ArrowError> {
        let rows = columns[0].len();
        columns.extend(self.stored.as_mut().map(|stored| stored.numbers(rows)));
        columns.extend(since);
        self.append(&columns, numbers)?;
        if let Some(stored) = &mut self.stored {
            stored.came(numbers);
        }
        Ok(())
    }

    fn append(&mut self, columns: &[ArrayRef], numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        self.heap.push(columns, numbers)?;
        self.lists.resize(0, self.heap.numbers());
        self.alone.resize(self.heap.numbers());
        numbers.iter().for_each(|row| self.alone.clear(*row));
        if let Some(unique) = &mut self.unique {
            unique.keys.resize(self.heap.numbers(), 0);
        }
        Ok(())
    }

    /// Puts rows in that the store has, but for those whose time to live is over.
    pub(super) fn take_in(&mut self, side: &Side, taken: Taken) -> Result<(), ArrowError> {
        let Taken { mut keys, columns, mut marks } = taken;
        let mut columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
        let living = self.sweep.as_ref().and_then(|sweep| sweep.living(columns.last().expect("rows have columns")));
        if let Some(living) = living {
            columns = columns.iter().map(|column| filter(column, &living)).collect::<Result<_, _>>()?;
            marks = marks.map(|marks| filter(&marks, &living)).transpose()?.map(|marks| marks.as_boolean().clone());
            let mut lives = living.values().iter();
            keys.retain(|_| lives.next().unwrap_or(false));
        }
        if keys.is_empty() {
            return Ok(());
        }
        let (mut numbers, mut uniques) = (Vec::with_capacity(keys.len()), Vec::new());
        self.append(&columns, &mut numbers)?;
        if let Some(stored) = &mut self.stored {
            stored.is_there(&numbers);
        }
        if let Some(columns) = side.unique_keys(&columns) {
            self.uniques(&columns, keys.len(), &mut uniques);
        }
        self.stand_all(&keys, &uniques, &numbers, marks.as_ref());
        Ok(())
    }

    /// Rows that are in the heap stand, one after the other; `marks` says which are alone.
    pub(super) fn stand_all(&mut self, keys: &[u32], uniques: &[u32], numbers: &[u32], marks: Option<&BooleanArray>) {
        for (at, number) in numbers.iter().enumerate() {
            let unique = uniques.get(at).copied();
            let standing = unique.map_or(NO_ROW, |unique| self.of_unique(unique));
            self.stand(keys[at], true, unique, standing, *number);
            if marks.is_some_and(|marks| marks.value(at)) {
                self.alone.set(*number);
            }
        }
    }

    /// Takes all rows of a key out of memory; the store has them.
    pub(super) fn forget_rows(&mut self, key: u32) {
        let mut row = self.lists.first(key);
        while row != NO_ROW {
            let next = self.lists.after(row);
            self.lists.remove(row);
            self.heap.remove(row);
            if let Some(stored) = &mut self.stored {
                stored.forgot(row);
            }
            if let Some(all) = &mut self.unique {
                let unique = all.keys[row as usize];
                all.rows[unique as usize] = NO_ROW;
                all.index.remove(unique);
            }
            row = next;
        }
    }

    /// What a store sees.
    ///
    /// Contract: it stands before one.
    pub(super) fn parts(&mut self) -> HeapParts<'_> {
        let stored = self.stored.as_mut().expect("a side is asked for after it was put before a store");
        HeapParts { stored, heap: &self.heap, marks: self.saves_alone.then_some(&self.alone) }
    }

    /// Whether a row went out alone.
    pub(super) fn is_alone(&self, row: u32) -> bool {
        self.alone.has(row)
    }

    /// A row goes out alone; whether it did not before.
    pub(super) fn set_alone(&mut self, row: u32) -> bool {
        let is_new = self.alone.set(row);
        if is_new {
            self.note_mark(row);
        }
        is_new
    }

    /// A row that went out alone is taken back; whether there was one.
    pub(super) fn clear_alone(&mut self, row: u32) -> bool {
        let was_alone = self.alone.has(row);
        if was_alone {
            self.alone.clear(row);
            self.note_mark(row);
        }
        was_alone
    }

    fn note_mark(&mut self, row: u32) {
        if let Some(stored) = self.stored.as_mut().filter(|_| self.saves_alone && self.heap.has(row)) {
            stored.marked(row);
        }
    }

    /// A row leaves the heap, of which the store is told.
    fn remove(&mut self, row: u32) {
        self.heap.remove(row);
        if let Some(stored) = &mut self.stored {
            stored.went(row);
        }
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
            self.remove(standing);
        }
        if meets || unique.is_some() {
            self.lists.insert(key, NO_ROW, row);
        } else {
            // No one meets it, and nothing takes it back.
            self.remove(row);
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
        self.remove(row);
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
            if let Some(stored) = self.stored.as_mut().filter(|_| !Sweep::is_unknown(&self.heap, row)) {
                // The store lets it expire by itself.
                stored.forgot(row);
            }
            self.fall(row);
        }
        Some(next)
    }

    /// Up to when rows have lived their time, where they have one and it was told the time.
    pub(super) fn expired_until(&self) -> Option<i64> {
        self.sweep.as_ref().and_then(Sweep::expired_until)
    }

    /// Whether its rows have a time to live.
    pub(super) fn expires(&self) -> bool {
        self.sweep.is_some()
    }

    /// The synchronous part of a snapshot.
    pub(super) fn snapshot(&mut self, checkpoint: CheckpointId, side: &Side) -> StatePart {
        let since = self.sweep.as_ref().map(|_| side.input.fields().len());
        let places: Vec<usize> = side.saved.iter().copied().chain(since).collect();
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
        let stored = self.stored.as_ref().map_or(0, StoredRows::memory_bytes);
        self.heap.memory_bytes() + self.lists.memory_bytes() + self.alone.memory_bytes() + unique + stored
    }

    /// Bytes among these that are free for rows to come, where so many keys are there.
    pub(super) fn idle_bytes(&self, keys: usize) -> usize {
        let rows = self.heap.len();
        let free = self.heap.numbers().saturating_sub(rows);
        let of_unique = |all: &Unique| {
            let free_keys = all.index.len() - all.index.live();
            all.index.memory_bytes() / all.index.len().max(1) * free_keys + (free_keys + free) * size_of::<u32>()
        };
        self.heap.idle_bytes() + self.lists.idle_bytes(rows, keys) + self.unique.as_ref().map_or(0, of_unique)
    }

    /// Gives back what rows that are gone held.
    ///
    /// Contract: nothing refers to them any more.
    pub(super) fn tidy(&mut self) -> Result<(), ArrowError> {
        if let Some(stored) = self.stored.as_mut().filter(|_| self.heap.is_untidy()) {
            stored.collect(&self.heap)?;
        }
        if let Some(moved) = self.heap.tidy()? {
            self.lists.resize(0, self.heap.numbers());
            for (before, now) in moved.before.into_iter().zip(moved.now) {
                self.lists.renumber(before, now);
                if let Some(stored) = &mut self.stored {
                    stored.moved(before, now);
                }
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
