//! Keys and their aggregates: an index and, beside it, accumulators by row id.

use arrow::array::{ArrayRef, StructArray};
use levada_state::bits::Bits;
use levada_state::key_index::{ABSENT, KeyIndex};
use levada_state::rows::Rows;

use super::shape::Shape;
use crate::aggregate::{AggregateSet, Groups, Marks};
use crate::error::EngineError;

/// The groups of a table or pane.
#[derive(Debug)]
pub(super) struct GroupTable {
    index: KeyIndex,
    set: AggregateSet,
    /// Ids of groups that were removed and are not given to others yet.
    gone: Bits,
    reused: Vec<u32>,
}

impl GroupTable {
    /// Without groups.
    pub(super) fn new(shape: &Shape) -> Self {
        Self { index: KeyIndex::new(&shape.key_types), set: shape.plan.accumulators(), gone: Bits::default(), reused: Vec::new() }
    }

    /// Number of ids that were given out: of groups that are there, and of those that were removed.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Number of groups that are there.
    pub(super) fn live(&self) -> usize {
        self.index.live()
    }

    /// Whether there is one group, without key.
    pub(super) fn is_one(&self) -> bool {
        self.index.is_unit()
    }

    /// The groups that are there, where some were removed.
    pub(super) fn standing(&self) -> Option<Bits> {
        self.gone.rows().next()?;
        let mut standing = Bits::ones(self.len());
        self.gone.rows().for_each(|gone| standing.clear(gone));
        Some(standing)
    }

    /// Removes groups, each of which is there; their ids are given to new ones. The one group without key stays, with the state of no
    /// rows.
    pub(super) fn remove(&mut self, ids: &[u32]) {
        if self.index.is_unit() {
            return self.reset(ids);
        }
        for id in ids {
            self.index.remove(*id);
            self.gone.set_one(*id);
        }
    }

    /// Gives groups the state of no rows; each once.
    pub(super) fn reset(&mut self, ids: &[u32]) {
        self.set.reset(ids);
    }

