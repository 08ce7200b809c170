//! Chunks in front of a store: those of a key are in memory all together or not at all.
//!
//! A chunk lies below its key, by its number. Deletes of a generation are sent before its chunks: a key that begins anew numbers its
//! chunks anew.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_state::bits::Bits;
use levada_state::cold::{Addresses, Change, ColdStateId};
use levada_state::snapshot::StateMeta;

use super::super::super::panes::BACKGROUND_ROWS;
use super::saving::Saved;
use super::*;
use crate::operators::rows::{ByKey, EntryBytes, Found, Held};

/// What a store has of the chunks in memory.
#[derive(Debug)]
pub(super) struct StoredChunks {
    state: ColdStateId,
    meta: StateMeta,
    columns: SchemaRef,
    /// Chunks that it has otherwise, or not at all.
    changed: Bits,
    /// Chunks that it has, or will have once everything is written.
    known: Bits,
    /// Chunks that are gone, of which it has to hear with the next generation.
    deletes: Vec<Addresses>,
    /// Likewise, with the one that is being sent.
    sending: VecDeque<Addresses>,
    chunk_bytes: EntryBytes,
}

impl StoredChunks {
    /// A chunk changes.
    pub(super) fn changed(&mut self, id: u32) {
        self.changed.set_one(id);
    }

    /// These chunks are gone.
    pub(super) fn gone(&mut self, ids: &[u32], chunks: &[Chunk], keys: &KeyIndex) {
        let known: Vec<Chunk> = ids.iter().filter(|id| self.known.get(**id)).map(|id| chunks[*id as usize]).collect();
        ids.iter().for_each(|id| self.forget(*id));
        if known.is_empty() {
            return;
        }
        let groups: Vec<u32> = known.iter().map(|chunk| chunk.group).collect();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(known.iter().map(|chunk| chunk.number)));
        let keys = keys.keys(Rows::Ids(&groups));
        self.deletes.push(Addresses { keys, namespace: None, below: vec![numbers], rows: known.len() });
    }

    /// A number is no chunk's any more.
    fn forget(&mut self, id: u32) {
        self.changed.clear(id);
        self.known.clear(id);
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let columns = |addresses: &Addresses| {
            addresses.keys.iter().chain(&addresses.below).map(|column| column.get_array_memory_size()).sum::<usize>()
        };
        let deletes = self.deletes.iter().chain(&self.sending).map(columns).sum::<usize>();
        self.changed.memory_bytes() + self.known.memory_bytes() + deletes
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
        let state = store.open_state(&name, &shape.stored, 0)?;
        self.stored = Some(StoredChunks {
            state,
            meta: StateMeta { uid, name, kind: StateKind::Keyed, schema },
            columns: store.columns(state),
            changed: Bits::default(),
            known: Bits::default(),
            deletes: Vec::new(),
            sending: VecDeque::new(),
            chunk_bytes: EntryBytes::default(),
        });
        Ok(())
    }

    /// Says that all chunks came out of no store, and have to go into this one.
    pub(in super::super) fn all_changed(&mut self, store: &mut KeyedRowStore) {
        let all: Vec<u32> = (0..self.keys.len() as u32).collect();
        store.note_used(&all, all.len());
        store.note_changed(&all, all.len());
        if let Some(stored) = &mut self.stored {
            stored.changed = Bits::ones(self.chunks.len());
        }
    }

    /// Looks what a chunk takes.
    pub(in super::super) fn measure(&mut self) {
        let (bytes, chunks) = (self.memory_bytes(), self.chunks.len());
        if let Some(stored) = &mut self.stored {
            stored.chunk_bytes.measure(bytes, chunks);
        }
    }

    fn stored(&self) -> &StoredChunks {
        self.stored.as_ref().expect("the store sees what stands in front of it")
    }

    fn stored_mut(&mut self) -> &mut StoredChunks {
        self.stored.as_mut().expect("the store sees what stands in front of it")
    }

    /// Sends chunks of the generation that is being sent, which were like this, behind what is gone.
    pub(super) fn send_entries(&mut self, store: &mut KeyedRowStore, ids: &[u32], chunks: &[Chunk]) -> Result<(), EngineError> {
        while let Some(gone) = self.stored_mut().sending.pop_front() {
            store.send_now(self.stored().state, Change { deletes: Some(gone), upserts: None })?;
        }
        store.send_now(self.stored().state, self.upserts(ids, chunks))
    }

    /// These chunks, which were like this, as the store has them.
    fn upserts(&self, ids: &[u32], chunks: &[Chunk]) -> Change {
        let Saved { keys, numbers, states, lengths } = self.saved(ids, chunks);
        let columns = keys.into_iter().chain([numbers]).chain(states).chain([lengths]).collect();
        let rows = RecordBatch::try_new(Arc::clone(&self.stored().columns), columns).expect("states have the planned columns");
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
        for id in ids {
            stored.changed.clear(id);
            stored.known.set_one(id);
        }
        Ok(())
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
        1
    }

    fn state(&mut self, _at: usize) -> (ColdStateId, &StateMeta) {
        let stored = self.chunks.stored();
        (stored.state, &stored.meta)
    }

    fn addresses(&mut self, _at: usize, keys: &[ArrayRef], rows: usize) -> Addresses {
        Addresses { keys: keys.to_vec(), namespace: None, below: Vec::new(), rows }
    }

    fn key_columns(&mut self, _at: usize, entries: &RecordBatch) -> Vec<ArrayRef> {
        entries.columns()[..self.shape.key_types.len()].to_vec()
    }

    fn take_found(&mut self, _at: usize, found: Found<'_>) -> Result<bool, EngineError> {
        let groups: Vec<u32> = found.loaded.positions.iter().map(|position| found.ids[*position as usize]).collect();
        self.chunks.take_stored(self.shape, &groups, &found.loaded.rows).map(|()| false)
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
        let stored = self.chunks.stored_mut();
        gone.iter().for_each(|chunk| stored.forget(*chunk));
        self.chunks.free.append(&mut gone);
    }

    fn freeze(&mut self) -> Result<(), EngineError> {
        let Chunks { frozen, chunks, stored: Some(stored), .. } = &mut *self.chunks else { return Ok(()) };
        frozen.resize(chunks.len());
        // Those that were being sent and have not left are among them.
        frozen.take_rest(stored.changed.words_mut());
        frozen.freeze_these(stored.changed.words());
        stored.known.unite(&stored.changed);
        stored.changed.clear_all();
        stored.sending.extend(stored.deletes.drain(..));
        Ok(())
    }

    fn next_change(&mut self, _at: usize, rows_max: usize) -> Result<Option<(usize, Change)>, EngineError> {
        if let Some(gone) = self.chunks.stored_mut().sending.pop_front() {
            return Ok(Some((gone.rows, Change { deletes: Some(gone), upserts: None })));
        }
        let mut ids = Vec::new();
        self.chunks.frozen.take_next(rows_max.min(BACKGROUND_ROWS), &mut ids);
        let chunks: Vec<Chunk> = ids.iter().map(|id| self.chunks.chunks[*id as usize]).collect();
        Ok((!ids.is_empty()).then(|| (ids.len(), self.chunks.upserts(&ids, &chunks))))
    }

    fn is_sent(&mut self, _at: usize) -> bool {
        self.chunks.stored().sending.is_empty() && !self.chunks.frozen.is_running()
    }

    fn held(&self) -> Held {
        self.chunks.stored().chunk_bytes.held(self.chunks.memory_bytes(), self.chunks.len())
    }
}
