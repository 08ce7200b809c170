//! How the results are read: of what is kept of a group, or of the ends of its counted values.

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;
use levada_common::plan::{AggregateFunction, AggregateSpec};

/// Where a call's result comes from.
#[derive(Debug)]
enum Source {
    /// Of a kept call; null where another one has counted no value.
    Kept { call: usize, values: Option<usize> },
    /// The least or the greatest of a counted column.
    End { column: usize, is_greatest: bool },
}

/// Where the results come from.
#[derive(Debug)]
pub(super) struct Results {
    sources: Vec<Source>,
}

impl Results {
    /// The kept call that counts a group's rows.
    pub(super) const ROWS: usize = 0;

    /// For the calls of an aggregation over a changelog.
    ///
    /// Errors: a call that has nothing to be read of, in words.
    pub(super) fn new(aggregate: &AggregateSpec) -> Result<Self, String> {
        let (kept, counted) = (aggregate.kept_calls(), aggregate.counted());
        let place = |name: &str| kept.iter().skip(1).position(|call| call.name == name).map(|at| at + 1);
        let source = |call: &levada_common::plan::AggregateCall| match call.function {
            AggregateFunction::Min | AggregateFunction::Max => {
                let column = counted.iter().position(|counted| Some(&counted.value) == call.argument.as_ref())?;
                Some(Source::End { column, is_greatest: call.function == AggregateFunction::Max })
            }
            AggregateFunction::Sum if call.argument_nullable => {
                Some(Source::Kept { call: place(&call.name)?, values: Some(place(&AggregateSpec::values_of(&call.name))?) })
            }
            _ => Some(Source::Kept { call: place(&call.name)?, values: None }),
        };
        let found = |call| source(call).ok_or_else(|| format!("nothing is kept for \"{}\"", call.name));
        Ok(Self { sources: aggregate.calls.iter().map(found).collect::<Result<_, String>>()? })
    }

    /// The results of some groups, of which `kept` has what is kept; `end` gives the least or the greatest of a counted column.
    pub(super) fn read(&self, kept: &[ArrayRef], end: impl Fn(usize, bool) -> ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
        let read = |source: &Source| match source {
            Source::Kept { call, values: None } => Ok(ArrayRef::clone(&kept[*call])),
            Source::Kept { call, values: Some(values) } => {
                let counts = kept[*values].as_primitive::<Int64Type>();
                if counts.values().iter().all(|count| *count > 0) {
                    return Ok(ArrayRef::clone(&kept[*call]));
                }
                let none: BooleanArray = counts.values().iter().map(|count| Some(*count <= 0)).collect();
                nullif(&kept[*call], &none)
            }
            Source::End { column, is_greatest } => Ok(end(*column, *is_greatest)),
        };
        self.sources.iter().map(read).collect()
    }
}
