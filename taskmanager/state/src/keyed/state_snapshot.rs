//! The snapshots of keyed state, and its way back out of them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, TimestampMillisecondArray};
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::checkpoint::StateKind;
use levada_common::ids::CheckpointId;
use levada_common::keys::key_groups_of_rows;
use levada_common::types::Column;

use crate::cold::{Change, Phase};
use crate::descriptor::StateId;
use crate::format::KEY_PREFIX;
use crate::row_codec::{NAMESPACE_COLUMN, Namespaces, STAMP_UNKNOWN, TTL_COLUMN};
use crate::snapshot::{Contents, StateMeta, StatePart, pieces};

use super::error::{StateError, StateName, StateResult};
use super::overlay::store_failed;
use super::restore::RestoredRows;
use super::state::KeyedState;
use super::table::TableInfo;

/// Items that a barrier saves of each state at once: all of a small one.
const BARRIER_ITEMS: usize = 1024;

/// Items that the cursor of a snapshot saves of each state between two batches, about a quarter of a millisecond.
const BACKGROUND_ITEMS: usize = 4096;

impl KeyedState {
    /// The synchronous part of a snapshot: independent of how much there is.
    ///
    /// Shape of the pieces: `key.<name>` ..., `namespace` where the state is windowed, the columns of a map's key, `_index` of a
    /// list's element, the columns of the value, `_ttl` where it has a time to live.
    /// Contract: between two batches. What has expired is left out.
    pub fn snapshot(&mut self, checkpoint: CheckpointId) -> StateResult<Vec<StatePart>> {
        self.checkpoint = Some(checkpoint);
        if self.overlay.is_some() {
            return self.snapshot_store();
        }
        let clock = self.at.clock;
        let mut parts = Vec::with_capacity(self.states.len());
        self.each_state(|rows, keys| {
            let (sender, reader) = pieces();
            rows.freeze(keys, sender, &clock)?;
            rows.advance(keys, BARRIER_ITEMS)?;
            let TableInfo { name, schema, .. } = rows.info();
            let (uid, name, schema) = (name.uid.clone(), name.state.clone(), Arc::clone(schema));
            parts.push(StatePart { meta: StateMeta { uid, name, kind: StateKind::Keyed, schema }, contents: reader.into() });
            Ok(())
        })?;
        Ok(parts)
    }

    /// Saves further pieces of a running snapshot; answers whether more remain.
    pub fn background(&mut self) -> StateResult<bool> {
        if self.overlay.is_some() {
            return Ok(self.send(BACKGROUND_ITEMS)? || self.warm()?);
        }
        let mut remains = false;
        self.each_state(|rows, keys| {
            remains |= rows.advance(keys, BACKGROUND_ITEMS)?;
            Ok(())
        })?;
        Ok(remains)
    }

    /// Gives a snapshot up whose checkpoint was.
    pub fn notify(&mut self, checkpoint: CheckpointId, completed: bool) {
        if completed || self.checkpoint != Some(checkpoint) {
            return;
        }
        if let Some(overlay) = &mut self.overlay {
            overlay.write_back.abandon_snapshot();
        } else {
            self.states.iter_mut().for_each(|bound| bound.state.rows_mut().abandon());
        }
    }

    /// Takes a state out of a snapshot, one part after the other, whoever wrote them. Rows of other subtasks are left out. Each batch
    /// is given up as soon as its rows are here: a state and all of its encoded rows need not be in memory together.
    ///
    /// Contract: after binding, before the first batch; the clock is set. Errors: a state that was not bound, columns that are
    /// missing or of another type.
    pub fn restore(&mut self, name: &str, batches: impl IntoIterator<Item = RecordBatch>) -> StateResult<()> {
        let name = StateName { uid: self.options.uid.clone(), state: name.into() };
        let Some(id) = self.bindings.find(&name.state) else { return Err(Box::new(StateError::Unclaimed { name })) };
        if self.overlay.is_some() {
            return self.restore_store(id, &name, batches);
        }
        let mut ids = Vec::new();
        for batch in batches {
            let (batch, keys) = self.own_rows(&name, &batch)?;
            ids.clear();
            self.intern(&keys, batch.num_rows(), &mut ids);
            let rows = RestoredRows { batch: &batch, keys: &ids, namespaces: None };
            self.states[id.0].state.rows_mut().restore(&rows, &self.at.clock)?;
        }
        self.charge()
    }

