//! Snapshots of values, and restores from them.
//!
//! An entry never changes, it only goes: so what is left of a set is saved when that goes, and the rest by a cursor.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::Int64Type;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::checkpoint::StateKind;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_state::key_index::{ABSENT, KeyIndex};
use levada_state::rows::Rows;
use levada_state::snapshot::{StateMeta, StatePart, pieces};

use super::super::panes::BACKGROUND_ROWS;
use super::super::restore::refuse;
use super::super::shape::Shape;
use super::shape::SetColumn;
use super::{GONE, NONE, Set, ValueSets, Values};
use crate::error::EngineError;
use crate::operator::{RestoredState, in_groups, restored_column};

impl ValueSets {
    /// The synchronous part of a snapshot. One that is still running is finished first.
    pub(in super::super) fn snapshot(&mut self, shape: &Shape, keys: &KeyIndex, checkpoint: CheckpointId) -> Vec<StatePart> {
        while self.save(shape, keys) {}
        self.settle();
        let Self { columns, shape: of, sets, .. } = self;
        let begin = |(column, about): (&mut Values, &SetColumn)| {
            let (sender, reader) = pieces();
            column.frozen.resize(column.index.len());
            column.frozen.freeze();
            column.saving = Some(sender);
            column.save(about, sets, shape, keys);
            let schema = Arc::clone(&about.schema);
            let meta = StateMeta { uid: shape.uid.clone(), name: about.state.clone(), kind: StateKind::Keyed, schema };
            StatePart { meta, contents: reader.into() }
        };
        self.checkpoint = Some(checkpoint);
        columns.iter_mut().zip(&of.columns).map(begin).collect()
    }

    /// Saves a further piece of a running snapshot, none while the background has enough to do, and takes out some of what is gone;
    /// answers whether more remain.
    pub(in super::super) fn save_next(&mut self, shape: &Shape, keys: &KeyIndex) -> bool {
        if self.columns.iter().any(|column| column.saving.as_ref().is_some_and(|sender| sender.is_abandoned())) {
            self.give_up();
        }
        let mut remain = false;
        for (column, about) in self.columns.iter_mut().zip(&self.shape.columns) {
            if column.saving.as_ref().is_some_and(|sender| !sender.is_full()) {
                column.save(about, &self.sets, shape, keys);
            }
            remain |= column.bury(BACKGROUND_ROWS) | column.saving.is_some();
        }
        remain
    }

    /// Gives the snapshot of this checkpoint up, if it is running.
    pub(in super::super) fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.checkpoint == Some(checkpoint) {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.checkpoint = None;
        for column in self.columns.iter_mut().filter(|column| column.saving.is_some()) {
            column.saving = None;
            column.frozen.abandon();
        }
    }

    /// Saves a further piece of each column; answers whether one was being saved.
    fn save(&mut self, shape: &Shape, keys: &KeyIndex) -> bool {
        let mut any = false;
        for (column, about) in self.columns.iter_mut().zip(&self.shape.columns).filter(|(column, _)| column.saving.is_some()) {
            column.save(about, &self.sets, shape, keys);
            any = true;
        }
        any
    }

    /// Saves what a running snapshot has still to save of a set that is about to go.
    pub(super) fn save_values_of(&mut self, shape: &Shape, keys: &KeyIndex, slot: u32) {
        for (column, about) in self.columns.iter_mut().zip(&self.shape.columns) {
            let Some(sender) = column.saving.take() else { continue };
            let (mut of_set, mut unsaved) = (Vec::new(), Vec::new());
            column.walk(column.lists[slot as usize].newest, |id| of_set.push(id));
            column.frozen.take_unsaved(&of_set, &mut unsaved);
            for ids in unsaved.chunks(BACKGROUND_ROWS) {
                sender.send(column.piece(about, &self.sets, shape, keys, ids));
            }
            column.saving = Some(sender);
        }
    }

