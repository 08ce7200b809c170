//! All calls of one aggregation: which columns each needs, which of them share their work.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field};
use levada_common::plan::{AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::fixed::is_fixed;
use levada_state::rows::Rows;

use super::avg::Avg;
use super::count::Count;
use super::extreme::Extreme;
use super::ordered::{ColumnType, Layout, Ordered};
use super::sum::Sum;
use super::{Accumulator, Groups};

/// Makes one unit's accumulator.
type Make = Box<dyn Fn() -> Box<dyn Accumulator> + Send + Sync>;

/// Calls that are computed together.
struct Unit {
    make: Make,
    /// Places of its calls in the aggregation.
    calls: Vec<usize>,
    /// Places of its columns in `AggregatePlan::inputs`, where rows come in.
    columns: Vec<usize>,
}

/// An aggregation, ready to make its accumulators: one set per table or pane.
pub struct AggregatePlan {
    calls: Vec<AggregateCall>,
    units: Vec<Unit>,
    /// Which of a batch's columns are taken in, in this order.
    inputs: Vec<usize>,
    /// Whether these are states.
    takes_states: bool,
    /// Each call's columns among the states.
    states: Vec<Range<usize>>,
    state_fields: Vec<Field>,
}

impl std::fmt::Debug for AggregatePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregatePlan").field("calls", &self.calls).field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

impl AggregatePlan {
    /// Plans `aggregate` over `input`: over states for the final phase, over rows for the others.
    ///
    /// Errors: what the plan asks for and the engine does not have, as text.
    pub fn new(aggregate: &AggregateSpec, input: &StreamSchema) -> Result<Self, String> {
        let calls = aggregate.calls.clone();
        let columns: Vec<Vec<Column>> = calls.iter().map(AggregateCall::state_columns).collect();
        let mut states = Vec::new();
        for columns in &columns {
            let start = states.last().map_or(0, |range: &Range<usize>| range.end);
            states.push(start..start + columns.len());
        }
        let takes_states = aggregate.phase == AggregatePhase::Final;
        let mut inputs = Inputs { schema: input, places: Vec::new() };
        if takes_states {
            for column in columns.iter().flatten() {
                inputs.places.push(inputs.find(&column.name)?);
            }
        }
        let mut units: Vec<Unit> = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let earlier = calls[..at].iter().position(|other| shares_row(call, other));
            if earlier.is_some_and(|earlier| units.iter().any(|unit| unit.calls.contains(&earlier))) {
                continue;
            }
            let members: Vec<usize> =
                (at..calls.len()).filter(|other| *other == at || shares_row(call, &calls[*other])).collect();
            units.push(unit(members, &calls, if takes_states { None } else { Some(&mut inputs) })?);
        }
        let inputs = inputs.places;
        let state_fields = columns.iter().flatten().map(Column::to_field).collect();
        Ok(Self { calls, units, inputs, takes_states, states, state_fields })
    }

    /// The columns of a batch that are taken in.
    pub fn inputs<'a>(&'a self, columns: &'a [ArrayRef]) -> impl Iterator<Item = ArrayRef> + 'a {
        self.inputs.iter().map(|place| Arc::clone(&columns[*place]))
    }

    /// The fields of the states, call by call.
    pub fn state_fields(&self) -> &[Field] {
        &self.state_fields
    }

    /// Accumulators without groups.
    pub fn accumulators(self: &Arc<Self>) -> AggregateSet {
        AggregateSet { units: self.units.iter().map(|unit| (unit.make)()).collect(), plan: Arc::clone(self) }
    }
}

/// Finds columns of the input and numbers those that are taken in.
struct Inputs<'a> {
    schema: &'a StreamSchema,
    places: Vec<usize>,
}

impl Inputs<'_> {
    fn find(&self, name: &str) -> Result<usize, String> {
        let found = self.schema.batch_index(name);
        found.ok_or_else(|| format!("column \"{name}\" is not among the input's columns: {}", self.schema.names()))
    }

    /// The number of this column among those that are taken in.
    fn number(&mut self, name: &str) -> Result<usize, String> {
        let place = self.find(name)?;
        Ok(self.places.iter().position(|other| *other == place).unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        }))
    }

    fn is_nullable(&self, name: &str) -> bool {
        self.schema.column(name).is_none_or(|column| column.nullable)
    }
}

/// Whether two calls choose the same row of a group.
fn shares_row(call: &AggregateCall, other: &AggregateCall) -> bool {
    matches!(call.function, AggregateFunction::First | AggregateFunction::Last)
        && call.function == other.function
        && call.order == other.order
}

