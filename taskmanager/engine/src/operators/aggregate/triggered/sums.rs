//! Accumulators by group: those of a group that has taken in rows since it was made, or emptied, and no others.
//!
//! Rows are added up by group first, so that a group which begins anew takes its first state whole. A snapshot is taken by saving a
//! group before it changes, and the others beside the rows. Must never know when a group gives its results.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::ids::CheckpointId;
use levada_state::bits::Bits;
use levada_state::freeze::FrozenRows;
use levada_state::rows::Rows;
use levada_state::snapshot::{PieceSender, StatePart, pieces};

use super::super::panes::BACKGROUND_ROWS;
use super::super::shape::Shape;
use crate::aggregate::{AggregateSet, CallOverflow, Groups};
use crate::error::EngineError;
use crate::operators::process::groups::{Place, rows_of};
use crate::operators::window::namespace_column;

/// No slot, or no part.
const NONE: u32 = u32::MAX;

/// The accumulators.
pub(super) struct Sums {
    /// By slot.
    set: AggregateSet,
    /// What a batch has of each of its groups; filled anew each time.
    parts: AggregateSet,
    /// By group: its slot.
    slots: Vec<u32>,
    /// By slot: its group.
    groups: Vec<u32>,
    free: Vec<u32>,
    /// Slots that belong to a group.
    taken: Bits,
    /// By group: its part of a batch; all `NONE` between two.
    part_of: Vec<u32>,
    frozen: FrozenRows,
    saving: Option<(CheckpointId, PieceSender)>,
}

