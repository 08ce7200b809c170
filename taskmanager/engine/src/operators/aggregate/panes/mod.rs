//! The panes that are open: groups and accumulators by window, or of the whole stream; what is saved of them and what a store
//! has behind them.
//!
//! A barrier freezes every open pane. On the heap, a pane that fires before it is saved is kept, after it has gone out, until the
//! cursor has been there; nothing changes in it any more. In front of a store only the groups that changed since the last
//! generation are frozen, and they are sent before the first of them goes out. Must never know when panes fire.

mod by_time;
mod emission;
mod evict;
mod firing;
mod given;
mod leaving;
mod pane;
mod ranges;
mod restore;
mod saving;
mod store;
mod stored_rows;
mod warm;

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::key_index::ABSENT;
use levada_state::keyed::HeapShare;
use levada_state::rows::Rows;
use levada_state::snapshot::{Contents, StatePart, pieces};

use super::group_table::GroupTable;
use super::shape::Shape;
use super::shown::Shown;
use crate::aggregate::Groups;
use crate::error::EngineError;
use crate::operator::OperatorContext;
use crate::operators::charge::charge;
use crate::operators::window::{Split, Window};
use leaving::Leaving;
use pane::Stored;
use saving::{Saving, Target};
use store::PaneStore;
use warm::Warming;

pub(super) use emission::Emission;
pub(super) use firing::Firing;
pub(super) use pane::Pane;
pub(super) use ranges::{MergedRows, Ranges};
pub(super) use store::change_of;
pub(super) use stored_rows::StoredRows;

/// Groups that the cursor of a snapshot saves between two batches, about a quarter of a millisecond.
pub(super) const BACKGROUND_ROWS: usize = 4096;

/// Bytes of a table that is kept for the next pane: a larger one is not filled often.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// Groups of a piece where there is no need to stop.
const PIECE_ROWS: usize = 8192;

/// The open panes.
#[derive(Debug, Default)]
pub(super) struct OpenPanes {
    panes: BTreeMap<Window, Pane>,
    saving: Option<Saving>,
    store: Option<PaneStore>,
    /// What the store had when the task began, on its way into memory.
    warming: Option<Warming>,
    /// Panes that have gone out and are not saved yet.
    retired: Vec<Pane>,
    /// Panes that are going out and are not saved yet; each comes back through `retire`.
    away: usize,
    /// Panes of which the store has rows that are to go.
    leaving: Leaving,
    /// The table of a pane that is gone, without groups, for the next one: it need not grow again.
    spare: Option<GroupTable>,
    groups: usize,
    memory_bytes: usize,
    /// What is charged of the memory of all heap states; none in front of a store, which has a share of its own.
    share: Option<HeapShare>,
    shown: Shown,
    /// Bytes that whoever makes windows of the panes holds beside them.
    beside_bytes: usize,
    scratch: Vec<u32>,
}

impl OpenPanes {
    /// The pane of `window`, if it is open.
    pub(super) fn pane(&self, window: Window) -> Option<&Pane> {
        self.panes.get(&window)
    }

    /// The groups of `window`, of which a batch has just made some.
    pub(super) fn made_groups(&self, shape: &Shape, window: Window) -> Result<&GroupTable, EngineError> {
        self.pane(window).map(|pane| &pane.groups).ok_or_else(|| shape.invariant("a batch has made no groups"))
    }