    /// What was in the snapshot that the task starts from, batch by batch.
    ///
    /// Errors: `Restore` where another state was saved.
    pub(in super::super) fn restored(
        &self,
        shape: &Shape,
        (key_groups, restored): (KeyGroupRange, &[RestoredState]),
    ) -> Result<Vec<RestoredValues>, EngineError> {
        let mut found = Vec::new();
        for (column, about) in self.shape.columns.iter().enumerate() {
            let of_column = restored.iter().filter(|state| state.name == about.state).flat_map(|state| &state.batches);
            for batch in of_column {
                let refused = |reason: String| refuse(shape, &about.state, reason);
                let batch = in_groups(batch, key_groups).map_err(refused)?;
                let columns = about.pieces.fields().iter().map(|field| restored_column(&batch, field).map(Arc::clone));
                let columns = columns.collect::<Result<Vec<ArrayRef>, String>>().map_err(refused)?;
                let (keys, rest) = columns.split_at(columns.len() - 3);
                let places = rest[0].as_primitive::<Int64Type>().values().clone();
                found.push(RestoredValues {
                    column,
                    rows: batch.num_rows(),
                    keys: keys.to_vec(),
                    places,
                    values: rest[1].clone(),
                });
            }
        }
        Ok(found)
    }

    /// Takes them in; `find` names the owner's set of a key at a place, if there is one. Answers the set of each.
    ///
    /// Errors: `AggregateOverflow`.
    pub(in super::super) fn restore(
        &mut self,
        shape: &Shape,
        keys: &mut KeyIndex,
        rows: &RestoredValues,
        find: impl Fn(u32, i64) -> Option<u32>,
    ) -> Result<Vec<u32>, EngineError> {
        let mut ids = Vec::new();
        keys.find(&rows.keys, rows.rows, &mut ids);
        let set = |(key, place): (&u32, &i64)| if *key == ABSENT { None } else { find(*key, *place) };
        let sets: Vec<u32> = ids.iter().zip(&rows.places).map(|row| set(row).unwrap_or(NONE)).collect();
        self.add(shape, keys, rows.column, (&rows.values, &sets))?;
        Ok(sets)
    }
}

/// Restored values of a column.
pub(in super::super) struct RestoredValues {
    column: usize,
    pub(in super::super) rows: usize,
    pub(in super::super) keys: Vec<ArrayRef>,
    places: ScalarBuffer<i64>,
    values: ArrayRef,
}

impl Values {
    /// Saves further entries as one piece.
    fn save(&mut self, about: &SetColumn, sets: &[Set], shape: &Shape, keys: &KeyIndex) {
        let Some(sender) = self.saving.take() else { return };
        let mut ids = Vec::new();
        self.frozen.take_next(BACKGROUND_ROWS, &mut ids);
        // What was gone at the barrier is not in the snapshot.
        let numbers = self.index.keys(Rows::Ids(&ids)).swap_remove(0);
        let mut numbers = numbers.as_primitive::<Int64Type>().values().iter();
        ids.retain(|id| {
            let (slot, number) = (self.entries[*id as usize].slot, numbers.next());
            let is_there = sets.get(slot as usize).is_some_and(|set| set.number != GONE && Some(&set.number) == number);
            slot != NONE && is_there
        });
        sender.send(self.piece(about, sets, shape, keys, &ids));
        match self.frozen.is_running() {
            true => self.saving = Some(sender),
            false => sender.finish(),
        }
    }

    /// The saved rows of these entries.
    fn piece(&self, about: &SetColumn, sets: &[Set], shape: &Shape, keys: &KeyIndex, ids: &[u32]) -> RecordBatch {
        let (of_key, below) = self.places(sets, keys, ids);
        debug_assert_eq!(of_key.len(), shape.key_types.len(), "owners have the aggregation's keys");
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![1; ids.len()]));
        let columns = of_key.into_iter().chain(below).chain([counts]).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        RecordBatch::try_new_with_options(Arc::clone(&about.pieces), columns, &options).expect("values have the planned columns")
    }
}
