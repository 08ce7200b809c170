//! Aggregates of a library: what the engine has no accumulator for.
//!
//! The library only maps states and rows to states, a batch at a time; the states themselves are columns that stand here, a row for
//! each group: the states of a batch's groups are gathered, combined with the batch, and put in the place of the old ones. Slower
//! than the engine's own aggregates, by a copy of each state that a batch changes.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use levada_common::plan::AggregateCall;
use levada_state::rows::Rows;

use crate::aggregate::{Accumulator, Groups, LibraryAggregate, OfGroups, Overflow};
use crate::operators::rows::{NO_ROW, Part, RowHeap};

/// What a library could not give out: the first time that it could not. Reading gives nulls then, and whoever hands results on
/// looks here first.
pub(super) type ReadFailure = Arc<OnceLock<(AggregateCall, String)>>;

/// One call, over all groups.
pub(super) struct Library {
    function: Arc<dyn LibraryAggregate>,
    call: AggregateCall,
    failure: ReadFailure,
    state_types: Vec<DataType>,
    states: RowHeap,
    /// By group: the row of its state.
    rows: Vec<u32>,
    /// By row: the group that it belongs to.
    owners: Vec<u32>,
    /// By group: its number among those of a batch, while one is taken in; all `NO_ROW` between two.
    places: Vec<u32>,
}

impl Library {
    /// Without groups.
    pub(super) fn new(function: Arc<dyn LibraryAggregate>, call: &AggregateCall, failure: ReadFailure) -> Self {
        let state = call.library.iter().flat_map(|library| &library.state);
        let state_types = state.map(|column| column.ty.to_arrow()).collect();
        let (rows, owners, places) = (Vec::new(), Vec::new(), Vec::new());
        Self { function, call: call.clone(), failure, state_types, states: RowHeap::default(), rows, owners, places }
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
            Ok(states) => self.put(&ids, &states),
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
        let known = ids.iter().map(|group| self.rows[*group as usize]).enumerate().filter(|(_, row)| *row != NO_ROW);
        let (places, rows): (Vec<usize>, Vec<u32>) = known.unzip();
        let states = self.columns(&rows);
        (places, states)
    }

    /// The columns of these states; null where there is none.
    fn columns(&self, rows: &[u32]) -> Vec<ArrayRef> {
        if rows.iter().all(|row| *row == NO_ROW) {
            return self.state_types.iter().map(|ty| new_null_array(ty, rows.len())).collect();
        }
        let part = Part::in_heap(&self.states, rows);
        let columns = self.state_types.iter().enumerate();
        columns.map(|(at, ty)| part.column(at, ty, rows.len()).expect("states of one call have one type")).collect()
    }

    /// Puts states in the place of those that the groups have.
    fn put(&mut self, ids: &[u32], states: &[ArrayRef]) {
        let mut numbers = Vec::with_capacity(ids.len());
        self.states.push(states, &mut numbers).expect("states of one call have one type");
        self.owners.resize(self.states.numbers().max(self.owners.len()), NO_ROW);
        for (group, number) in ids.iter().zip(numbers) {
            let before = std::mem::replace(&mut self.rows[*group as usize], number);
            if before != NO_ROW {
                self.states.remove(before);
            }
            self.owners[number as usize] = *group;
        }
        while let Some(moved) = self.states.tidy().expect("states of one call have one type") {
            self.owners.resize(self.states.numbers().max(self.owners.len()), NO_ROW);
            for (before, now) in moved.before.into_iter().zip(moved.now) {
                let group = self.owners[before as usize];
                self.owners[now as usize] = group;
                self.rows[group as usize] = now;
            }
        }
    }

    fn ids(rows: Rows<'_>) -> Vec<u32> {
        rows.map(|group| group as u32)
    }
}

impl Accumulator for Library {
    fn resize(&mut self, groups: usize) {
        self.rows.resize(groups, NO_ROW);
        self.places.resize(groups, NO_ROW);
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        self.combine(groups, columns, false)
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        self.combine(groups, states, true)
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        if !groups.is_empty() {
            self.put(groups, states);
        }
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
        let rows: Vec<u32> = rows.map(|group| self.rows[group]);
        self.columns(&rows)
    }

    fn clear(&mut self) {
        self.states = RowHeap::default();
        self.rows.clear();
        self.owners.clear();
        self.places.clear();
    }

    fn memory_bytes(&self) -> usize {
        let numbers = self.rows.capacity() + self.owners.capacity() + self.places.capacity();
        self.states.memory_bytes() + numbers * size_of::<u32>()
    }
}