    /// Fills `ids` with the group of each row in the pane of `window`, which it opens; keys without a group get one, with what
    /// the store has of them. Every group is saved as it is, if it must be. Answers how many groups there were before.
    ///
    /// Contract: `take_in` follows with these ids.
    pub(super) fn intern(
        &mut self,
        shape: &Shape,
        window: Window,
        keys: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<usize, EngineError> {
        let pane = open(&mut self.panes, (self.store.as_ref(), &mut self.spare), window, shape);
        if let Some(store) = self.store.as_mut().filter(|_| pane.has_more()) {
            fetch(shape, pane, store, keys, rows, &mut self.scratch)?;
        }
        let before = pane.groups.len();
        pane.groups.intern(keys, rows, ids);
        if let (Some(saving), Some(piece)) = (&self.saving, pane.unsaved(shape, ids, &mut self.scratch)) {
            saving.send(shape, self.store.as_mut(), piece)?;
        }
        pane.frozen.resize(pane.groups.len());
        pane.mark_changed(ids);
        Ok(before)
    }

    /// Takes rows or states into the groups that `intern` gave for them.
    pub(super) fn take_in(
        &mut self,
        shape: &Shape,
        window: Window,
        ids: &[u32],
        inputs: &[ArrayRef],
        rows: usize,
    ) -> Result<(), EngineError> {
        self.change(shape, window, |groups| groups.take_in(shape, groups.groups(ids, rows), inputs))
    }

    /// Changes what the pane of `window` has, which it opens, and counts it anew.
    fn change<T>(&mut self, shape: &Shape, window: Window, act: impl FnOnce(&mut GroupTable) -> T) -> T {
        let pane = open(&mut self.panes, (self.store.as_ref(), &mut self.spare), window, shape);
        let done = act(&mut pane.groups);
        recount(pane, &mut self.groups, &mut self.memory_bytes);
        done
    }

    /// Takes back rows that were taken into groups that `intern` gave for them.
    pub(super) fn take_back(
        &mut self,
        shape: &Shape,
        window: Window,
        ids: &[u32],
        inputs: &[ArrayRef],
        rows: usize,
    ) -> Result<(), EngineError> {
        let groups = &mut self.open_pane(shape, window).groups;
        groups.retract(shape, groups.groups(ids, rows), inputs)
    }

    /// Takes states into groups that `intern` gave; each group once.
    pub(super) fn merge(&mut self, shape: &Shape, window: Window, ids: &[u32], states: &[ArrayRef]) -> Result<(), EngineError> {
        self.change(shape, window, |groups| groups.merge(shape, Groups::Each(ids), states))
    }

    /// Gives groups that `intern` gave these states, whatever they had; each group once.
    pub(super) fn assign(&mut self, shape: &Shape, window: Window, ids: &[u32], states: &[ArrayRef]) {
        self.change(shape, window, |groups| groups.assign(ids, states));
    }

    /// Fills `ids` with the group of each of `rows` rows, `ABSENT` where there is none.
    pub(super) fn find(&mut self, window: Window, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        match self.panes.get_mut(&window) {
            Some(pane) => pane.groups.find(keys, rows, ids),
            None => {
                ids.clear();
                ids.resize(rows, ABSENT);
            }
        }
    }

    /// Removes groups that `intern` gave for the last rows, and that have none any more. In front of a store they stand without rows
    /// until it has heard of it.
    pub(super) fn remove(&mut self, window: Window, ids: &[u32]) {
        if let Some(pane) = self.panes.get_mut(&window).filter(|_| !ids.is_empty()) {
            match pane.stored {
                None => pane.groups.remove(ids),
                Some(_) => pane.groups.reset(ids),
            }
            recount(pane, &mut self.groups, &mut self.memory_bytes);
        }
    }

    /// Takes a batch in that comes at `now`, where that is asked, each row into the pane of its window, but for the windows of
    /// which `is_late` says so: answers which rows are theirs.
    pub(super) fn take_batch(
        &mut self,
        shape: &Shape,
        (batch, now): (&RecordBatch, Option<i64>),
        ids: &mut Vec<u32>,
        mut is_late: impl FnMut(Window) -> bool,
    ) -> Result<Vec<Split>, EngineError> {
        let (keys, inputs) = (shape.keys(batch), shape.inputs(batch));
        let source = shape.windows.as_ref().expect("this aggregation has windows");
        let mut late = Vec::new();
        for (window, split) in source.split_at(batch, now).map_err(|reason| shape.invariant(reason))? {
            if is_late(window) {
                late.push(split);
                continue;
            }
            let rows = split.rows(batch.num_rows());
            let keys = split.columns(&keys).map_err(|source| shape.kernel(source))?;
            let inputs = split.columns(&inputs).map_err(|source| shape.kernel(source))?;
            self.intern(shape, window, &keys, rows, ids)?;
            self.take_in(shape, window, ids, &inputs, rows)?;
        }
        Ok(late)
    }

    /// Takes out the pane that fires next at this watermark.
    pub(super) fn pop_fired(&mut self, shape: &Shape, watermark: i64) -> Result<Option<Pane>, EngineError> {
        match self.first().filter(|window| window.has_fired(watermark)) {
            Some(window) => self.pop(shape, window).map(Some),
            None => Ok(None),
        }
    }

    /// Takes out the pane of `window`, empty where there is none. Its groups are gone from the store but for those that the pane
    /// does not have.
    pub(super) fn pop(&mut self, shape: &Shape, window: Window) -> Result<Pane, EngineError> {
        self.warming = None;
        let pane = open(&mut self.panes, (self.store.as_ref(), &mut self.spare), window, shape);
        if pane.is_known_to_store() {
            // What is being sent has the pane's groups, or belongs to a snapshot that has them: they can be deleted only after it.
            self.save_all(shape)?;
        }
        let pane = self.panes.remove(&window).unwrap_or_else(|| Pane::new(window, GroupTable::new(shape)));
        if self.panes.is_empty() {
            // None may come for a long time.
            self.spare = None;
        }
        self.groups -= pane.counted.0;
        self.memory_bytes -= pane.counted.1;
        self.away += usize::from(pane.frozen.is_running());
        if let (Some(store), Some(stored)) = (&mut self.store, &pane.stored) {
            store.beyond.remove(&window);
            let sent: Vec<u32> = stored.sent.rows().collect();
            for ids in sent.chunks(PIECE_ROWS) {
                store.delete(shape, window, pane.groups.keys(Rows::Ids(ids)), ids.len())?;
            }
        }
        Ok(pane)
    }

    /// Takes a pane back that has gone out: it is dropped, unless a snapshot still needs it.
    pub(super) fn retire(&mut self, pane: Pane) {
        if self.saving.is_some() && pane.frozen.is_running() {
            self.away -= 1;
            self.retired.push(pane);
        } else if !self.panes.is_empty() && pane.groups.memory_bytes() <= SPARE_BYTES_MAX {
            let mut groups = pane.groups;
            groups.clear();
            self.spare = Some(groups);
        }
    }

    /// The synchronous part of a snapshot. One that is still running is finished first; what of a generation was not sent goes
    /// with the snapshot.
    pub(super) fn snapshot(&mut self, shape: &Shape, checkpoint: CheckpointId) -> Result<StatePart, EngineError> {
        if self.saving.as_ref().is_some_and(|saving| saving.checkpoint.is_some()) {
            self.save_all(shape)?;
        }
        let contents = match &mut self.store {
            Some(store) => {
                let database = store.behind.begin_snapshot();
                self.freeze(Some(checkpoint), Target::Store);
                Contents::Database(database)
            }
            None => {
                let (sender, reader) = pieces();
                self.freeze(Some(checkpoint), Target::Pieces(sender));
                reader.into()
            }
        };
        self.save(shape, BACKGROUND_ROWS)?;
        Ok(shape.part(contents))
    }

    /// Begins to save every open pane.
    fn freeze(&mut self, checkpoint: Option<CheckpointId>, target: Target) {
        self.panes.values_mut().for_each(Pane::freeze);
        self.saving = Some(Saving { checkpoint, target, windows: self.panes.keys().copied().collect() });
    }

    /// Saves a further piece of what is running, none while whoever takes it has enough to do, or brings in what the store has, or
    /// deletes what is to leave it; answers whether more remain.
    pub(super) fn background(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        let Some(saving) = &self.saving else {
            return Ok(self.warm(shape)? | self.delete_leaving(shape, BACKGROUND_ROWS)?);
        };
        if saving.is_abandoned() {
            self.give_up();
        } else if !saving.is_full(self.store.as_mut())? {
            self.save(shape, BACKGROUND_ROWS)?;
        }
        Ok(self.saving.is_some() || self.warming.is_some() || !self.leaving.is_empty())
    }

    /// Gives the snapshot of this checkpoint up, if it is running. What a store gets of it is sent all the same.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.checkpoint == Some(checkpoint)) else { return };
        match &mut self.store {
            Some(store) => {
                saving.checkpoint = None;
                store.behind.write_back.abandon_snapshot();
            }
            None => self.give_up(),
        }
    }

