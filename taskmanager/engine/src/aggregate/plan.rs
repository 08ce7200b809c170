//! All calls of one aggregation, planned: which columns each needs, which of them share their work.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field};
use levada_common::aggregate_state::{AggregateUnit, units};
use levada_common::plan::{AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, FiringSpec};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::fixed::is_fixed;

use super::avg::Avg;
use super::count::Count;
use super::extreme::Extreme;
use super::given::MakeGiven;
use super::marks::Marks;
use super::ordered::{Layout, Ordered};
use super::sum::Sum;
use super::{Accumulator, AggregateSet};

/// Makes one unit's accumulator.
pub(crate) type Make = Box<dyn Fn() -> Box<dyn Accumulator> + Send + Sync>;

/// Calls that are computed together.
pub(super) struct Unit {
    make: Make,
    /// Places of its calls in the aggregation.
    pub(super) calls: Vec<usize>,
    /// Places of its columns in `AggregatePlan::inputs`, where rows come in.
    pub(super) columns: Vec<usize>,
    /// Its columns among the states.
    pub(super) states: Range<usize>,
}

/// An aggregation, ready to make its accumulators: one set per table or pane.
pub struct AggregatePlan {
    pub(super) calls: Vec<AggregateCall>,
    pub(super) units: Vec<Unit>,
    /// Which of a batch's columns are taken in, in this order.
    inputs: Vec<usize>,
    /// Whether these are states.
    pub(super) takes_states: bool,
    pub(super) state_fields: Vec<Field>,
    /// The columns of marks among the states, behind those of the units, where groups have marks.
    pub(super) marks: Option<Range<usize>>,
    /// What keeps the results that were given last, in the last column of the states, where they go out with those that replace
    /// them.
    given: Option<MakeGiven>,
}

impl std::fmt::Debug for AggregatePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregatePlan").field("calls", &self.calls).field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

impl AggregatePlan {
    /// Plans `aggregate` over `input`: over states for the final phase, over rows for the others. `library` makes what the engine
    /// does not have.
    ///
    /// Errors: what the plan asks for and the engine does not have, as text.
    pub(crate) fn new(
        aggregate: &AggregateSpec,
        input: &StreamSchema,
        library: &dyn Fn(&AggregateCall) -> Result<Make, String>,
    ) -> Result<Self, String> {
        let calls = aggregate.calls.clone();
        let takes_states = aggregate.phase == AggregatePhase::Final;
        let mut inputs = Inputs { schema: input, places: Vec::new() };
        let (mut planned, mut state_fields): (Vec<Unit>, Vec<Field>) = (Vec::new(), Vec::new());
        for unit in units(&calls) {
            let (make, names) = accumulator(&unit, &calls, library)?;
            let states = state_fields.len()..state_fields.len() + unit.columns.len();
            state_fields.extend(unit.columns.iter().map(Column::to_field));
            let columns = if takes_states {
                for column in &unit.columns {
                    inputs.places.push(inputs.find(&column.name)?);
                }
                Vec::new()
            } else {
                if let Some(row) = &unit.row {
                    inputs.check_nulls(&row.columns, &unit.columns)?;
                }
                names.iter().map(|name| inputs.number(name)).collect::<Result<_, _>>()?
            };
            planned.push(Unit { make, calls: unit.calls, columns, states });
        }
        let marks = aggregate.firing.map(|_| {
            let start = state_fields.len();
            state_fields.extend(FiringSpec::state_columns().iter().map(Column::to_field));
            start..state_fields.len()
        });
        if marks.is_some() && takes_states {
            for column in FiringSpec::state_columns() {
                inputs.places.push(inputs.find(&column.name)?);
            }
        }
        Ok(Self { inputs: inputs.places, calls, units: planned, takes_states, state_fields, marks, given: None })
    }

    /// Keeps what was given last of each group from now on, in this column of its state.
    pub(crate) fn keeping_results(mut self, column: &Column, make: MakeGiven) -> Self {
        self.state_fields.push(column.to_field());
        self.given = Some(make);
        self
    }