impl Sums {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            set: shape.plan.accumulators(),
            parts: shape.plan.accumulators(),
            slots: Vec::new(),
            groups: Vec::new(),
            free: Vec::new(),
            taken: Bits::default(),
            part_of: Vec::new(),
            frozen: FrozenRows::new(),
            saving: None,
        }
    }

    /// The results of one group over no rows.
    pub(super) fn nothing(shape: &Shape) -> Vec<ArrayRef> {
        let mut set = shape.plan.accumulators();
        set.resize(1);
        set.read(Rows::Span { start: 0, end: 1 })
    }

    /// Whether the group has taken in rows.
    pub(super) fn has(&self, group: u32) -> bool {
        self.slot(group) != NONE
    }

    fn slot(&self, group: u32) -> u32 {
        self.slots.get(group as usize).copied().unwrap_or(NONE)
    }

    /// The results of these groups, each of which has taken in rows.
    pub(super) fn read(&self, groups: &[u32]) -> Vec<ArrayRef> {
        let slots: Vec<u32> = groups.iter().map(|group| self.slots[*group as usize]).collect();
        self.set.read(Rows::Ids(&slots))
    }

    /// Adds rows of these groups up.
    pub(super) fn add(
        &mut self,
        shape: &Shape,
        place: &mut Place<'_>,
        groups: &[u32],
        inputs: &[ArrayRef],
    ) -> Result<(), EngineError> {
        self.part_of.resize(place.groups.numbers().max(self.part_of.len()), NONE);
        let (mut ids, mut parts) = (Vec::new(), Vec::with_capacity(groups.len()));
        for group in groups {
            let part = &mut self.part_of[*group as usize];
            if *part == NONE {
                *part = ids.len() as u32;
                ids.push(*group);
            }
            parts.push(*part);
        }
        ids.iter().for_each(|group| self.part_of[*group as usize] = NONE);
        self.parts.clear();
        self.parts.resize(ids.len());
        let added = self.parts.take_in(Groups::Each(&parts), inputs);
        added.map_err(|overflow| of_group(shape, place, &overflow, ids[overflow.group]))?;
        let states = self.parts.states(Rows::Span { start: 0, end: ids.len() });
        self.put(shape, place, &ids, &states)
    }

    /// Adds states of these groups up.
    pub(super) fn put(
        &mut self,
        shape: &Shape,
        place: &mut Place<'_>,
        groups: &[u32],
        states: &[ArrayRef],
    ) -> Result<(), EngineError> {
        self.slots.resize(place.groups.numbers().max(self.slots.len()), NONE);
        let [mut new, mut known] = [(); 2].map(|()| (Vec::new(), Vec::new()));
        for (row, group) in (0..).zip(groups) {
            let (slot, is_new) = match self.slots[*group as usize] {
                NONE => (self.take_slot(*group), true),
                slot => (slot, false),
            };
            let (rows, slots) = if is_new { &mut new } else { &mut known };
            rows.push(row);
            slots.push(slot);
        }
        self.touch(shape, place, &known.1);
        self.set.resize(self.groups.len());
        self.frozen.resize(self.groups.len());
        let of = |rows: &[u32]| rows_of(states, rows).map_err(|source| shape.kernel(source));
        if !new.0.is_empty() {
            self.set.assign(&new.1, &of(&new.0)?);
        }
        if !known.0.is_empty() {
            let groups = &self.groups;
            let merged = self.set.merge(Groups::Each(&known.1), &of(&known.0)?);
            merged.map_err(|overflow| of_group(shape, place, &overflow, groups[overflow.group]))?;
        }
        Ok(())
    }

    /// A slot for a group that has none. Those that never were one rise.
    fn take_slot(&mut self, group: u32) -> u32 {
        let slot = self.free.pop().unwrap_or(self.groups.len() as u32);
        if slot as usize == self.groups.len() {
            self.groups.push(group);
        } else {
            self.groups[slot as usize] = group;
        }
        self.slots[group as usize] = slot;
        self.taken.set_one(slot);
        slot
    }

    /// Adds what a group has to what another one has, and empties it.
    pub(super) fn merge(&mut self, shape: &Shape, place: &mut Place<'_>, into: u32, from: u32) -> Result<(), EngineError> {
        if !self.has(from) {
            return Ok(());
        }
        let states = self.set.states(Rows::Ids(&[self.slot(from)]));
        self.clear(shape, place, &[from]);
        self.put(shape, place, &[into], &states)
    }

    /// Empties groups.
    pub(super) fn clear(&mut self, shape: &Shape, place: &mut Place<'_>, groups: &[u32]) {
        let slots: Vec<u32> = groups.iter().map(|group| self.slot(*group)).filter(|slot| *slot != NONE).collect();
        self.touch(shape, place, &slots);
        if !slots.is_empty() {
            // What has no fixed size is given back, rows of a library and texts.
            self.set.reset(&slots);
        }
        for slot in slots {
            self.slots[self.groups[slot as usize] as usize] = NONE;
            self.taken.clear(slot);
            self.free.push(slot);
        }
    }

    /// The synchronous part of a snapshot. One that still runs is finished first.
    pub(super) fn snapshot(&mut self, shape: &Shape, place: &mut Place<'_>, checkpoint: CheckpointId) -> StatePart {
        while self.saving.is_some() {
            self.save(shape, place);
        }
        let (sender, reader) = pieces();
        self.frozen.freeze_these(self.taken.words());
        self.saving = Some((checkpoint, sender));
        self.save(shape, place);
        shape.part(reader.into())
    }

    /// Saves a further piece of a running snapshot, none while the background has enough to do; whether more remains.
    pub(super) fn background(&mut self, shape: &Shape, place: &mut Place<'_>) -> bool {
        match &self.saving {
            Some((_, sender)) if sender.is_abandoned() => self.give_up(),
            Some((_, sender)) if !sender.is_full() => self.save(shape, place),
            _ => {}
        }
        self.saving.is_some()
    }

    /// Gives the snapshot of this checkpoint up, if it runs.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.saving.as_ref().is_some_and(|(running, _)| *running == checkpoint) {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.saving = None;
        self.frozen.abandon();
    }

    fn save(&mut self, shape: &Shape, place: &mut Place<'_>) {
        let mut slots = Vec::new();
        self.frozen.take_next(BACKGROUND_ROWS, &mut slots);
        self.send(shape, place, &slots);
        if !self.frozen.is_running()
            && let Some((_, sender)) = self.saving.take()
        {
            sender.finish();
        }
    }

    /// These slots are about to change: what of them a running snapshot has still to save is saved now.
    fn touch(&mut self, shape: &Shape, place: &mut Place<'_>, slots: &[u32]) {
        if self.frozen.is_running() {
            let mut unsaved = Vec::new();
            self.frozen.take_unsaved(slots, &mut unsaved);
            self.send(shape, place, &unsaved);
        }
    }

    fn send(&self, shape: &Shape, place: &Place<'_>, slots: &[u32]) {
        let Some((_, sender)) = self.saving.as_ref().filter(|_| !slots.is_empty()) else { return };
        let of_slots = slots.iter().map(|slot| place.groups.get(self.groups[*slot as usize]));
        let keys: Vec<u32> = of_slots.clone().map(|group| group.key).collect();
        let namespace = shape.is_windowed.then(|| {
            let bounds = |bound: fn(&(i64, i64)) -> i64| {
                let names = of_slots.clone().map(|group| (group.name.start, group.name.end));
                Arc::new(TimestampMillisecondArray::from_iter_values(names.map(|name| bound(&name)))) as ArrayRef
            };
            namespace_column(bounds(|name| name.0), bounds(|name| name.1))
        });
        let columns = place.inner.keyed.key_columns(&keys).into_iter().chain(namespace);
        let columns = columns.chain(self.set.states(Rows::Ids(slots))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(slots.len()));
        let piece = RecordBatch::try_new_with_options(shape.pieces.clone(), columns, &options);
        sender.send(piece.expect("states have the planned columns"));
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let numbers = self.slots.capacity() + self.groups.capacity() + self.free.capacity() + self.part_of.capacity();
        let bits = self.taken.memory_bytes() + self.frozen.memory_bytes();
        self.set.memory_bytes() + self.parts.memory_bytes() + numbers * size_of::<u32>() + bits
    }
}

/// A group's sum left its type, or a library cannot take its rows.
fn of_group(shape: &Shape, place: &Place<'_>, overflow: &CallOverflow<'_>, group: u32) -> EngineError {
    shape.overflow(overflow, &place.inner.keyed.key_columns(&[place.groups.get(group).key]))
}
