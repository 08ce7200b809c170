//! Chunks in front of a store: those of a key are in memory all together or not at all, each with its distinct values.
//!
//! A chunk lies below its key, by its number; so do its values, by that and what they are.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_state::cold::{Addresses, Change, ColdStateId};
use levada_state::snapshot::StateMeta;

use super::super::super::panes::BACKGROUND_ROWS;
use super::saving::{Saved, chunk_of};
use super::*;
use crate::operators::rows::{ByKey, EntryBytes, Found, Held, StoredEntries};

/// What a store has of the chunks in memory.
#[derive(Debug)]
pub(super) struct StoredChunks {
    entries: StoredEntries,
    chunk_bytes: EntryBytes,
    value_bytes: EntryBytes,
}

impl StoredChunks {
    /// A chunk changes.
    pub(super) fn changed(&mut self, id: u32) {
        self.entries.change(id);
    }

    /// These chunks are gone.
    pub(super) fn gone(&mut self, ids: &[u32], chunks: &[Chunk], keys: &KeyIndex) {
        let known: Vec<Chunk> = ids.iter().filter(|id| self.entries.has(**id)).map(|id| chunks[*id as usize]).collect();
        ids.iter().for_each(|id| self.entries.forget(*id));
        if known.is_empty() {
            return;
        }
        let groups: Vec<u32> = known.iter().map(|chunk| chunk.group).collect();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(known.iter().map(|chunk| chunk.number)));
        let keys = keys.keys(Rows::Ids(&groups));
        self.entries.delete(Addresses { keys, namespace: None, below: vec![numbers], rows: known.len() });
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
    }
}

/// Chunks as a store sees them.
pub(in super::super) struct ChunksOf<'a> {
    pub(in super::super) shape: &'a Shape,
    pub(in super::super) chunks: &'a mut Chunks,
}

impl Chunks {
    /// Stands in front of a store from now on.
    pub(in super::super) fn stand_before(&mut self, shape: &Shape, store: &mut KeyedRowStore) -> Result<(), EngineError> {
        let (uid, name, schema) = (shape.uid.clone(), shape.state_name().to_owned(), Arc::clone(&shape.state));
        let entries = StoredEntries::open(store, StateMeta { uid, name, kind: StateKind::Keyed, schema }, &shape.stored)?;
        self.stored = Some(StoredChunks { entries, chunk_bytes: EntryBytes::default(), value_bytes: EntryBytes::default() });
        let open = &mut |meta, schema: &_| StoredEntries::open(store, meta, schema);
        self.values.as_mut().map_or(Ok(()), |values| values.stand_before(shape, open))
    }

    /// Says that all chunks came out of no store, and have to go into this one.
    pub(in super::super) fn all_changed(&mut self, store: &mut KeyedRowStore) {
        let all: Vec<u32> = (0..self.keys.len() as u32).collect();
        store.note_used(&all, all.len());
        store.note_changed(&all, all.len());
        if let Some(stored) = &mut self.stored {
            stored.entries.change_all(self.chunks.len());
        }
    }

    /// Looks what a chunk takes, and a value.
    pub(in super::super) fn measure(&mut self) {
        let (bytes, chunks) = (self.memory_bytes(), self.chunks.len());
        let (of_values, values) = self.values.as_ref().map_or((0, 0), |values| (values.memory_bytes(), values.places_len()));
        if let Some(stored) = &mut self.stored {
            stored.chunk_bytes.measure(bytes - of_values, chunks);
            stored.value_bytes.measure(of_values, values);
        }
    }

    fn stored(&self) -> &StoredChunks {
        self.stored.as_ref().expect("the store sees what stands in front of it")
    }

    fn stored_mut(&mut self) -> &mut StoredChunks {
        self.stored.as_mut().expect("the store sees what stands in front of it")
    }

    fn values(&self) -> &ValueSets {
        self.values.as_ref().expect("values have states where they are told apart")
    }

