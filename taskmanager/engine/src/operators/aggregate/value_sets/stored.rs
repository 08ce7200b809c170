//! Values in front of a store: those of a set come in and go with it. A value lies below its set's key, by the set's place and itself.
//!
//! An entry never changes, it only goes: one that is being sent and goes is sent first. Must never know when sets come and go.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::checkpoint::StateKind;
use levada_state::cold::{Addresses, Change};
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;
use levada_state::snapshot::StateMeta;

use super::super::panes::BACKGROUND_ROWS;
use super::super::shape::Shape;
use super::{NONE, Set, ValueSets, Values};
use crate::error::EngineError;
use crate::operators::rows::{KeyedRowStore, StoredEntries};

impl ValueSets {
    /// Stands in front of a store from now on.
    pub(in super::super) fn stand_before(&mut self, shape: &Shape, store: &mut KeyedRowStore) -> Result<(), EngineError> {
        for (column, about) in self.columns.iter_mut().zip(&self.shape.columns) {
            let (uid, name, schema) = (shape.uid.clone(), about.state.clone(), Arc::clone(&about.schema));
            let meta = StateMeta { uid, name, kind: StateKind::Keyed, schema };
            column.stored = Some(StoredEntries::open(store, meta, &about.schema)?);
        }
        Ok(())
    }

    /// What the store has of a column.
    pub(in super::super) fn stored(&self, column: usize) -> &StoredEntries {
        self.columns[column].stored.as_ref().expect("the store sees what stands in front of it")
    }

    /// Number of places for values: of those that there are, and free ones.
    pub(in super::super) fn places_len(&self) -> usize {
        self.columns.iter().map(|column| column.entries.len()).sum()
    }

    /// As `add`, of values that came out of the store, into sets of which nothing was in memory.
    pub(in super::super) fn bring_in(
        &mut self,
        shape: &Shape,
        keys: &KeyIndex,
        column: usize,
        rows: (&ArrayRef, &[u32]),
    ) -> Result<(), EngineError> {
        let of = &mut self.columns[column];
        of.ids.clear();
        self.add(shape, keys, column, rows)?;
        let Values { stored: Some(stored), ids, .. } = &mut self.columns[column] else { return Ok(()) };
        ids.iter().for_each(|id| stored.bring_in(*id));
        Ok(())
    }

    /// These sets are about to go for good: what is being sent of them and has not left is sent, and what the store has of them is
    /// deleted with the next generation.
    pub(in super::super) fn delete_stored(
        &mut self,
        keys: &KeyIndex,
        ids: &[u32],
        store: &mut KeyedRowStore,
    ) -> Result<(), EngineError> {
        for at in 0..self.columns.len() {
            let (entries, mut unsaved) = (self.entries_of(at, ids), Vec::new());
            let column = &mut self.columns[at];
            column.frozen.take_unsaved(&entries, &mut unsaved);
            let known: Vec<u32> = entries.iter().copied().filter(|id| column.stored().has(*id)).collect();
            if !unsaved.is_empty() {
                while let Some(gone) = column.stored_mut().next_delete() {
                    store.send_now(column.stored().state, Change { deletes: Some(gone), upserts: None })?;
                }
                store.send_now(column.stored().state, column.upserts(&self.sets, keys, &unsaved))?;
            }
            if !known.is_empty() {
                let (of_key, below) = column.places(&self.sets, keys, &known);
                let gone = Addresses { keys: of_key, namespace: None, below: below.into(), rows: known.len() };
                column.stored_mut().delete(gone);
            }
            entries.iter().for_each(|id| column.stored_mut().forget(*id));
        }
        Ok(())
    }

    /// A set is about to go out of memory only: the store has it as it is.
    pub(in super::super) fn let_go(&mut self, id: u32) {
        for at in 0..self.columns.len() {
            let entries = self.entries_of(at, &[id]);
            entries.into_iter().for_each(|entry| self.columns[at].stored_mut().forget(entry));
        }
    }

    /// The entries of some sets.
    fn entries_of(&mut self, column: usize, ids: &[u32]) -> Vec<u32> {
        self.settle();
        let (mut entries, column) = (Vec::new(), &self.columns[column]);
        for id in ids {
            let slot = self.slots[*id as usize];
            column.walk(column.lists[slot as usize].newest, |entry| entries.push(entry));
        }
        entries
    }

    /// Begins a generation of the values that are new, with what is left of one that is being sent.
    pub(in super::super) fn freeze(&mut self) {
        for column in &mut self.columns {
            let Values { stored: Some(stored), frozen, index, .. } = column else { continue };
            stored.freeze(frozen, index.len());
        }
    }

    /// Takes the next of what is being sent of a column, about `rows_max` rows, with the number of its rows.
    pub(in super::super) fn next_change(&mut self, keys: &KeyIndex, column: usize, rows_max: usize) -> Option<(usize, Change)> {
        let column = &mut self.columns[column];
        if let Some(gone) = column.stored_mut().next_delete() {
            return Some((gone.rows, Change { deletes: Some(gone), upserts: None }));
        }
        let mut ids = Vec::new();
        column.frozen.take_next(rows_max.min(BACKGROUND_ROWS), &mut ids);
        (!ids.is_empty()).then(|| (ids.len(), column.upserts(&self.sets, keys, &ids)))
    }

    /// Whether everything of a column was sent.
    pub(in super::super) fn is_sent(&self, column: usize) -> bool {
        let column = &self.columns[column];
        column.stored().has_deleted() && !column.frozen.is_running()
    }
}

impl Values {
    fn stored(&self) -> &StoredEntries {
        self.stored.as_ref().expect("the store sees what stands in front of it")
    }

    fn stored_mut(&mut self) -> &mut StoredEntries {
        self.stored.as_mut().expect("the store sees what stands in front of it")
    }

    /// Where these entries lie: the key's columns, and below it the places of their sets and the values.
    pub(super) fn places(&self, sets: &[Set], keys: &KeyIndex, ids: &[u32]) -> (Vec<ArrayRef>, [ArrayRef; 2]) {
        debug_assert!(ids.iter().all(|id| self.entries[*id as usize].slot != NONE), "they are there");
        let owners = || ids.iter().map(|id| sets[self.entries[*id as usize].slot as usize].owner);
        let of_key = keys.keys(Rows::Ids(&owners().map(|owner| owner.key).collect::<Vec<_>>()));
        let places: ArrayRef = Arc::new(Int64Array::from_iter_values(owners().map(|owner| owner.place)));
        (of_key, [places, self.index.keys(Rows::Ids(ids)).swap_remove(1)])
    }

    /// These entries, as the store has them.
    fn upserts(&self, sets: &[Set], keys: &KeyIndex, ids: &[u32]) -> Change {
        let (of_key, below) = self.places(sets, keys, ids);
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![1; ids.len()]));
        let columns = of_key.into_iter().chain(below).chain([counts]).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.stored().columns), columns, &options);
        Change { deletes: None, upserts: Some(rows.expect("values have the planned columns")) }
    }
}
