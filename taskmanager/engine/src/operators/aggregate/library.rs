//! Aggregates of a library: what the engine has no accumulator for.
//!
//! The library only maps states and rows to states, a batch at a time; the states themselves are columns that stand here, a row for
//! each group (`group_rows.rs`): the states of a batch's groups are gathered, combined with the batch, and put in the place of the
//! old ones. Slower than the engine's own aggregates, by a copy of each state that a batch changes.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, new_null_array};
use levada_common::plan::AggregateCall;
use levada_state::rows::Rows;

use super::group_rows::GroupRows;
use crate::aggregate::{Accumulator, Groups, LibraryAggregate, OfGroups, Overflow};
use crate::operators::rows::NO_ROW;

/// What a library could not give out: the first time that it could not. Reading gives nulls then, and whoever hands results on
/// looks here first.
pub(super) type ReadFailure = Arc<OnceLock<(AggregateCall, String)>>;

/// One call, over all groups.
pub(super) struct Library {
    function: Arc<dyn LibraryAggregate>,
    call: AggregateCall,
    failure: ReadFailure,
    states: GroupRows,
    /// By group: its number among those of a batch, while one is taken in; all `NO_ROW` between two.
    places: Vec<u32>,
}

impl Library {
    /// Without groups.
    pub(super) fn new(function: Arc<dyn LibraryAggregate>, call: &AggregateCall, failure: ReadFailure) -> Self {
        let state = call.library.iter().flat_map(|library| &library.state);
        let states = GroupRows::new(state.map(|column| column.ty.to_arrow()).collect());
        Self { function, call: call.clone(), failure, states, places: Vec::new() }
    }

    /// Combines what groups have with what comes to them: `columns` of rows, or of states.
    fn combine(&mut self, groups: Groups<'_>, columns: &[ArrayRef], are_states: bool) -> Result<(), Overflow> {
        let rows = groups.rows();
        if rows == 0 {
            return Ok(());
        }
        let mut ids = Vec::new();
        let of = match groups {
            Groups::One { group, rows } => {
                ids.push(group);
                vec![0; rows]
            }
            Groups::Each(groups) => self.number(groups, &mut ids),
        };
        let (known, states) = self.known(&ids);
        let known = OfGroups { groups: &known, columns: &states };
        let coming = OfGroups { groups: &of, columns };
        let combined = match are_states {
            true => self.function.merge(ids.len(), &[known, coming]),
            false => self.function.update(ids.len(), known, coming),
        };
        match combined {
            Ok(states) => self.states.put(&ids, &states),
            Err(reason) => return Err(Overflow { group: ids[0] as usize, reason: Some(reason.into()) }),
        }
        Ok(())
    }

    /// The groups of rows, numbered by first appearance; the groups themselves go to `ids`.
    fn number(&mut self, groups: &[u32], ids: &mut Vec<u32>) -> Vec<usize> {
        let number = |group: &u32| {
            let place = &mut self.places[*group as usize];
            if *place == NO_ROW {
                *place = ids.len() as u32;
                ids.push(*group);
            }
            *place as usize
        };
        let numbers = groups.iter().map(number).collect();
        ids.iter().for_each(|group| self.places[*group as usize] = NO_ROW);
        numbers
    }

    /// Which of these groups have a state, and the states.
    fn known(&self, ids: &[u32]) -> (Vec<usize>, Vec<ArrayRef>) {
        let known = ids.iter().map(|group| self.states.row(*group)).enumerate().filter(|(_, row)| *row != NO_ROW);
        let (places, rows): (Vec<usize>, Vec<u32>) = known.unzip();
        let states = self.states.columns(&rows);
        (places, states)
    }

    fn ids(rows: Rows<'_>) -> Vec<u32> {
        rows.map(|group| group as u32)
    }
}

impl Accumulator for Library {
    fn resize(&mut self, groups: usize) {
        self.states.resize(groups);
        self.places.resize(groups, NO_ROW);
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        self.combine(groups, columns, false)
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        self.combine(groups, states, true)
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        self.states.put(groups, states);
    }

    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let ids = Self::ids(rows);
        let (known, states) = self.known(&ids);
        let read = self.function.read(ids.len(), OfGroups { groups: &known, columns: &states });
        vec![read.unwrap_or_else(|reason| {
            // The first failure fails the task.
            let _ = self.failure.set((self.call.clone(), reason));
            new_null_array(&self.call.result.to_arrow(), ids.len())
        })]
    }

    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let rows: Vec<u32> = rows.map(|group| self.states.row(group as u32));
        self.states.columns(&rows)
    }

    fn clear(&mut self) {
        self.states.clear();
        self.places.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.states.memory_bytes() + self.places.capacity() * size_of::<u32>()
    }
}