    /// Sends chunks of the generation that is being sent, which were like this, behind what is gone.
    pub(super) fn send_entries(&mut self, store: &mut KeyedRowStore, ids: &[u32], chunks: &[Chunk]) -> Result<(), EngineError> {
        let entries = &mut self.stored_mut().entries;
        while let Some(gone) = entries.next_delete() {
            store.send_now(entries.state, Change { deletes: Some(gone), upserts: None })?;
        }
        store.send_now(self.stored().entries.state, self.upserts(ids, chunks))
    }

    /// These chunks, which were like this, as the store has them.
    fn upserts(&self, ids: &[u32], chunks: &[Chunk]) -> Change {
        let Saved { keys, numbers, states, lengths } = self.saved(ids, chunks);
        let columns = keys.into_iter().chain([numbers]).chain(states).chain([lengths]).collect();
        let rows =
            RecordBatch::try_new(Arc::clone(&self.stored().entries.columns), columns).expect("states have the planned columns");
        Change { deletes: None, upserts: Some(rows) }
    }

    /// Puts chunks that the store has behind those of their groups: `rows` has numbers, states and lengths.
    ///
    /// Errors: `Restore` where they are not those of this window.
    fn take_stored(&mut self, shape: &Shape, groups: &[u32], rows: &RecordBatch) -> Result<(), EngineError> {
        let (numbers, rest) = (rows.column(0).as_primitive::<Int64Type>().values(), &rows.columns()[1..]);
        let (states, lengths) = rest.split_at(rest.len() - 1);
        let lengths = lengths[0].as_primitive::<Int64Type>().values();
        // The store has a key's chunks in the order of their numbers' bytes.
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_unstable_by_key(|row| numbers[*row]);
        let mut ids = vec![NONE; groups.len()];
        for row in order {
            let (group, rows) = (groups[row], self.lengths.chunk(shape, lengths[row])?);
            let id = self.number(Chunk { group, newer: NONE, number: numbers[row], rows });
            self.link_restored(shape, group, rows, id)?;
            ids[row] = id;
        }
        self.set.resize(self.chunks.len());
        self.frozen.resize(self.chunks.len());
        self.set.assign(&ids, states);
        let stored = self.stored_mut();
        ids.into_iter().for_each(|id| stored.entries.bring_in(id));
        Ok(())
    }
}

impl Chunks {
    /// Puts values that the store has into the chunks that they are of: `rows` has the chunks' numbers and the values.
    fn take_stored_values(
        &mut self,
        shape: &Shape,
        column: usize,
        groups: &[u32],
        rows: &RecordBatch,
    ) -> Result<(), EngineError> {
        let numbers = rows.column(0).as_primitive::<Int64Type>().values();
        let chunk = |(group, number): (&u32, &i64)| chunk_of(&self.groups, &self.chunks, *group, *number).unwrap_or(NONE);
        let chunks: Vec<u32> = groups.iter().zip(numbers).map(chunk).collect();
        let Self { values: Some(values), keys, .. } = self else { return Ok(()) };
        values.bring_in(shape, keys, column, (rows.column(1), &chunks))
    }
}

