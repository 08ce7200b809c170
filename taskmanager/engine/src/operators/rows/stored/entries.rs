//! What a store has of entries that are known by numbers, which are used again: which it has otherwise, which it has at all, and what
//! of it is gone.
//!
//! Deletes of a generation are sent before its entries: a key that begins anew has entries at the same places. Must never know what an
//! entry is.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use levada_common::state_schema::StateSchema;
use levada_state::bits::Bits;
use levada_state::cold::{Addresses, ColdStateId};
use levada_state::freeze::FrozenRows;
use levada_state::snapshot::StateMeta;

use super::KeyedRowStore;
use crate::error::EngineError;

/// The entries of one state.
#[derive(Debug)]
pub(in crate::operators) struct StoredEntries {
    pub(in crate::operators) state: ColdStateId,
    pub(in crate::operators) meta: StateMeta,
    /// The columns of the state's entries.
    pub(in crate::operators) columns: SchemaRef,
    /// Entries that it has otherwise, or not at all.
    changed: Bits,
    /// Entries that it has, or will have once everything is written.
    known: Bits,
    /// Entries that are gone, of which it has to hear with the next generation.
    deletes: Vec<Addresses>,
    /// Likewise, with the one that is being sent.
    sending: VecDeque<Addresses>,
}

impl StoredEntries {
    /// Of a state that is laid out by this schema, with what was restored in it.
    pub(in crate::operators) fn open(
        store: &mut KeyedRowStore,
        meta: StateMeta,
        schema: &Arc<StateSchema>,
    ) -> Result<Self, EngineError> {
        let state = store.open_state(&meta.name, schema, 0)?;
        Ok(Self::new(state, meta, store.columns(state)))
    }

    /// Of an open state with these columns; nothing of it is in memory.
    pub(in crate::operators) fn new(state: ColdStateId, meta: StateMeta, columns: SchemaRef) -> Self {
        let (changed, known) = (Bits::default(), Bits::default());
        Self { state, meta, columns, changed, known, deletes: Vec::new(), sending: VecDeque::new() }
    }

    /// Of the same state, for tables to which entries move: what is gone stays known.
    ///
    /// Contract: nothing is being sent.
    pub(in crate::operators) fn of_moved(&mut self) -> Self {
        let deletes = std::mem::take(&mut self.deletes);
        Self { deletes, ..Self::new(self.state, self.meta.clone(), Arc::clone(&self.columns)) }
    }

    /// An entry of other tables has moved here: the store has it as it had it there.
    pub(in crate::operators) fn take_over(&mut self, id: u32, other: &Self, from: u32) {
        if other.known.get(from) {
            self.known.set_one(id);
        }
        if !other.changed.get(from) {
            self.changed.clear(id);
        }
    }

    /// An entry changes, or is new.
    #[inline]
    pub(in crate::operators) fn change(&mut self, id: u32) {
        self.changed.set_one(id);
    }

    /// The first `len` entries came out of no store.
    pub(in crate::operators) fn change_all(&mut self, len: usize) {
        self.changed = Bits::ones(len);
    }

    /// An entry came out of the store.
    pub(in crate::operators) fn bring_in(&mut self, id: u32) {
        self.changed.clear(id);
        self.known.set_one(id);
    }

    /// Whether it has the entry, or will have it.
    pub(in crate::operators) fn has(&self, id: u32) -> bool {
        self.known.get(id)
    }

    /// A number is no entry's any more.
    pub(in crate::operators) fn forget(&mut self, id: u32) {
        self.changed.clear(id);
        self.known.clear(id);
    }

    /// The entries that were at these places, which it has, are gone.
    pub(in crate::operators) fn delete(&mut self, gone: Addresses) {
        self.deletes.push(gone);
    }

    /// Number of entries that are gone, of which it has to hear with the next generation.
    pub(in crate::operators) fn gone_len(&self) -> usize {
        self.deletes.iter().map(|gone| gone.rows).sum()
    }

    /// Begins a generation of what has changed of so many entries, with what is left of one that is being sent.
    pub(in crate::operators) fn freeze(&mut self, frozen: &mut FrozenRows, len: usize) {
        frozen.resize(len);
        // Those that were being sent and have not left are among them.
        frozen.take_rest(self.changed.words_mut());
        frozen.freeze_these(self.changed.words());
        self.known.unite(&self.changed);
        self.changed.clear_all();
        self.sending.extend(self.deletes.drain(..));
    }

    /// The next of what is gone and is being sent.
    pub(in crate::operators) fn next_delete(&mut self) -> Option<Addresses> {
        self.sending.pop_front()
    }

    /// Whether it has heard of all that is gone, as far as that is being sent.
    pub(in crate::operators) fn has_deleted(&self) -> bool {
        self.sending.is_empty()
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        let columns = |addresses: &Addresses| {
            addresses.keys.iter().chain(&addresses.below).map(|column| column.get_array_memory_size()).sum::<usize>()
        };
        let deletes = self.deletes.iter().chain(&self.sending).map(columns).sum::<usize>();
        self.changed.memory_bytes() + self.known.memory_bytes() + deletes
    }
}