    fn give_up(&mut self) {
        self.saving = None;
        self.retired.clear();
        self.away = 0;
        self.panes.values_mut().for_each(|pane| pane.frozen.abandon());
    }

    /// Saves all that is left of what is running.
    fn save_all(&mut self, shape: &Shape) -> Result<(), EngineError> {
        while self.saving.is_some() {
            self.save(shape, PIECE_ROWS)?;
        }
        Ok(())
    }

    /// Saves up to `rows_max` groups, of one pane after the other, as one piece.
    fn save(&mut self, shape: &Shape, rows_max: usize) -> Result<(), EngineError> {
        let Some(saving) = &mut self.saving else { return Ok(()) };
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
            self.scratch.clear();
            pane.frozen.take_next(rows_max - rows, &mut self.scratch);
            if !self.scratch.is_empty() {
                rows += self.scratch.len();
                parts.push(pane.piece(shape, &self.scratch));
            }
            if !pane.frozen.is_running() && self.retired.pop().is_none() {
                saving.windows.pop_front();
            }
        }
        if parts.len() > 1 {
            parts = vec![concat_batches(&shape.pieces, &parts).expect("pieces have one schema")];
        }
        for part in parts {
            saving.send(shape, self.store.as_mut(), part)?;
        }
        if saving.windows.is_empty()
            && self.retired.is_empty()
            && self.away == 0
            && let Some(saving) = self.saving.take()
        {
            saving.finish(self.store.as_mut());
        }
        Ok(())
    }

    /// Writes the node's counters and charges what is held.
    ///
    /// Errors: `OverBudget`.
    pub(super) fn count(&mut self, shape: &Shape, context: &OperatorContext) -> Result<(), EngineError> {
        let bytes = self.held_bytes();
        self.shown.show(&context.metrics, (self.groups, bytes));
        if let Some(store) = &self.store {
            context.metrics.set_store(store.behind.write_back.metrics());
        }
        let charged = self.share.as_mut().map(|share| charge(&shape.uid, share, &[(shape.state_name(), bytes)], shape.remedy));
        charged.unwrap_or(Ok(()))
    }
}

