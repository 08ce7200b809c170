//! The groups and the values of each, which share their keys: as one to a store.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_state::bits::Bits;
use levada_state::cold::{Addresses, Change, ColdStateId};
use levada_state::snapshot::StateMeta;

use super::super::results::Results;
use super::table::Table;
use super::values::Values;
use crate::error::EngineError;
use crate::operators::rows::{ByKey, Found, Held};

/// The tables. A key's number is that of its group.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) groups: Table,
    pub(super) values: Vec<Values>,
    /// Groups that have rows.
    pub(super) standing: Bits,
}

impl Tables {
    /// Fills `ids` with the group of each row.
    ///
    /// Contract: rows of each new group follow.
    pub(super) fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.groups.pane.groups.intern(keys, rows, ids);
        self.resize();
    }

    fn resize(&mut self) {
        self.groups.pane.resize();
        let groups = self.groups.pane.groups.len();
        self.values.iter_mut().for_each(|values| values.resize(groups));
    }

    /// Gives these groups these states, each once.
    pub(super) fn put(&mut self, ids: &[u32], states: &[ArrayRef]) {
        self.groups.pane.groups.assign(ids, states);
        self.note_rows(ids, states[Results::ROWS].as_primitive::<Int64Type>().values());
    }

    /// These groups have so many rows now.
    pub(super) fn note_rows(&mut self, ids: &[u32], rows: &[i64]) {
        for (id, rows) in ids.iter().zip(rows) {
            match *rows {
                0 => self.standing.clear(*id),
                _ => self.standing.set_one(*id),
            }
        }
    }

    /// Number of groups and values.
    pub(super) fn entries(&self) -> usize {
        let values = self.values.iter().map(|values| values.table.pane.groups.live());
        self.groups.pane.groups.live() + values.sum::<usize>()
    }

    /// Looks what groups and values take.
    pub(super) fn measure(&mut self) {
        self.groups.measure();
        self.values.iter_mut().for_each(|values| values.table.measure());
    }

    fn table(&mut self, at: usize) -> &mut Table {
        match at {
            0 => &mut self.groups,
            at => &mut self.values[at - 1].table,
        }
    }
}

impl ByKey for Tables {
    fn has_one_key(&self) -> bool {
        self.groups.pane.groups.is_one()
    }

    fn key_count(&self) -> usize {
        self.groups.pane.groups.len()
    }

    fn find_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        self.groups.pane.groups.find(columns, rows, ids);
    }

    fn make_keys(&mut self, columns: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        let before = self.key_count() as u32;
        self.intern(columns, rows, ids);
        // Of those of which the store has nothing it is said.
        let new: Vec<u32> = (before..self.key_count() as u32).collect();
        if !new.is_empty() {
            self.groups.pane.groups.reset(&new);
        }
    }

    fn forget_key(&mut self, key: u32) {
        self.standing.clear(key);
        self.groups.pane.remove(key);
    }

    fn states(&self) -> usize {
        1 + self.values.len()
    }

    fn state(&mut self, at: usize) -> (ColdStateId, &StateMeta) {
        let table = self.table(at);
        (table.state, &table.meta)
    }

    fn addresses(&mut self, _at: usize, keys: &[ArrayRef], rows: usize) -> Addresses {
        Addresses { keys: keys.to_vec(), namespace: None, below: Vec::new(), rows }
    }

    fn key_columns(&mut self, _at: usize, entries: &RecordBatch) -> Vec<ArrayRef> {
        entries.columns()[..self.groups.shape.key_types.len()].to_vec()
    }

    fn take_found(&mut self, at: usize, found: Found<'_>) -> Result<bool, EngineError> {
        if at > 0 {
            return self.values[at - 1].take_found(found).map(|()| false);
        }
        let ids: Vec<u32> = found.loaded.positions.iter().map(|position| found.ids[*position as usize]).collect();
        self.put(&ids, found.loaded.rows.columns());
        self.groups.pane.mark_stored(&ids);
        Ok(false)
    }

    fn has_entries(&self, key: u32) -> bool {
        self.standing.get(key) || self.values.iter().any(|values| values.has(key))
    }

    fn forget_entries(&mut self, key: u32) {
        self.values.iter_mut().for_each(|values| values.forget(key));
    }

    fn forget_written(&mut self) {
        self.values.iter_mut().for_each(Values::forget_written);
    }

    fn freeze(&mut self) -> Result<(), EngineError> {
        self.groups.pane.freeze();
        self.values.iter_mut().for_each(Values::freeze);
        Ok(())
    }

    fn next_change(&mut self, at: usize, rows_max: usize) -> Result<Option<(usize, Change)>, EngineError> {
        self.table(at).next_change(rows_max)
    }

    fn is_sent(&mut self, at: usize) -> bool {
        !self.table(at).pane.is_saving()
    }

    fn held(&self) -> Held {
        let (groups, live) = (self.groups.held(), self.groups.pane.groups.live());
        let values = self.values.iter().map(|values| values.held(live));
        values.fold(groups, |all, of| Held { bytes: all.bytes + of.bytes, idle_bytes: all.idle_bytes + of.idle_bytes })
    }
}