    /// The columns of a batch that are taken in.
    pub fn inputs<'a>(&'a self, columns: &'a [ArrayRef]) -> impl Iterator<Item = ArrayRef> + 'a {
        self.inputs.iter().map(|place| Arc::clone(&columns[*place]))
    }

    /// The fields of the states, as `aggregate_state::state_columns` has them.
    pub fn state_fields(&self) -> &[Field] {
        &self.state_fields
    }

    /// The type of what is kept of a result.
    pub(super) fn result_type(&self) -> Option<&DataType> {
        self.given.as_ref().and(self.state_fields.last()).map(Field::data_type)
    }

    /// Number of calls.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Whether groups have marks: whether results are given more than once.
    pub fn has_marks(&self) -> bool {
        self.marks.is_some()
    }

    /// The numbers of those of `rows` states that have a result to be given; all where results are given once. Shape: `state_fields`.
    pub(crate) fn due_rows(&self, states: &[ArrayRef], rows: usize) -> Vec<u32> {
        match &self.marks {
            Some(columns) => Marks::due_rows(&states[columns.clone()]).collect(),
            None => (0..rows as u32).collect(),
        }
    }

    /// Whether every one of its aggregates can take rows back.
    pub fn takes_back(&self) -> bool {
        self.units.iter().all(|unit| (unit.make)().takes_back())
    }

    /// Accumulators without groups.
    pub fn accumulators(self: &Arc<Self>) -> AggregateSet {
        let (units, given) = (self.units.iter().map(|unit| (unit.make)()).collect(), self.given.as_ref().map(|make| make()));
        AggregateSet::new(Arc::clone(self), units, given)
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

    /// Where the plan says that a column of a chosen row is never null, so must the input.
    fn check_nulls(&self, names: &[String], states: &[Column]) -> Result<(), String> {
        for (name, state) in names.iter().zip(states).filter(|(_, state)| !state.nullable) {
            if self.schema.column(name).is_some_and(|column| column.nullable) {
                return Err(format!("column \"{name}\" can be null, and \"{}\" cannot", state.name));
            }
        }
        Ok(())
    }
}

/// How a unit's accumulators are made, and the columns that they take where rows come in.
fn accumulator(
    unit: &AggregateUnit,
    calls: &[AggregateCall],
    library: &dyn Fn(&AggregateCall) -> Result<Make, String>,
) -> Result<(Make, Vec<String>), String> {
    let call = &calls[unit.calls[0]];
    if let Some(row) = &unit.row {
        let columns = unit.columns.iter().map(|column| Ok((scalar(&column.ty, call)?, column.nullable)));
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        let descending = row.order.iter().map(|by| by.descending).collect::<Vec<_>>();
        let layout = Layout::new(&columns, &descending, row.answers.clone(), row.is_last);
        return Ok((Box::new(move || Box::new(Ordered::new(layout.clone()))), row.columns.clone()));
    }
    let argument = || call.argument.clone().ok_or_else(|| format!("{:?} \"{}\" has no argument", call.function, call.name));
    let make: Make = match call.function {
        AggregateFunction::Count => {
            return Ok((Box::new(|| Box::new(Count::default())), call.argument.iter().cloned().collect()));
        }
        AggregateFunction::Sum | AggregateFunction::Avg => {
            let ty = call.argument_type.clone().unwrap_or_else(|| call.result.clone());
            check_number(&ty, call)?;
            let is_sum = call.function == AggregateFunction::Sum;
            Box::new(move || if is_sum { Box::new(Sum::new(&ty)) } else { Box::new(Avg::new(&ty)) })
        }
        AggregateFunction::Min | AggregateFunction::Max => {
            let (data_type, is_max) = (scalar(&call.result, call)?, call.function == AggregateFunction::Max);
            Box::new(move || Box::new(Extreme::new(data_type.clone(), is_max)))
        }
        AggregateFunction::Library => return Ok((library(call)?, call.reads().cloned().collect())),
        AggregateFunction::First | AggregateFunction::Last => {
            return Err(format!("{:?} \"{}\" has no row to choose", call.function, call.name));
        }
    };
    Ok((make, vec![argument()?]))
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