/// The pane of `window`, opened if it was not.
fn open<'a>(
    panes: &'a mut BTreeMap<Window, Pane>,
    (store, spare): (Option<&PaneStore>, &mut Option<GroupTable>),
    window: Window,
    shape: &Shape,
) -> &'a mut Pane {
    panes.entry(window).or_insert_with(|| {
        let stored = store.map(|store| Stored { has_more: store.beyond.contains(&window), ..Stored::default() });
        Pane { stored, ..Pane::new(window, spare.take().unwrap_or_else(|| GroupTable::new(shape))) }
    })
}

/// Counts the pane's groups and bytes anew.
fn recount(pane: &mut Pane, groups: &mut usize, bytes: &mut usize) {
    let now = (pane.groups.live(), pane.memory_bytes());
    *groups = *groups + now.0 - pane.counted.0;
    *bytes = *bytes + now.1 - pane.counted.1;
    pane.counted = now;
}

/// Brings in what the store has of those keys that the pane does not have.
fn fetch(
    shape: &Shape,
    pane: &mut Pane,
    store: &mut PaneStore,
    keys: &[ArrayRef],
    rows: usize,
    scratch: &mut Vec<u32>,
) -> Result<(), EngineError> {
    scratch.clear();
    pane.groups.absent(keys, rows, scratch);
    if scratch.is_empty() {
        return Ok(());
    }
    let absent = UInt32Array::from(std::mem::take(scratch));
    let keys = keys.iter().map(|column| take(column, &absent, None)).collect::<Result<Vec<_>, _>>();
    let found = store.load(shape, pane.window, &keys.map_err(|source| shape.kernel(source))?, absent.len())?;
    pane.groups.absorb(shape, &found.keys, found.rows, &found.states)
}