    /// The synchronous part of a snapshot of the store. One that is still being sent, because nobody gave it up, is sent whole.
    fn snapshot_store(&mut self) -> StateResult<Vec<StatePart>> {
        self.open_cold()?;
        if self.overlay.as_ref().is_some_and(|overlay| overlay.write_back.phase() == Phase::Sending { snapshot: true }) {
            self.send_all()?;
        }
        self.expire_cold();
        let Some(overlay) = &mut self.overlay else { return Ok(Vec::new()) };
        let database = overlay.write_back.begin_snapshot();
        self.freeze_dirty();
        let parts = self.states.iter().map(|bound| {
            let TableInfo { name, schema, .. } = bound.state.rows().info();
            let (uid, name, schema) = (name.uid.clone(), name.state.clone(), Arc::clone(schema));
            let meta = StateMeta { uid, name, kind: StateKind::Keyed, schema };
            StatePart { meta, contents: Contents::Database(Arc::clone(&database)) }
        });
        Ok(parts.collect())
    }

    /// Puts the rows of a snapshot into the store as they are, whatever memory there is.
    fn restore_store(
        &mut self,
        id: StateId,
        name: &StateName,
        batches: impl IntoIterator<Item = RecordBatch>,
    ) -> StateResult<()> {
        self.open_cold()?;
        for batch in batches {
            let (batch, _) = self.own_rows(name, &batch)?;
            let rows = self.states[id.0].state.rows_mut();
            let upserts = Some(stored(rows.info(), &batch)?);
            if let Some(cold) = rows.cold() {
                cold.is_whole = false;
                let windows = upserts.as_ref().and_then(|rows| rows.column_by_name(NAMESPACE_COLUMN)).map(Namespaces::of);
                let of_rows = windows.iter().flat_map(|windows| (0..batch.num_rows()).filter_map(|row| windows.get(row)));
                of_rows.for_each(|window| cold.stored.insert(window));
            }
            let (Some(state), Some(overlay)) = (rows.cold_state(), &mut self.overlay) else { continue };
            overlay.change(name, state, vec![Change { deletes: None, upserts }])?;
            if !overlay.write_back.takes_more().map_err(store_failed)? {
                overlay.write_back.wait().map_err(store_failed)?;
            }
        }
        let waited = self.overlay.as_mut().map_or(Ok(()), |overlay| overlay.write_back.wait());
        waited.map_err(store_failed)
    }

    /// The key group of each row.
    pub(super) fn groups_of(&self, keys: &[ArrayRef], rows: usize, groups: &mut Vec<u16>) {
        key_groups_of_rows(keys, rows, self.options.max_parallelism, groups);
    }

    /// The rows of this subtask's key groups, and their key columns.
    pub(super) fn own_rows(&self, name: &StateName, batch: &RecordBatch) -> StateResult<(RecordBatch, Vec<ArrayRef>)> {
        let refuse = |problem| Box::new(StateError::Restore { name: name.clone(), problem });
        let keys_of = |batch: &RecordBatch| {
            let column = |key: &Column| {
                let named = format!("{KEY_PREFIX}{}", key.name);
                let found = batch.column_by_name(&named).cloned();
                let column = found.ok_or_else(|| refuse(format!("its snapshot has no key column \"{}\"", key.name)))?;
                match *column.data_type() == key.ty.to_arrow() {
                    true => Ok(column),
                    false => {
                        let (key, found, expected) = (&key.name, column.data_type(), &key.ty);
                        Err(refuse(format!("its key column \"{key}\" is {found}, the program's is {expected}")))
                    }
                }
            };
            self.options.keys.iter().map(column).collect::<StateResult<Vec<_>>>()
        };
        let keys = keys_of(batch)?;
        let mut groups = Vec::with_capacity(batch.num_rows());
        self.groups_of(&keys, batch.num_rows(), &mut groups);
        if groups.iter().all(|group| self.options.key_groups.contains(*group)) {
            return Ok((batch.clone(), keys));
        }
        let own: BooleanArray = groups.iter().map(|group| Some(self.options.key_groups.contains(*group))).collect();
        let batch = filter_record_batch(batch, &own).map_err(|error: ArrowError| refuse(error.to_string()))?;
        let keys = keys_of(&batch)?;
        Ok((batch, keys))
    }
}

/// The rows of a snapshot in the columns that a store has; without times of their last touch where they expire now and did not,
/// they are touched when they are first looked at.
fn stored(info: &TableInfo, batch: &RecordBatch) -> StateResult<RecordBatch> {
    let refuse = |problem| Box::new(StateError::Restore { name: info.name.clone(), problem });
    let column = |name: &String| match batch.column_by_name(name) {
        Some(column) => Ok(Arc::clone(column)),
        None if name == TTL_COLUMN => {
            Ok(Arc::new(TimestampMillisecondArray::from_value(STAMP_UNKNOWN, batch.num_rows())) as ArrayRef)
        }
        None => Err(refuse(format!("its snapshot has no column \"{name}\""))),
    };
    let columns = info.pieces.fields().iter().map(|field| column(field.name())).collect::<StateResult<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let rows = RecordBatch::try_new_with_options(Arc::clone(&info.pieces), columns, &options);
    rows.map_err(|error| refuse(format!("its snapshot has other columns: {error}")))
}
