//! The panes that are open, and the snapshot of them that may be running.
//!
//! A barrier freezes every open pane. A pane that fires before it is saved is kept, after it has gone out, until the cursor has
//! been there; nothing changes in it any more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::concat_batches;
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_state::rows::Rows;
use levada_state::snapshot::{PieceSender, StateMeta, StatePart, pieces};

use super::super::group_table::GroupTable;
use super::super::restore::restored_rows;
use super::super::shape::Shape;
use super::super::table::BACKGROUND_ROWS;
use super::split::{Split, split_windows};
use super::{Pane, Window};
use crate::error::EngineError;
use crate::operator::RestoredState;

/// A snapshot that is running.
#[derive(Debug)]
struct Saving {
    checkpoint: CheckpointId,
    sender: PieceSender,
    /// Windows that were open at the barrier and may have unsaved groups.
    windows: VecDeque<Window>,
}

/// The open panes.
#[derive(Debug, Default)]
pub(super) struct OpenPanes {
    panes: BTreeMap<Window, Pane>,
    saving: Option<Saving>,
    /// Panes that have gone out and are not saved yet.
    retired: Vec<Pane>,
    /// Panes that are going out and are not saved yet; each comes back through `retire`.
    away: usize,
    groups: usize,
    memory_bytes: usize,
    ids: Vec<u32>,
    unsaved: Vec<u32>,
}

impl OpenPanes {
    /// Number of groups in all open panes.
    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    /// Bytes held by all open panes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Takes rows or states into the pane of `window`.
    pub(super) fn take_in(
        &mut self,
        shape: &Shape,
        window: Window,
        keys: &[ArrayRef],
        inputs: &[ArrayRef],
        rows: usize,
    ) -> Result<(), EngineError> {
        let (pane, groups_before, bytes_before) = open(&mut self.panes, window, shape);
        pane.groups.intern(keys, rows, &mut self.ids);
        if let Some(saving) = self.saving.as_ref().filter(|_| pane.frozen.is_running()) {
            self.unsaved.clear();
            pane.frozen.take_unsaved(&self.ids, &mut self.unsaved);
            if !self.unsaved.is_empty() {
                saving.sender.send(piece(shape, pane, &self.unsaved));
            }
        }
        pane.frozen.resize(pane.groups.len());
        pane.groups.take_in(shape, pane.groups.groups(&self.ids, rows), inputs)?;
        self.groups = self.groups + pane.groups.len() - groups_before;
        self.memory_bytes = self.memory_bytes + pane.memory_bytes() - bytes_before;
        Ok(())
    }

    /// Takes out the pane that fires next at this watermark.
    pub(super) fn pop_fired(&mut self, watermark: i64) -> Option<Pane> {
        let entry = self.panes.first_entry().filter(|entry| entry.key().has_fired(watermark))?;
        let pane = entry.remove();
        self.groups -= pane.groups.len();
        self.memory_bytes -= pane.memory_bytes();
        self.away += usize::from(pane.frozen.is_running());
        Some(pane)
    }

    /// Takes a pane back that has gone out: it is dropped, unless a snapshot still needs it.
    pub(super) fn retire(&mut self, pane: Pane) {
        if self.saving.is_some() && pane.frozen.is_running() {
            self.away -= 1;
            self.retired.push(pane);
        }
    }

    /// The synchronous part of a snapshot. One that is still running is finished first.
    pub(super) fn snapshot(&mut self, shape: &Shape, checkpoint: CheckpointId) -> StatePart {
        while self.saving.is_some() {
            self.save(shape, BACKGROUND_ROWS);
        }
        self.panes.values_mut().for_each(|pane| pane.frozen.freeze());
        let (sender, reader) = pieces();
        self.saving = Some(Saving { checkpoint, sender, windows: self.panes.keys().copied().collect() });
        self.save(shape, BACKGROUND_ROWS);
        let schema = Arc::clone(&shape.state);
        let meta = StateMeta { uid: shape.uid.clone(), name: shape.state_name().into(), kind: StateKind::Keyed, schema };
        StatePart { meta, contents: reader.into() }
    }

    /// Saves a further piece of a running snapshot, none while the background has enough to do; answers whether more remain.
    pub(super) fn save_next(&mut self, shape: &Shape) -> bool {
        match &self.saving {
            None => return false,
            Some(saving) if saving.sender.is_abandoned() => self.abandon(saving.checkpoint),
            Some(saving) if saving.sender.is_full() => {}
            Some(_) => self.save(shape, BACKGROUND_ROWS),
        }
        self.saving.is_some()
    }