impl ByKey for ChunksOf<'_> {
    fn has_one_key(&self) -> bool {
        self.chunks.keys.is_unit()
    }

    fn key_count(&self) -> usize {
        self.chunks.keys.len()
    }

    fn find_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.chunks.keys.find(columns, rows, ids);
    }

    fn make_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.chunks.intern(columns, rows);
        ids.extend_from_slice(&self.chunks.ids);
    }

    fn forget_key(&mut self, key: u32) {
        self.chunks.keys.remove(key);
    }

    fn states(&self) -> usize {
        1 + self.chunks.values.as_ref().map_or(0, ValueSets::columns_len)
    }

    fn state(&mut self, at: usize) -> (ColdStateId, &StateMeta) {
        let entries = match at.checked_sub(1) {
            None => &self.chunks.stored().entries,
            Some(column) => self.chunks.values().stored(column),
        };
        (entries.state, &entries.meta)
    }

    fn addresses(&mut self, _at: usize, keys: &[ArrayRef], rows: usize) -> Addresses {
        Addresses { keys: keys.to_vec(), namespace: None, below: Vec::new(), rows }
    }

    fn key_columns(&mut self, _at: usize, entries: &RecordBatch) -> Vec<ArrayRef> {
        entries.columns()[..self.shape.key_types.len()].to_vec()
    }

    fn take_found(&mut self, at: usize, found: Found<'_>) -> Result<bool, EngineError> {
        let groups: Vec<u32> = found.loaded.positions.iter().map(|position| found.ids[*position as usize]).collect();
        match at.checked_sub(1) {
            None => self.chunks.take_stored(self.shape, &groups, &found.loaded.rows)?,
            Some(column) => self.chunks.take_stored_values(self.shape, column, &groups, &found.loaded.rows)?,
        }
        Ok(false)
    }

    fn has_entries(&self, key: u32) -> bool {
        let group = &self.chunks.groups[key as usize];
        group.oldest != NONE || group.windows > 0
    }

    /// Contract: no window is on its way out.
    fn forget_entries(&mut self, key: u32) {
        let group = std::mem::replace(&mut self.chunks.groups[key as usize], Group::EMPTY);
        let mut gone = Vec::new();
        self.chunks.walk(group.oldest, group.chunks, |chunk| gone.push(chunk));
        let Chunks { stored, values, keys, free, .. } = &mut *self.chunks;
        for chunk in &gone {
            stored.iter_mut().for_each(|stored| stored.entries.forget(*chunk));
            if let Some(values) = values.as_mut() {
                values.let_go(*chunk);
                values.release(self.shape, keys, *chunk);
            }
        }
        free.append(&mut gone);
    }

    fn freeze(&mut self) -> Result<(), EngineError> {
        let Chunks { frozen, chunks, stored: Some(stored), values, .. } = &mut *self.chunks else { return Ok(()) };
        stored.entries.freeze(frozen, chunks.len());
        values.iter_mut().for_each(ValueSets::freeze);
        Ok(())
    }

    fn next_change(&mut self, at: usize, rows_max: usize) -> Result<Option<(usize, Change)>, EngineError> {
        if let Some(column) = at.checked_sub(1) {
            let Chunks { values, keys, .. } = &mut *self.chunks;
            return Ok(values.as_mut().and_then(|values| values.next_change(keys, column, rows_max)));
        }
        if let Some(gone) = self.chunks.stored_mut().entries.next_delete() {
            return Ok(Some((gone.rows, Change { deletes: Some(gone), upserts: None })));
        }
        let mut ids = Vec::new();
        self.chunks.frozen.take_next(rows_max.min(BACKGROUND_ROWS), &mut ids);
        let chunks: Vec<Chunk> = ids.iter().map(|id| self.chunks.chunks[*id as usize]).collect();
        Ok((!ids.is_empty()).then(|| (ids.len(), self.chunks.upserts(&ids, &chunks))))
    }

    fn is_sent(&mut self, at: usize) -> bool {
        match at.checked_sub(1) {
            None => self.chunks.stored().entries.has_deleted() && !self.chunks.frozen.is_running(),
            Some(column) => self.chunks.values().is_sent(column),
        }
    }

    fn held(&self) -> Held {
        let StoredChunks { chunk_bytes, value_bytes, .. } = self.chunks.stored();
        let (of_values, values) = self.chunks.values.as_ref().map_or((0, 0), |values| (values.memory_bytes(), values.len()));
        let (chunks, values) =
            (chunk_bytes.held(self.chunks.memory_bytes() - of_values, self.chunks.len()), value_bytes.held(of_values, values));
        Held { bytes: chunks.bytes + values.bytes, idle_bytes: chunks.idle_bytes + values.idle_bytes }
    }
}