/// Plans the calls `members`; `inputs` where rows come in, not states.
fn unit(members: Vec<usize>, calls: &[AggregateCall], mut inputs: Option<&mut Inputs<'_>>) -> Result<Unit, String> {
    let call = &calls[members[0]];
    let argument = |call: &AggregateCall| {
        call.argument.clone().ok_or_else(|| format!("{:?} \"{}\" has no argument", call.function, call.name))
    };
    let argument_type =
        call.argument_type.clone().or_else(|| Some(call.result.clone()).filter(|_| call.function != AggregateFunction::Count));
    let (make, names): (Make, Vec<String>) = match call.function {
        AggregateFunction::Count => (Box::new(|| Box::new(Count::default())), call.argument.iter().cloned().collect()),
        AggregateFunction::Sum | AggregateFunction::Avg => {
            let ty = argument_type.ok_or_else(|| format!("\"{}\" has no argument's type", call.name))?;
            check_number(&ty, call)?;
            let is_sum = call.function == AggregateFunction::Sum;
            let make = move || -> Box<dyn Accumulator> { if is_sum { Box::new(Sum::new(&ty)) } else { Box::new(Avg::new(&ty)) } };
            (Box::new(make), vec![argument(call)?])
        }
        AggregateFunction::Min | AggregateFunction::Max => {
            let data_type = scalar(&call.result, call)?;
            let is_max = call.function == AggregateFunction::Max;
            (Box::new(move || Box::new(Extreme::new(data_type.clone(), is_max))), vec![argument(call)?])
        }
        AggregateFunction::First | AggregateFunction::Last => {
            let nullable = |name: &str| inputs.as_ref().is_none_or(|inputs| inputs.is_nullable(name));
            let column = |name: &str, ty: &LogicalType| {
                Ok::<_, String>(ColumnType { name: name.into(), data_type: scalar(ty, call)?, nullable: nullable(name) })
            };
            let order = call.order.iter().map(|by| Ok((column(&by.column, &by.ty)?, by.descending)));
            let order = order.collect::<Result<Vec<_>, String>>()?;
            let values = members.iter().map(|member| column(&argument(&calls[*member])?, &calls[*member].result));
            let values = values.collect::<Result<Vec<_>, String>>()?;
            let names = order.iter().map(|(column, _)| column.name.clone()).chain(values.iter().map(|value| value.name.clone()));
            let names = names.collect();
            let layout = Layout::new(&order, &values, call.function == AggregateFunction::Last);
            (Box::new(move || Box::new(Ordered::new(layout.clone()))), names)
        }
    };
    let columns = match &mut inputs {
        None => Vec::new(),
        Some(inputs) => names.iter().map(|name| inputs.number(name)).collect::<Result<_, _>>()?,
    };
    Ok(Unit { make, calls: members, columns })
}

fn check_number(ty: &LogicalType, call: &AggregateCall) -> Result<(), String> {
    let is_number = ty.is_integer() || ty.is_float() || matches!(ty, LogicalType::Decimal(_, _));
    if is_number { Ok(()) } else { Err(format!("{:?} \"{}\" over {ty} is no number", call.function, call.name)) }
}

/// The Arrow type of a scalar; lists and structs are not compared or kept.
fn scalar(ty: &LogicalType, call: &AggregateCall) -> Result<DataType, String> {
    let data_type = ty.to_arrow();
    let known = is_fixed(&data_type) || matches!(data_type, DataType::Utf8 | DataType::Binary | DataType::Decimal128(_, _));
    if known { Ok(data_type) } else { Err(format!("{:?} \"{}\" over {ty} is not supported", call.function, call.name)) }
}

/// A sum left its type.
#[derive(Debug, Clone, Copy)]
pub struct CallOverflow<'a> {
    /// The call.
    pub call: &'a AggregateCall,
    /// The group.
    pub group: usize,
}

/// The accumulators of one table or pane.
pub struct AggregateSet {
    plan: Arc<AggregatePlan>,
    units: Vec<Box<dyn Accumulator>>,
}

impl std::fmt::Debug for AggregateSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregateSet").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl AggregateSet {
    /// There are `groups` groups now.
    pub fn resize(&mut self, groups: usize) {
        self.units.iter_mut().for_each(|unit| unit.resize(groups));
    }

    /// Takes in what the plan takes, rows or states. Shape: `AggregatePlan::inputs` of a batch.
    pub fn take_in(&mut self, groups: Groups<'_>, inputs: &[ArrayRef]) -> Result<(), CallOverflow<'_>> {
        if self.plan.takes_states {
            return self.merge(groups, inputs);
        }
        for (accumulator, unit) in self.units.iter_mut().zip(&self.plan.units) {
            let columns: Vec<ArrayRef> = unit.columns.iter().map(|column| Arc::clone(&inputs[*column])).collect();
            accumulator
                .update(groups, &columns)
                .map_err(|overflow| CallOverflow { call: &self.plan.calls[unit.calls[0]], group: overflow.group })?;
        }
        Ok(())
    }

    /// Takes in states. Shape: the state columns of all calls, in order.
    pub fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), CallOverflow<'_>> {
        for (accumulator, unit) in self.units.iter_mut().zip(&self.plan.units) {
            let columns = unit.calls.iter().flat_map(|call| states[self.plan.states[*call].clone()].iter().cloned());
            accumulator
                .merge(groups, &columns.collect::<Vec<_>>())
                .map_err(|overflow| CallOverflow { call: &self.plan.calls[unit.calls[0]], group: overflow.group })?;
        }
        Ok(())
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

    /// The states of these groups: the state columns of all calls, in order.
    pub fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let mut columns = vec![None; self.plan.state_fields.len()];
        for (accumulator, unit) in self.units.iter().zip(&self.plan.units) {
            let places = unit.calls.iter().flat_map(|call| self.plan.states[*call].clone());
            for (column, place) in accumulator.states(rows).into_iter().zip(places) {
                columns[place] = Some(column);
            }
        }
        columns.into_iter().map(|column| column.expect("every call is in a unit")).collect()
    }

    /// Forgets every group and keeps the memory.
    pub fn clear(&mut self) {
        self.units.iter_mut().for_each(|unit| unit.clear());
    }

    /// Number of accumulators: calls that share their work have one.
    #[cfg(test)]
    pub(super) fn units_len(&self) -> usize {
        self.units.len()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.units.iter().map(|unit| unit.memory_bytes()).sum()
    }
}
