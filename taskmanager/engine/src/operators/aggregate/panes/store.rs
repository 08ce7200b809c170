//! The store behind the panes: what memory does not hold of them.
//!
//! The accumulators in memory are its write-back overlay; a row of the store is a group's state columns. Memory wins over the
//! store: what a pane has is never older. Must never know when groups come and go.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{filter_record_batch, not, take};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::keys::{KeyGroupRange, key_groups_of_rows};
use levada_state::cold::{Addresses, Change, ColdStateId, ColdStores, Scan, Scope, Seal, Within};

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use crate::error::EngineError;
use crate::operators::behind::{Behind, failed};
use crate::operators::window::{NAMESPACE_COLUMN, Window};

/// Groups of a store, by columns.
pub(super) struct StoredGroups {
    pub(super) rows: usize,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) states: Vec<ArrayRef>,
}

impl StoredGroups {
    /// Those of which `groups` has none of the same key.
    pub(super) fn absent_from(&self, shape: &Shape, groups: &mut GroupTable) -> Result<Self, EngineError> {
        let mut absent = Vec::new();
        groups.absent(&self.keys, self.rows, &mut absent);
        let absent = UInt32Array::from(absent);
        let some = |columns: &[ArrayRef]| {
            let columns = columns.iter().map(|column| take(column, &absent, None)).collect::<Result<_, _>>();
            columns.map_err(|source| shape.kernel(source))
        };
        Ok(Self { rows: absent.len(), keys: some(&self.keys)?, states: some(&self.states)? })
    }
}

/// The store of the panes of one aggregation in one task.
#[derive(Debug)]
pub(super) struct PaneStore {
    pub(super) behind: Behind,
    state: ColdStateId,
    /// The task's.
    pub(super) key_groups: KeyGroupRange,
    /// Windows of which the store may have groups that memory does not.
    pub(super) beyond: BTreeSet<Window>,
    /// The end of what was written back between generations: a look may not find it yet.
    written_back: Option<Seal>,
}

impl PaneStore {
    /// Takes up the aggregation's state in its store, with what was restored there.
    pub(super) fn open(shape: &Shape, stores: &dyn ColdStores, key_groups: KeyGroupRange) -> Result<Self, EngineError> {
        let mut behind = Behind::open(&shape.uid, stores)?;
        let state = behind.open_state(shape.state_name(), &shape.state)?;
        let namespaces = behind.write_back.store().namespaces(state, key_groups).map_err(|source| failed(&shape.uid, source))?;
        let beyond = namespaces.into_iter().map(Window::of_store).collect();
        Ok(Self { behind, state, key_groups, beyond, written_back: None })
    }

    /// What the store has of these keys; keys that are named twice are found once.
    pub(super) fn load(
        &mut self,
        shape: &Shape,
        window: Window,
        keys: &[ArrayRef],
        rows: usize,
    ) -> Result<StoredGroups, EngineError> {
        let loaded = self.behind.load(self.state, &addresses(shape, window, keys.to_vec(), rows))?;
        let found = UInt32Array::from(loaded.positions);
        let keys = keys.iter().map(|column| take(column, &found, None)).collect::<Result<_, _>>();
        let keys = keys.map_err(|source| shape.kernel(source))?;
        Ok(StoredGroups { rows: found.len(), keys, states: loaded.rows.columns()[shape.below..].to_vec() })
    }

    /// Begins to visit what is written of a window in these key groups.
    pub(super) fn scan(&mut self, window: Window, groups: KeyGroupRange) -> Result<Scan, EngineError> {
        self.behind.scan(self.state, Scope { groups, within: Within::Exactly(window.in_store()) })
    }

    /// A batch of a scan, by columns.
    pub(super) fn groups_of(shape: &Shape, batch: &RecordBatch) -> StoredGroups {
        let (keys, states) = (shape.key_types.len() - shape.below, shape.plan.state_fields().len());
        let (before, states) = batch.columns().split_at(batch.num_columns() - states);
        let below = &before[before.len() - shape.below..];
        StoredGroups {
            rows: batch.num_rows(),
            keys: before[..keys].iter().chain(below).cloned().collect(),
            states: states.to_vec(),
        }
    }