    /// Gives the snapshot of this checkpoint up, if it is running.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.saving.as_ref().is_some_and(|saving| saving.checkpoint == checkpoint) {
            self.saving = None;
            self.retired.clear();
            self.away = 0;
            self.panes.values_mut().for_each(|pane| pane.frozen.abandon());
        }
    }

    /// Saves up to `rows_max` groups, of one pane after the other, as one piece.
    fn save(&mut self, shape: &Shape, rows_max: usize) {
        let Some(saving) = &mut self.saving else { return };
        let (mut parts, mut rows) = (Vec::new(), 0);
        while rows < rows_max {
            let pane = match self.retired.last_mut() {
                Some(pane) => pane,
                None => match saving.windows.front() {
                    None => break,
                    Some(window) => match self.panes.get_mut(window) {
                        Some(pane) => pane,
                        // It has fired: it is saved already, or among the retired, or away and comes back.
                        None => {
                            saving.windows.pop_front();
                            continue;
                        }
                    },
                },
            };
            self.unsaved.clear();
            pane.frozen.take_next(rows_max - rows, &mut self.unsaved);
            if !self.unsaved.is_empty() {
                rows += self.unsaved.len();
                parts.push(piece(shape, pane, &self.unsaved));
            }
            if !pane.frozen.is_running() && self.retired.pop().is_none() {
                saving.windows.pop_front();
            }
        }
        if parts.len() > 1 {
            parts = vec![concat_batches(&shape.pieces, &parts).expect("pieces have one schema")];
        }
        parts.into_iter().for_each(|part| saving.sender.send(part));
        if saving.windows.is_empty()
            && self.retired.is_empty()
            && self.away == 0
            && let Some(saving) = self.saving.take()
        {
            saving.sender.finish();
        }
    }

    /// Takes what was in the snapshot that the task starts from.
    pub(super) fn restore(
        &mut self,
        shape: &Shape,
        key_groups: KeyGroupRange,
        restored: &[RestoredState],
    ) -> Result<(), EngineError> {
        for restored in restored_rows(shape, key_groups, restored)? {
            let namespace = restored.namespace.as_ref().expect("a pane has a window").as_struct();
            let bound = |at: usize| namespace.column(at).as_primitive::<TimestampMillisecondType>().values();
            for (window, split) in split_windows(bound(0), bound(1)) {
                let rows = split.rows(restored.rows);
                let columns = |split: &Split, columns: &[ArrayRef]| split.columns(columns).map_err(|source| shape.kernel(source));
                let (pane, groups_before, bytes_before) = open(&mut self.panes, window, shape);
                pane.groups.intern(&columns(&split, &restored.keys)?, rows, &mut self.ids);
                pane.groups.merge(shape, pane.groups.groups(&self.ids, rows), &columns(&split, &restored.states)?)?;
                pane.frozen.resize(pane.groups.len());
                self.groups = self.groups + pane.groups.len() - groups_before;
                self.memory_bytes = self.memory_bytes + pane.memory_bytes() - bytes_before;
            }
        }
        Ok(())
    }
}

/// The pane of `window`, opened if it was not, with the groups and bytes that are counted for it.
fn open<'a>(panes: &'a mut BTreeMap<Window, Pane>, window: Window, shape: &Shape) -> (&'a mut Pane, usize, usize) {
    let mut is_new = false;
    let pane = panes.entry(window).or_insert_with(|| {
        is_new = true;
        Pane::new(window, GroupTable::new(shape))
    });
    let (groups, bytes) = if is_new { (0, 0) } else { (pane.groups.len(), pane.memory_bytes()) };
    (pane, groups, bytes)
}

/// The saved rows of these groups of a pane.
fn piece(shape: &Shape, pane: &Pane, ids: &[u32]) -> RecordBatch {
    let rows = Rows::Ids(ids);
    let namespace = pane.window.namespace_column(ids.len());
    let columns = pane.groups.keys(rows).into_iter().chain([namespace]).chain(pane.groups.states(rows));
    RecordBatch::try_new(Arc::clone(&shape.pieces), columns.collect()).expect("states have the planned columns")
}
