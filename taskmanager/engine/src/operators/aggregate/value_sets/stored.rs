//! Values in front of a store: those of a set come in and go with it. A value lies below its set's key, by the set's place and itself.
//!
//! An entry never changes, it only goes: one that is being sent and goes is sent first. Must never know when sets come and go.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::checkpoint::StateKind;
use levada_common::state_schema::StateSchema;
use levada_state::cold::{Addresses, Change, ColdStateId};
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;
use levada_state::snapshot::StateMeta;

use super::super::panes::BACKGROUND_ROWS;
use super::super::shape::Shape;
use super::{NONE, Set, ValueSets, Values};
use crate::error::EngineError;
use crate::operators::rows::StoredEntries;

/// Sends a change of a state at once.
pub(in super::super) type SendNow<'a> = dyn FnMut(ColdStateId, Change) -> Result<(), EngineError> + 'a;

/// Opens a state of a store, whose entries are laid out by this schema.
pub(in super::super) type Open<'a> = dyn FnMut(StateMeta, &Arc<StateSchema>) -> Result<StoredEntries, EngineError> + 'a;

impl ValueSets {
    /// Stands in front of a store from now on; `open` opens a state of it.
    pub(in super::super) fn stand_before(&mut self, shape: &Shape, open: &mut Open<'_>) -> Result<(), EngineError> {
        for (column, about) in self.columns.iter_mut().zip(&self.shape.columns) {
            let (uid, name, schema) = (shape.uid.clone(), about.state.clone(), Arc::clone(&about.schema));
            let meta = StateMeta { uid, name, kind: StateKind::Keyed, schema };
            column.stored = Some(open(meta, &about.schema)?);
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
        send: &mut SendNow<'_>,
    ) -> Result<(), EngineError> {
        let slots: Vec<u32> = ids.iter().map(|id| self.slots[*id as usize]).filter(|slot| *slot != NONE).collect();
        self.delete_stored_slots(keys, &slots, send)
    }

    /// As `delete_stored`, by slots.
    pub(super) fn delete_stored_slots(
        &mut self,
        keys: &KeyIndex,
        slots: &[u32],
        send: &mut SendNow<'_>,
    ) -> Result<(), EngineError> {
        for at in 0..self.columns.len() {
            let (entries, mut unsaved) = (self.entries_of(at, slots), Vec::new());
            let column = &mut self.columns[at];
            column.frozen.take_unsaved(&entries, &mut unsaved);
            let known: Vec<u32> = entries.iter().copied().filter(|id| column.stored().has(*id)).collect();
            if !unsaved.is_empty() {
                while let Some(gone) = column.stored_mut().next_delete() {
                    send(column.stored().state, Change { deletes: Some(gone), upserts: None })?;
                }
                send(column.stored().state, column.upserts(&self.sets, keys, &unsaved))?;
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
        let slot = self.slots[id as usize];
        for at in 0..self.columns.len() {
            let entries = self.entries_of(at, &[slot]);
            entries.into_iter().for_each(|entry| self.columns[at].stored_mut().forget(entry));
        }
    }

    /// The entries of sets by their slots.
    fn entries_of(&mut self, column: usize, slots: &[u32]) -> Vec<u32> {
        self.settle();
        let (mut entries, column) = (Vec::new(), &self.columns[column]);
        slots.iter().for_each(|slot| column.walk(column.lists[*slot as usize].newest, |entry| entries.push(entry)));
        entries
    }

    /// The place of a set of which nothing was in memory, as the store has it.
    pub(in super::super) fn put_at(&mut self, id: u32, place: i64) {
        let slot = self.slots[id as usize];
        self.sets[slot as usize].owner.place = place;
    }

    /// Takes the values of other tables' sets in, each into one of these, which are new; and what the store has of them.
    ///
    /// Errors: `AggregateOverflow`. Contract: nothing is being sent.
    pub(in super::super) fn take_over(
        &mut self,
        shape: &Shape,
        keys: &KeyIndex,
        other: &Self,
        (from, to): (&[u32], &[u32]),
    ) -> Result<(), EngineError> {
        let slots: Vec<u32> = from.iter().map(|id| other.slots[*id as usize]).collect();
        slots.iter().zip(to).for_each(|(slot, to)| self.put_at(*to, other.sets[*slot as usize].owner.place));
        for at in 0..self.columns.len() {
            let (mut entries, mut sets, of_other) = (Vec::new(), Vec::new(), &other.columns[at]);
            for (slot, to) in slots.iter().zip(to) {
                let newest = of_other.lists.get(*slot as usize).map_or(NONE, |list| list.newest);
                of_other.walk(newest, |entry| {
                    entries.push(entry);
                    sets.push(*to);
                });
            }
            let values = of_other.index.keys(Rows::Ids(&entries)).swap_remove(1);
            self.columns[at].ids.clear();
            self.add(shape, keys, at, (&values, &sets))?;
            let Values { stored: Some(stored), ids, .. } = &mut self.columns[at] else { continue };
            ids.iter().zip(entries).for_each(|(id, entry)| stored.take_over(*id, of_other.stored(), entry));
        }
        Ok(())
    }

    /// Stands in front of the store of other tables, whose sets move here.
    pub(in super::super) fn stand_for(&mut self, other: &mut Self) {
        for (column, of_other) in self.columns.iter_mut().zip(&mut other.columns) {
            column.stored = of_other.stored.as_mut().map(StoredEntries::of_moved);
        }
    }

    /// Number of values that are gone, of which the store has to hear with the next generation.
    pub(in super::super) fn gone_len(&self) -> usize {
        self.columns.iter().filter_map(|column| column.stored.as_ref()).map(StoredEntries::gone_len).sum()
    }

    /// Values of a column that memory does not have are gone.
    pub(in super::super) fn delete_beyond(&mut self, column: usize, gone: Addresses) {
        self.columns[column].stored_mut().delete(gone);
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
