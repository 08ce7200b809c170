//! The store behind the panes: what memory does not hold of them.
//!
//! The accumulators in memory are its write-back overlay; a row of the store is a group's state columns. Memory wins over the
//! store: what a pane has is never older. Must never know when groups come and go.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::record_batch::RecordBatch;
use levada_common::keys::KeyGroupRange;
use levada_state::cold::{Addresses, Change, ColdError, ColdStateId, ColdStores, Phase, Scan, Scope, Seal, Within, WriteBack};
use levada_state::snapshot::DatabaseSnapshot;

use super::super::shape::Shape;
use crate::error::EngineError;
use crate::operators::window::Window;

/// Groups of a store, by columns.
pub(super) struct StoredGroups {
    pub(super) rows: usize,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) states: Vec<ArrayRef>,
}

/// The store of one aggregation in one task.
#[derive(Debug)]
pub(super) struct PaneStore {
    pub(super) write_back: WriteBack,
    state: ColdStateId,
    key_groups: KeyGroupRange,
    /// Windows of which the store may have groups that memory does not.
    pub(super) beyond: BTreeSet<Window>,
    /// The end of what was written back between generations: a look may not find it yet.
    written_back: Option<Seal>,
}

impl PaneStore {
    /// Takes up the aggregation's state in its store, with what was restored there.
    pub(super) fn open(shape: &Shape, stores: &dyn ColdStores, key_groups: KeyGroupRange) -> Result<Self, EngineError> {
        let fail = |source| failed(shape, source);
        let mut write_back = WriteBack::new(stores.open(&shape.uid).map_err(fail)?);
        let store = write_back.store();
        let state = store.open_state(shape.state_name(), &shape.state, 0).map_err(fail)?;
        let namespaces = store.namespaces(state, key_groups).map_err(fail)?;
        let beyond = namespaces.into_iter().map(Window::of_store).collect();
        Ok(Self { write_back, state, key_groups, beyond, written_back: None })
    }

    /// What the store has of these keys; keys that are named twice are found once.
    pub(super) fn load(
        &mut self,
        shape: &Shape,
        window: Window,
        keys: &[ArrayRef],
        rows: usize,
    ) -> Result<StoredGroups, EngineError> {
        let addresses = addresses(window, keys.to_vec(), rows);
        let loaded = self.write_back.store().load(self.state, &addresses, usize::MAX);
        let loaded = loaded.map_err(|source| failed(shape, source))?;
        let found = UInt32Array::from(loaded.positions);
        let keys = keys.iter().map(|column| take(column, &found, None)).collect::<Result<_, _>>();
        let keys = keys.map_err(|source| shape.kernel(source))?;
        Ok(StoredGroups { rows: found.len(), keys, states: loaded.rows.columns().to_vec() })
    }

    /// Begins to visit what is written of a window.
    pub(super) fn scan(&mut self, shape: &Shape, window: Window) -> Result<Scan, EngineError> {
        let scope = Scope { groups: self.key_groups, within: Within::Exactly(window.in_store()) };
        self.write_back.store().scan(self.state, scope).map_err(|source| failed(shape, source))
    }

    /// A batch of a scan, by columns.
    pub(super) fn groups_of(shape: &Shape, batch: &RecordBatch) -> StoredGroups {
        let (keys, states) = (shape.key_types.len(), shape.plan.state_fields().len());
        let columns = batch.columns();
        StoredGroups {
            rows: batch.num_rows(),
            keys: columns[..keys].to_vec(),
            states: columns[columns.len() - states..].to_vec(),
        }
    }

    /// Sends groups as they are now.
    pub(super) fn upsert(&mut self, shape: &Shape, piece: RecordBatch) -> Result<(), EngineError> {
        self.change(shape, Change { deletes: None, upserts: Some(piece) })
    }

    /// What was sent between generations, of groups that memory does not have, has to be written before anything is looked for: until
    /// then there is no room.
    ///
    /// Contract: what was sent is of windows of which nothing is looked for before `is_ready` was asked.
    pub(super) fn hold(&mut self) {
        self.written_back = Some(self.write_back.store().seal());
    }

    /// Says that these groups are gone; of the whole stream nothing is said where its state ends with its data, as it does unless
    /// results are given before.
    ///
    /// Contract: no generation is being sent, whose groups would come after them.
    pub(super) fn delete(&mut self, shape: &Shape, window: Window, keys: Vec<ArrayRef>, rows: usize) -> Result<(), EngineError> {
        if rows == 0 || (window == Window::WHOLE && !shape.plan.has_marks()) {
            return Ok(());
        }
        self.change(shape, Change { deletes: Some(addresses(window, keys, rows)), upserts: None })
    }

    fn change(&mut self, shape: &Shape, change: Change) -> Result<(), EngineError> {
        self.write_back.change(self.state, change).map_err(|source| failed(shape, source))
    }

    /// Begins a snapshot, which is of the store as it is when the generation was sent.
    pub(super) fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot> {
        self.write_back.begin_snapshot()
    }

    /// Everything of the generation was sent.
    pub(super) fn end_generation(&mut self) {
        self.write_back.end_generation();
    }

    /// Whether more may be sent now; where not, the store wakes the task when it may.
    pub(super) fn takes_more(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        self.write_back.takes_more().map_err(|source| failed(shape, source))
    }

    /// Whether panes that hold so many bytes may take more rows; where not, the store wakes the task when they may.
    pub(super) fn is_ready(&mut self, shape: &Shape, held_bytes: usize) -> Result<bool, EngineError> {
        if let Some(seal) = self.written_back {
            if !self.write_back.store().is_written(seal).map_err(|source| failed(shape, source))? {
                return Ok(false);
            }
            self.written_back = None;
        }
        let is_ready = self.write_back.is_ready(held_bytes).map_err(|source| failed(shape, source))?;
        // Between generations it is what goes out that the store hears of.
        Ok(is_ready && (self.write_back.phase() != Phase::Idle || self.takes_more(shape)?))
    }

    /// What the background is at.
    pub(super) fn look(&mut self, shape: &Shape) -> Result<Phase, EngineError> {
        self.write_back.look().map_err(|source| failed(shape, source))
    }

    /// Waits until everything sent is written: only before rows come.
    pub(super) fn wait(&mut self, shape: &Shape) -> Result<(), EngineError> {
        self.write_back.wait().map_err(|source| failed(shape, source))
    }
}

fn addresses(window: Window, keys: Vec<ArrayRef>, rows: usize) -> Addresses {
    Addresses { keys, namespace: window.namespace_column(rows), below: Vec::new(), rows }
}

/// The store's failure, with the operator's name.
#[cold]
pub(super) fn failed(shape: &Shape, source: ColdError) -> EngineError {
    EngineError::Store { uid: shape.uid.clone(), source: Box::new(source) }
}
