//! The chunks of rows that windows still to come are made of: a list per group, the oldest first, and their accumulators.
//!
//! A chunk whose number is used again gets its state whole. Must never know where rows come from.

mod saving;
mod stored;

use std::collections::VecDeque;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_state::freeze::FrozenRows;
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;

use super::super::shape::Shape;
use super::super::value_sets::{Owner, ValueSets};
use super::Lengths;
use crate::aggregate::{AggregateSet, Groups};
use crate::error::EngineError;
use crate::operators::rows::KeyedRowStore;
use saving::Saving;
use stored::StoredChunks;

pub(super) use stored::ChunksOf;

/// No chunk, no part.
const NONE: u32 = u32::MAX;

/// No part yet of a chunk that begins with the group's next row.
const NEXT: u32 = u32::MAX - 1;

/// States that are merged at once where windows are made of several chunks.
const MERGED_MAX: usize = 65_536;

/// A chunk of a group's rows, or the place of one that is no more.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    group: u32,
    /// The group's next chunk.
    newer: u32,
    /// Its place among all chunks of the group, which never changes.
    number: i64,
    /// Rows in it.
    rows: u32,
}

/// A group: the chunks from the start of its next window on.
#[derive(Debug, Clone, Copy)]
struct Group {
    oldest: u32,
    newest: u32,
    chunks: u32,
    /// Of the batch that is taken in: the part that its next row belongs to, `NEXT`, or `NONE` before its first row.
    part: u32,
    /// Windows on their way out.
    windows: u32,
}

impl Group {
    const EMPTY: Self = Self { oldest: NONE, newest: NONE, chunks: 0, part: NONE, windows: 0 };
}

/// What one batch has of one chunk.
#[derive(Debug, Clone, Copy)]
struct Part {
    group: u32,
    rows: u32,
    /// Whether it begins a chunk.
    opens: bool,
}

/// A full window on its way out: its group, and its oldest chunk.
#[derive(Debug, Clone, Copy)]
struct FullWindow {
    group: u32,
    oldest: u32,
}

/// The chunks.
#[derive(Debug)]
pub(super) struct Chunks {
    lengths: Lengths,
    keys: KeyIndex,
    groups: Vec<Group>,
    chunks: Vec<Chunk>,
    set: AggregateSet,
    /// Numbers of chunks that are no more.
    free: Vec<u32>,
    frozen: FrozenRows,
    saving: Saving,
    /// What the store has of the chunks, where there is one.
    stored: Option<StoredChunks>,
    windows: VecDeque<FullWindow>,
    /// Their distinct values, by chunk, where values are told apart.
    values: Option<ValueSets>,
    /// A batch's parts and their states, and the chunk of each; filled anew each time.
    parts: Vec<Part>,
    part_chunks: Vec<u32>,
    part_set: AggregateSet,
    /// Windows that go out, merged.
    merged: AggregateSet,
    ids: Vec<u32>,
}

impl Chunks {
    /// Without chunks.
    pub(super) fn new(shape: &Shape, lengths: Lengths) -> Self {
        Self {
            lengths,
            keys: KeyIndex::new(&shape.key_types),
            groups: Vec::new(),
            chunks: Vec::new(),
            set: shape.plan.accumulators(),
            free: Vec::new(),
            frozen: FrozenRows::new(),
            saving: Saving::default(),
            stored: None,
            windows: VecDeque::new(),
            values: shape.sets.as_ref().map(ValueSets::new),
            parts: Vec::new(),
            part_chunks: Vec::new(),
            part_set: shape.plan.accumulators(),
            merged: shape.plan.accumulators(),
            ids: Vec::new(),
        }
    }

    /// Number of chunks.
    pub(super) fn len(&self) -> usize {
        self.chunks.len() - self.free.len()
    }

    /// Number of chunks and of their distinct values.
    pub(super) fn entries(&self) -> usize {
        self.len() + self.values.as_ref().map_or(0, ValueSets::len)
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
            + self.set.memory_bytes()
            + self.part_set.memory_bytes()
            + self.merged.memory_bytes()
            + self.frozen.memory_bytes()
            + self.groups.capacity() * size_of::<Group>()
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.values.as_ref().map_or(0, ValueSets::memory_bytes)
            + (self.free.capacity() + self.ids.capacity() + self.part_chunks.capacity()) * size_of::<u32>()
            + self.parts.capacity() * size_of::<Part>()
            + self.stored.as_ref().map_or(0, StoredChunks::memory_bytes)
    }

