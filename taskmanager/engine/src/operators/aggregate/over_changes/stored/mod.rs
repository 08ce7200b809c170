//! Groups and counted values in front of a store, by key: a group and all of its values come into memory and leave it together.
//!
//! So the order of a group's values is in memory whenever one of them is asked for. Must never know what is given of them.

mod table;
mod tables;
mod values;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_state::bits::Bits;
use levada_state::cold::ColdStores;
use levada_state::key_index::ABSENT;
use levada_state::snapshot::StatePart;

use super::super::group_table::GroupTable;
use super::super::restore::restored_rows;
use super::super::shape::Shape;
use super::super::shown::Shown;
use super::extremes::ExtremesShape;
use super::kept::{Changing, Kept, gone, group_of};
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::rows::{ByKey, KeyedRowStore};
use table::Table;
use tables::Tables;
use values::Values;

/// The groups, and the store behind them.
#[derive(Debug)]
pub(super) struct ByKeyInStore {
    store: KeyedRowStore,
    tables: Tables,
    shown: Shown,
}

impl ByKeyInStore {
    /// With what was restored, in the store or as rows.
    pub(super) fn open(
        shape: &Arc<Shape>,
        extremes: &[ExtremesShape],
        (context, stores): (&OperatorContext, &Arc<dyn ColdStores>),
        restored: Vec<RestoredState>,
    ) -> Result<Self, EngineError> {
        let mut store = KeyedRowStore::open(&shape.uid, shape.clause(), stores, context.key_groups)?;
        let groups = Table::open(shape, &mut store)?;
        let values = extremes.iter().map(|extremes| Values::open(extremes, &mut store)).collect::<Result<_, _>>()?;
        let tables = Tables { groups, values, standing: Bits::default() };
        let mut opened = Self { store, tables, shown: Shown::default() };
        opened.take_restored(shape, context.key_groups, restored)?;
        Ok(opened)
    }

    fn take_restored(
        &mut self,
        shape: &Shape,
        key_groups: KeyGroupRange,
        restored: Vec<RestoredState>,
    ) -> Result<(), EngineError> {
        let mut others = restored;
        let of_values: Vec<Vec<RestoredState>> = (0..self.tables.values.len())
            .map(|at| others.extract_if(.., |state| state.name == self.tables.values[at].table.meta.name).collect())
            .collect();
        let mut ids = Vec::new();
        for rows in restored_rows(shape, key_groups, others)? {
            self.make(&rows.keys, rows.rows, &mut ids)?;
            self.tables.put(&ids, &rows.states);
            self.store.settle(&mut self.tables)?;
        }
        for (at, of_column) in of_values.into_iter().enumerate() {
            let of_column = restored_rows(&Arc::clone(&self.tables.values[at].table.shape), key_groups, of_column)?;
            for rows in of_column {
                self.make(&rows.keys[..rows.keys.len() - 1], rows.rows, &mut ids)?;
                let groups: Vec<u32> = (0..rows.rows as u32).map(|row| group_of(&ids, row)).collect();
                let values = &mut self.tables.values[at];
                values.put(&rows.keys, &groups, &rows.states[0])?;
                values.touch_put(&mut self.store)?;
                self.store.settle(&mut self.tables)?;
            }
        }
        Ok(())
    }

    /// Fills `ids` with the group of each restored row, with what is known of it in memory; it changes now.
    fn make(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<(), EngineError> {
        while self.store.load(&mut self.tables, keys, rows)? < rows {}
        self.tables.make_keys(keys, rows, ids);
        self.note(ids)
    }

    /// These groups are used, and change now.
    fn note(&mut self, ids: &[u32]) -> Result<(), EngineError> {
        let groups = self.tables.key_count();
        self.store.note_used(ids, groups);
        self.store.note_changed(ids, groups);
        self.tables.groups.touch(&mut self.store, ids)
    }
}

impl Kept for ByKeyInStore {
    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.store.is_ready(&self.tables)
    }

    fn load(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Option<BooleanArray>, EngineError> {
        if self.store.load(&mut self.tables, keys, rows)? == rows {
            return Ok(None);
        }
        // A key in memory has everything there, wherever its rows stand among the others.
        let mut ids = Vec::with_capacity(rows);
        self.tables.find_keys(keys, rows, &mut ids);
        Ok(Some(ids.iter().map(|id| Some(*id != ABSENT)).collect()))
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<(), EngineError> {
        self.tables.intern(keys, rows, ids);
        self.note(ids)
    }

    fn groups(&self) -> Result<&GroupTable, EngineError> {
        Ok(&self.tables.groups.pane.groups)
    }

    fn change(&mut self, Changing { comes, ids, inputs, rows }: Changing<'_>) -> Result<(), EngineError> {
        let Table { shape, pane, .. } = &mut self.tables.groups;
        match comes {
            true => pane.groups.take_in(shape, pane.groups.groups(ids, rows), inputs),
            false => pane.groups.retract(shape, pane.groups.groups(ids, rows), inputs),
        }
    }

    fn count_values(&mut self, batch: &RecordBatch, comes: Option<&[bool]>, ids: &[u32]) -> Result<(), EngineError> {
        let Self { store, tables, .. } = self;
        tables.values.iter_mut().try_for_each(|values| values.take(store, batch, comes, |row| group_of(ids, row)))
    }

    fn ends(&self, column: usize, groups: &[u32], is_greatest: bool) -> ArrayRef {
        self.tables.values[column].ends(groups, is_greatest)
    }

    /// In front of the store a group that is gone stands without rows until that has heard of it.
    fn settle(&mut self, groups: &[u32], rows: &[i64]) {
        self.tables.note_rows(groups, rows);
        let gone = gone(groups, rows);
        if !gone.is_empty() {
            self.tables.groups.pane.groups.reset(&gone);
            self.store.note_emptied(gone);
        }
    }

    fn make_room(&mut self) -> Result<(), EngineError> {
        self.tables.measure();
        self.store.make_room(&mut self.tables)
    }

    fn count(&mut self, context: &OperatorContext) -> Result<(), EngineError> {
        let bytes = self.tables.held().bytes + self.store.memory_bytes();
        self.shown.show(&context.metrics, (self.tables.entries(), bytes));
        context.metrics.set_store(self.store.metrics());
        Ok(())
    }

    fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        self.store.snapshot(&mut self.tables, checkpoint)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.store.background(&mut self.tables)
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        self.store.abandon(checkpoint);
    }
}