    /// The key groups of these keys' rows.
    pub(super) fn groups_of_keys(&mut self, keys: &[ArrayRef], rows: usize) -> Vec<u16> {
        let mut groups = Vec::with_capacity(rows);
        let max_parallelism = self.behind.write_back.store().layout(self.state).max_parallelism();
        key_groups_of_rows(keys, rows, max_parallelism, &mut groups);
        groups
    }

    /// Sends groups as they are now; those that are gone are deleted.
    pub(super) fn upsert(&mut self, shape: &Shape, piece: RecordBatch) -> Result<(), EngineError> {
        self.behind.change(self.state, change_of(shape, piece)?)
    }

    /// What was sent between generations, of groups that memory does not have, has to be written before anything is looked for: until
    /// then there is no room.
    ///
    /// Contract: what was sent is of windows of which nothing is looked for before `is_ready` was asked.
    pub(super) fn hold(&mut self) {
        self.written_back = Some(self.behind.write_back.store().seal());
    }

    /// Says that these groups are gone; of the whole stream nothing is said where its state ends with its data, as it does unless
    /// results are given before.
    ///
    /// Contract: no generation is being sent, whose groups would come after them.
    pub(super) fn delete(&mut self, shape: &Shape, window: Window, keys: Vec<ArrayRef>, rows: usize) -> Result<(), EngineError> {
        if rows == 0 || (window == Window::WHOLE && !shape.plan.has_marks()) {
            return Ok(());
        }
        self.behind.change(self.state, Change { deletes: Some(addresses(shape, window, keys, rows)), upserts: None })
    }

    /// Whether panes that hold so many bytes may take more rows; where not, the store wakes the task when they may.
    pub(super) fn is_ready(&mut self, shape: &Shape, held_bytes: usize) -> Result<bool, EngineError> {
        if let Some(seal) = self.written_back {
            if !self.behind.write_back.store().is_written(seal).map_err(|source| failed(&shape.uid, source))? {
                return Ok(false);
            }
            self.written_back = None;
        }
        self.behind.is_ready(held_bytes)
    }
}

/// Groups as they are now; those that are gone are deleted.
pub(in super::super) fn change_of(shape: &Shape, piece: RecordBatch) -> Result<Change, EngineError> {
    match shape.rows_column {
        None => Ok(Change { deletes: None, upserts: Some(piece) }),
        Some(column) => without_gone(shape, column, piece),
    }
}

/// The changes to a store of which groups without rows, by this column of the state, are gone.
fn without_gone(shape: &Shape, column: usize, piece: RecordBatch) -> Result<Change, EngineError> {
    let first = piece.num_columns() - shape.plan.state_fields().len();
    let there: BooleanArray =
        piece.column(first + column).as_primitive::<Int64Type>().values().iter().map(|rows| Some(*rows != 0)).collect();
    if !there.has_false() {
        return Ok(Change { deletes: None, upserts: Some(piece) });
    }
    let failed = |source| shape.kernel(source);
    let gone = filter_record_batch(&piece, &not(&there).map_err(failed)?).map_err(failed)?;
    let StoredGroups { rows, keys, .. } = PaneStore::groups_of(shape, &gone);
    let below = keys[keys.len() - shape.below..].to_vec();
    let (keys, namespace) = (keys[..keys.len() - shape.below].to_vec(), gone.column_by_name(NAMESPACE_COLUMN).cloned());
    let deletes = Addresses { keys, namespace, below, rows };
    Ok(Change { deletes: Some(deletes), upserts: Some(filter_record_batch(&piece, &there).map_err(failed)?) })
}

fn addresses(shape: &Shape, window: Window, mut keys: Vec<ArrayRef>, rows: usize) -> Addresses {
    let below = keys.split_off(keys.len() - shape.below);
    Addresses { keys, namespace: window.namespace_column(rows), below, rows }
}