    /// Whether windows are full that are not out.
    pub(super) fn has_windows(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Takes a batch in, in the order of its rows.
    ///
    /// Contract: every full window is out, and everything that `store` has of the batch's keys is in memory.
    pub(super) fn take(
        &mut self,
        shape: &Shape,
        batch: &RecordBatch,
        mut store: Option<&mut KeyedRowStore>,
    ) -> Result<(), EngineError> {
        self.intern(&shape.keys(batch), batch.num_rows());
        if let Some(store) = &mut store {
            store.note_used(&self.ids, self.keys.len());
            store.note_changed(&self.ids, self.keys.len());
        }
        self.split();
        self.part_set.clear();
        self.part_set.resize(self.parts.len());
        let (index, parts) = (&self.keys, &self.parts);
        self.part_set
            .take_in(Groups::Each(&self.ids), &shape.inputs(batch))
            .map_err(|overflow| shape.overflow(&overflow, &index.keys(Rows::Ids(&[parts[overflow.group].group]))))?;
        self.place(shape, store)?;
        let Some(values) = &mut self.values else { return Ok(()) };
        let chunks: Vec<u32> = self.ids.iter().map(|part| self.part_chunks[*part as usize]).collect();
        let columns = shape.values(batch);
        let mut columns = columns.iter().enumerate();
        columns.try_for_each(|(column, of_rows)| values.add(shape, &self.keys, column, (of_rows, &chunks)))
    }

    /// Fills `ids` with the group of each row.
    fn intern(&mut self, keys: &[ArrayRef], rows: usize) {
        self.ids.clear();
        self.keys.intern(keys, rows, &mut self.ids);
        self.groups.resize(self.keys.len(), Group::EMPTY);
        // A group is empty when its key is forgotten.
        self.keys.drain_reused(&mut Vec::new());
    }

    /// Cuts the batch into parts of chunks: `ids`, the group of each row, becomes its part.
    fn split(&mut self) {
        self.parts.clear();
        let chunk_rows = self.lengths.chunk_rows;
        for id in &mut self.ids {
            let group = &mut self.groups[*id as usize];
            if group.part >= NEXT {
                let newest = self.chunks.get(group.newest as usize).filter(|chunk| group.part == NONE && chunk.rows < chunk_rows);
                self.parts.push(Part { group: *id, rows: newest.map_or(0, |chunk| chunk.rows), opens: newest.is_none() });
                group.part = self.parts.len() as u32 - 1;
            }
            let part = &mut self.parts[group.part as usize];
            part.rows += 1;
            *id = group.part;
            if part.rows == chunk_rows {
                group.part = NEXT;
            }
        }
        for part in &self.parts {
            self.groups[part.group as usize].part = NONE;
        }
    }

    /// Puts the parts into chunks, and notes the windows that are full by it.
    fn place(&mut self, shape: &Shape, store: Option<&mut KeyedRowStore>) -> Result<(), EngineError> {
        let (mut opened, mut joined) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        self.part_chunks.clear();
        for at in 0..self.parts.len() {
            let part = self.parts[at];
            let (chunk, (chunks, parts)) = match part.opens {
                true => (self.open(part), &mut opened),
                false => (self.groups[part.group as usize].newest, &mut joined),
            };
            chunks.push(chunk);
            parts.push(at as u32);
            self.part_chunks.push(chunk);
            if !part.opens {
                self.saving.touch(&mut self.frozen, chunk, self.chunks[chunk as usize]);
                self.chunks[chunk as usize].rows = part.rows;
            }
            self.stored.iter_mut().for_each(|stored| stored.changed(chunk));
            if part.rows == self.lengths.chunk_rows {
                self.fill_window(part.group);
            }
        }
        self.send_unsaved(shape, store)?;
        self.set.resize(self.chunks.len());
        self.frozen.resize(self.chunks.len());
        let Self { set, part_set, keys, chunks, .. } = self;
        if !opened.0.is_empty() {
            set.assign(&opened.0, &part_set.states(Rows::Ids(&opened.1)));
        }
        if !joined.0.is_empty() {
            let key = |chunk: usize| keys.keys(Rows::Ids(&[chunks[chunk].group]));
            let merged = set.merge(Groups::Each(&joined.0), &part_set.states(Rows::Ids(&joined.1)));
            merged.map_err(|overflow| shape.overflow(&overflow, &key(overflow.group)))?;
        }
        Ok(())
    }

    /// Begins a chunk behind those of its group.
    fn open(&mut self, part: Part) -> u32 {
        let newest = self.groups[part.group as usize].newest;
        let number = self.chunks.get(newest as usize).map_or(0, |chunk| chunk.number + 1);
        self.append(Chunk { group: part.group, newer: NONE, number, rows: part.rows })
    }

    fn append(&mut self, chunk: Chunk) -> u32 {
        let id = self.number(chunk);
        if let Some(values) = &mut self.values {
            values.open(id, Owner { key: chunk.group, place: chunk.number });
        }
        let group = &mut self.groups[chunk.group as usize];
        match group.newest {
            NONE => group.oldest = id,
            newest => self.chunks[newest as usize].newer = id,
        }
        (group.newest, group.chunks) = (id, group.chunks + 1);
        id
    }

    /// The number of a chunk that is in no group's list.
    fn number(&mut self, chunk: Chunk) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.chunks[id as usize] = chunk;
                id
            }
            None => {
                self.chunks.push(chunk);
                self.chunks.len() as u32 - 1
            }
        }
    }

    /// The group's newest chunk is full: so is a window, where it has all of its chunks.
    fn fill_window(&mut self, group: u32) {
        let Lengths { window_chunks, slide_chunks, .. } = self.lengths;
        let of_group = &mut self.groups[group as usize];
        if of_group.chunks < window_chunks {
            return;
        }
        self.windows.push_back(FullWindow { group, oldest: of_group.oldest });
        of_group.windows += 1;
        of_group.chunks -= slide_chunks;
        for _ in 0..slide_chunks {
            of_group.oldest = self.chunks[of_group.oldest as usize].newer;
        }
        if of_group.oldest == NONE {
            of_group.newest = NONE;
        }
    }

    /// Keys and results of the next full windows, at most `rows_max`; chunks that no other window has are forgotten.
    pub(super) fn next_windows(
        &mut self,
        shape: &Shape,
        rows_max: usize,
        store: Option<&mut KeyedRowStore>,
    ) -> Result<Option<Vec<ArrayRef>>, EngineError> {
        let at_once = rows_max.min((MERGED_MAX / self.lengths.window_chunks as usize).max(1)).min(self.windows.len());
        if at_once == 0 {
            return Ok(None);
        }
        let windows: Vec<FullWindow> = self.windows.drain(..at_once).collect();
        let groups: Vec<u32> = windows.iter().map(|window| window.group).collect();
        let results = self.results(shape, &windows, &groups)?;
        let columns = self.keys.keys(Rows::Ids(&groups)).into_iter().chain(results).collect();
        self.release(shape, &windows, store)?;
        Ok(Some(columns))
    }

    fn results(&mut self, shape: &Shape, windows: &[FullWindow], groups: &[u32]) -> Result<Vec<ArrayRef>, EngineError> {
        let (mut chunks, mut targets) = (Vec::new(), Vec::new());
        for (target, window) in windows.iter().enumerate() {
            self.walk(window.oldest, self.lengths.window_chunks, |chunk| {
                chunks.push(chunk);
                targets.push(target as u32);
            });
        }
        if self.lengths.window_chunks == 1 {
            let mut results = self.set.read(Rows::Ids(&chunks));
            self.values.iter().for_each(|values| values.read_into(&mut results, &chunks));
            return Ok(results);
        }
        self.merged.clear();
        self.merged.resize(windows.len());
        let merged = self.merged.merge(Groups::Each(&targets), &self.set.states(Rows::Ids(&chunks)));
        let key = |window: usize| self.keys.keys(Rows::Ids(&groups[window..=window]));
        merged.map_err(|overflow| shape.overflow(&overflow, &key(overflow.group)))?;
        let mut results = self.merged.read(Rows::first(windows.len()));
        if let Some(values) = &self.values {
            values.read_united_into(shape, &self.keys, &mut results, (&chunks, &targets), groups)?;
        }
        Ok(results)
    }

    /// Visits so many chunks of a group, from this one on.
    fn walk(&self, oldest: u32, chunks: u32, mut visit: impl FnMut(u32)) {
        let mut at = oldest;
        for _ in 0..chunks {
            visit(at);
            at = self.chunks[at as usize].newer;
        }
    }

    /// Forgets the chunks that only these windows had, and groups that have none.
    fn release(
        &mut self,
        shape: &Shape,
        windows: &[FullWindow],
        mut store: Option<&mut KeyedRowStore>,
    ) -> Result<(), EngineError> {
        let mut gone = Vec::new();
        for window in windows {
            self.walk(window.oldest, self.lengths.slide_chunks, |chunk| gone.push(chunk));
        }
        for chunk in &gone {
            self.saving.touch(&mut self.frozen, *chunk, self.chunks[*chunk as usize]);
        }
        self.send_unsaved(shape, store.as_deref_mut())?;
        if let Some(stored) = &mut self.stored {
            stored.gone(&gone, &self.chunks, &self.keys);
        }
        if let Some(values) = &mut self.values {
            if let Some(store) = &mut store {
                values.delete_stored(&self.keys, &gone, &mut |state, change| store.send_now(state, change))?;
            }
            gone.iter().for_each(|chunk| values.release(shape, &self.keys, *chunk));
        }
        self.free.append(&mut gone);
        for window in windows {
            let group = &mut self.groups[window.group as usize];
            group.windows -= 1;
            if group.windows == 0 && group.oldest == NONE {
                match &mut store {
                    // The store has to hear of its chunks first.
                    Some(store) => store.note_emptied([window.group]),
                    None => self.keys.remove(window.group),
                }
            }
        }
        Ok(())
    }
}