    /// Fills `ids` with the group of each of `rows` rows; new keys become new groups. Without key columns there is one id for
    /// all of them.
    pub(super) fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        ids.clear();
        self.index.intern(keys, if self.index.is_unit() { rows.min(1) } else { rows }, ids);
        self.set.resize(self.index.len());
        self.index.drain_reused(&mut self.reused);
        if !self.reused.is_empty() {
            self.set.reset(&self.reused);
            self.reused.drain(..).for_each(|id| self.gone.clear(id));
        }
    }

    /// Fills `ids` with the group of each of `rows` rows, `ABSENT` where there is none.
    pub(super) fn find(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        ids.clear();
        self.index.find(keys, rows, ids);
    }

    /// The groups of the `rows` rows that were interned last.
    pub(super) fn groups<'a>(&self, ids: &'a [u32], rows: usize) -> Groups<'a> {
        if self.index.is_unit() { Groups::One { group: 0, rows } } else { Groups::Each(ids) }
    }

    /// Appends the places of those of `rows` rows whose key is no group; without key columns at most one.
    pub(super) fn absent(&mut self, keys: &[ArrayRef], rows: usize, absent: &mut Vec<u32>) {
        let mut ids = Vec::with_capacity(rows);
        self.index.find(keys, if self.index.is_unit() { rows.min(1) } else { rows }, &mut ids);
        absent.extend((0..).zip(ids).filter(|(_, id)| *id == ABSENT).map(|(row, _)| row));
    }

    /// Takes a batch's columns in, rows or states as planned.
    pub(super) fn take_in(&mut self, shape: &Shape, groups: Groups<'_>, inputs: &[ArrayRef]) -> Result<(), EngineError> {
        let index = &self.index;
        let taken = self.set.take_in(groups, inputs);
        taken.map_err(|overflow| shape.overflow(&overflow, &index.keys(Rows::Ids(&[overflow.group as u32]))))
    }

    /// Takes back a batch's columns that were taken in.
    pub(super) fn retract(&mut self, shape: &Shape, groups: Groups<'_>, inputs: &[ArrayRef]) -> Result<(), EngineError> {
        let index = &self.index;
        let taken = self.set.retract(groups, inputs);
        taken.map_err(|overflow| shape.overflow(&overflow, &index.keys(Rows::Ids(&[overflow.group as u32]))))
    }

    /// Gives these groups these states, whatever they had; each group once.
    pub(super) fn assign(&mut self, ids: &[u32], states: &[ArrayRef]) {
        self.set.assign(ids, states);
    }

    /// As `take_in`, but groups whose result was given begin anew: what they had is forgotten.
    pub(super) fn take_in_anew(
        &mut self,
        shape: &Shape,
        ids: &[u32],
        rows: usize,
        inputs: &[ArrayRef],
    ) -> Result<(), EngineError> {
        if ids.iter().all(|id| self.is_due(*id)) {
            return self.take_in(shape, self.groups(ids, rows), inputs);
        }
        let mut parts = GroupTable::new(shape);
        let mut of_parts = Vec::with_capacity(ids.len());
        parts.intern(&self.index.keys(Rows::Ids(ids)), ids.len(), &mut of_parts);
        parts.take_in(shape, parts.groups(&of_parts, rows), inputs)?;
        // By part: its group.
        let mut groups = vec![0; parts.len()];
        ids.iter().zip(&of_parts).for_each(|(id, part)| groups[*part as usize] = *id);
        let (goes_on, anew): (Vec<u32>, Vec<u32>) = (0..parts.len() as u32).partition(|part| self.is_due(groups[*part as usize]));
        let groups_of = |parts: &[u32]| parts.iter().map(|part| groups[*part as usize]).collect::<Vec<u32>>();
        // Groups that are new are among the first, which come before all others.
        self.merge(shape, Groups::Each(&groups_of(&goes_on)), &parts.states(Rows::Ids(&goes_on)))?;
        self.set.assign(&groups_of(&anew), &parts.states(Rows::Ids(&anew)));
        Ok(())
    }

    /// Takes states in.
    pub(super) fn merge(&mut self, shape: &Shape, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), EngineError> {
        let index = &self.index;
        let merged = self.set.merge(groups, states);
        merged.map_err(|overflow| shape.overflow(&overflow, &index.keys(Rows::Ids(&[overflow.group as u32]))))
    }

    /// Takes in the states of `rows` rows with these keys; new keys become new groups.
    pub(super) fn absorb(
        &mut self,
        shape: &Shape,
        keys: &[ArrayRef],
        rows: usize,
        states: &[ArrayRef],
    ) -> Result<(), EngineError> {
        if rows == 0 {
            return Ok(());
        }
        let mut ids = Vec::new();
        self.intern(keys, rows, &mut ids);
        self.merge(shape, self.groups(&ids, rows), states)
    }

    /// The key columns of these groups.
    pub(super) fn keys(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        self.index.keys(rows)
    }

    /// The results of these groups.
    pub(super) fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        self.set.read(rows)
    }

    /// The result of one call for these groups.
    pub(super) fn read_call(&self, call: usize, rows: Rows<'_>) -> ArrayRef {
        self.set.read_call(call, rows)
    }

    /// The states of these groups.
    pub(super) fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        self.set.states(rows)
    }

    /// What is known of each group's results, where they are given more than once.
    pub(super) fn marks(&self) -> Option<&Marks> {
        self.set.marks()
    }

    fn is_due(&self, id: u32) -> bool {
        self.marks().is_none_or(|marks| marks.is_due(id))
    }

    /// Whether a result of this group was given.
    pub(super) fn is_given(&self, id: u32) -> bool {
        self.marks().is_some_and(|marks| marks.is_given(id))
    }

    /// Those of these groups that have a result which was not given.
    pub(super) fn due(&self, rows: Rows<'_>) -> Vec<u32> {
        let ids = rows.map(|row| row as u32);
        ids.into_iter().filter(|id| self.is_due(*id)).collect()
    }

    /// The results of these groups are given now; each group once.
    pub(super) fn give(&mut self, ids: &[u32]) {
        let results = if self.set.keeps_results() { self.read(Rows::Ids(ids)) } else { Vec::new() };
        self.set.give(ids, &results);
    }

    /// What was given last of these groups, where it is kept: null where it is not known.
    pub(super) fn given(&self, rows: Rows<'_>) -> Option<StructArray> {
        self.set.given(rows)
    }

    /// Forgets every group and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.set.clear();
        self.gone.clear_all();
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.set.memory_bytes() + self.gone.memory_bytes()
    }
}
