//! The accumulators of all calls of one aggregation, with what is noted of the groups' results.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StructArray, new_null_array};
use arrow::datatypes::DataType;
use levada_common::plan::AggregateCall;
use levada_state::rows::Rows;

use super::given::{Given, put_known};
use super::marks::Marks;
use super::plan::{AggregatePlan, Unit};
use super::{Accumulator, Groups, Overflow};

/// A sum left its type, or a library cannot take the rows.
#[derive(Debug, Clone)]
pub struct CallOverflow<'a> {
    /// The call.
    pub call: &'a AggregateCall,
    /// The group.
    pub group: usize,
    /// What a library says.
    pub reason: Option<Arc<str>>,
}

impl Unit {
    fn overflow<'a>(&self, calls: &'a [AggregateCall], Overflow { group, reason }: Overflow) -> CallOverflow<'a> {
        CallOverflow { call: &calls[self.calls[0]], group, reason }
    }
}

/// The accumulators of one table or pane.
pub struct AggregateSet {
    plan: Arc<AggregatePlan>,
    units: Vec<Box<dyn Accumulator>>,
    marks: Option<Marks>,
    given: Option<Box<dyn Given>>,
}

impl std::fmt::Debug for AggregateSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregateSet").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl AggregateSet {
    /// Of a plan, without groups.
    pub(super) fn new(plan: Arc<AggregatePlan>, units: Vec<Box<dyn Accumulator>>, given: Option<Box<dyn Given>>) -> Self {
        let marks = plan.marks.as_ref().map(|_| Marks::default());
        Self { plan, units, marks, given }
    }

    /// There are `groups` groups now.
    pub fn resize(&mut self, groups: usize) {
        self.units.iter_mut().for_each(|unit| unit.resize(groups));
        self.marks.iter_mut().for_each(|marks| marks.resize(groups));
        self.given.iter_mut().for_each(|given| given.resize(groups));
    }

    /// Takes in what the plan takes, rows or states. Shape: `AggregatePlan::inputs` of a batch.
    pub fn take_in(&mut self, groups: Groups<'_>, inputs: &[ArrayRef]) -> Result<(), CallOverflow<'_>> {
        if self.plan.takes_states {
            return self.merge(groups, inputs);
        }
        for (accumulator, unit) in self.units.iter_mut().zip(&self.plan.units) {
            let columns: Vec<ArrayRef> = unit.columns.iter().map(|column| Arc::clone(&inputs[*column])).collect();
            accumulator.update(groups, &columns).map_err(|overflow| unit.overflow(&self.plan.calls, overflow))?;
        }
        self.marks.iter_mut().for_each(|marks| marks.update(groups));
        Ok(())
    }

    /// Takes back rows that were taken in. Shape: `AggregatePlan::inputs` of a batch. Contract: the plan `takes_back`.
    pub fn retract(&mut self, groups: Groups<'_>, inputs: &[ArrayRef]) -> Result<(), CallOverflow<'_>> {
        for (accumulator, unit) in self.units.iter_mut().zip(&self.plan.units) {
            let columns: Vec<ArrayRef> = unit.columns.iter().map(|column| Arc::clone(&inputs[*column])).collect();
            accumulator.retract(groups, &columns).map_err(|overflow| unit.overflow(&self.plan.calls, overflow))?;
        }
        Ok(())
    }

    /// Gives these groups the state of no rows; each group once.
    pub fn reset(&mut self, groups: &[u32]) {
        let fields = self.plan.state_fields.iter();
        let nothing: Vec<ArrayRef> = fields.map(|field| new_null_array(field.data_type(), groups.len())).collect();
        self.assign(groups, &nothing);
    }

    /// Takes in states. Shape: `state_fields`; of a partial, which gives nothing, without what was given last. Of states that come to
    /// be one at most one has that.
    pub fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), CallOverflow<'_>> {
        for (accumulator, unit) in self.units.iter_mut().zip(&self.plan.units) {
            accumulator
                .merge(groups, &states[unit.states.clone()])
                .map_err(|overflow| unit.overflow(&self.plan.calls, overflow))?;
        }
        if let (Some(marks), Some(columns)) = (&mut self.marks, &self.plan.marks) {
            marks.merge(groups, &states[columns.clone()]);
        }
        if let (Some(given), Some(results)) = (&mut self.given, states.get(self.plan.state_fields.len() - 1)) {
            put_known(given.as_mut(), groups, results);
        }
        Ok(())
    }

    /// Gives these groups these states, whatever they had; each group once. Shape: `state_fields`.
    pub fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        for (accumulator, unit) in self.units.iter_mut().zip(&self.plan.units) {
            accumulator.assign(groups, &states[unit.states.clone()]);
        }
        if let (Some(marks), Some(columns)) = (&mut self.marks, &self.plan.marks) {
            marks.assign(groups, &states[columns.clone()]);
        }
        if let (Some(given), Some(results)) = (&mut self.given, states.last()) {
            given.put(groups, results);
        }
    }

    /// The marks, where results are given more than once.
    pub fn marks(&self) -> Option<&Marks> {
        self.marks.as_ref()
    }

    /// Whether what was given last of each group is kept.
    pub fn keeps_results(&self) -> bool {
        self.given.is_some()
    }

    /// What was given last of these groups, where it is kept: null where it is not known.
    pub fn given(&self, rows: Rows<'_>) -> Option<StructArray> {
        self.given.as_ref().map(|given| given.read(rows).as_struct().clone())
    }

    /// The results of these groups are given now; each group once. Shape: where they are kept, the fields of their column.
    pub fn give(&mut self, groups: &[u32], results: &[ArrayRef]) {
        self.marks.iter_mut().for_each(|marks| groups.iter().for_each(|group| marks.give(*group)));
        if let (Some(given), Some(DataType::Struct(fields))) = (&mut self.given, self.plan.result_type()) {
            let results = StructArray::new(fields.clone(), results.to_vec(), None);
            given.put(groups, &(Arc::new(results) as ArrayRef));
        }
    }

    /// The group's result was taken back.
    pub fn take_back(&mut self, group: u32) {
        self.marks.iter_mut().for_each(|marks| marks.take_back(group));
        self.given.iter_mut().for_each(|given| given.forget(group));
    }

    /// The group is no more: until its number is used again it has nothing to be given.
    pub fn release(&mut self, group: u32) {
        self.marks.iter_mut().for_each(|marks| marks.give(group));
        self.given.iter_mut().for_each(|given| given.forget(group));
    }

    /// The results of these groups, a column per call, in order.
    pub fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let mut columns = vec![None; self.plan.calls.len()];
        for (accumulator, unit) in self.units.iter().zip(&self.plan.units) {
            for (column, call) in accumulator.read(rows).into_iter().zip(&unit.calls) {
                columns[*call] = Some(column);
            }
        }
        columns.into_iter().map(|column| column.expect("every call is in a unit")).collect()
    }

    /// The result of one call for these groups.
    pub fn read_call(&self, call: usize, rows: Rows<'_>) -> ArrayRef {
        let place = |unit: &Unit| unit.calls.iter().position(|other| *other == call);
        let mut units = self.units.iter().zip(&self.plan.units);
        let found = units.find_map(|(accumulator, unit)| place(unit).map(|at| accumulator.read(rows).swap_remove(at)));
        found.expect("every call is in a unit")
    }

    /// The states of these groups. Shape: `state_fields`.
    pub fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let marks = self.marks.iter().flat_map(|marks| marks.states(rows));
        let given = self.given.iter().map(|given| given.read(rows));
        self.units.iter().flat_map(|accumulator| accumulator.states(rows)).chain(marks).chain(given).collect()
    }

    /// Forgets every group and keeps the memory.
    pub fn clear(&mut self) {
        self.units.iter_mut().for_each(|unit| unit.clear());
        self.marks.iter_mut().for_each(Marks::clear);
        self.given.iter_mut().for_each(|given| given.clear());
    }

    /// Number of accumulators: calls that share their work have one.
    #[cfg(test)]
    pub(super) fn units_len(&self) -> usize {
        self.units.len()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.units.iter().map(|unit| unit.memory_bytes()).sum::<usize>()
            + self.marks.as_ref().map_or(0, Marks::memory_bytes)
            + self.given.as_ref().map_or(0, |given| given.memory_bytes())
    }
}
