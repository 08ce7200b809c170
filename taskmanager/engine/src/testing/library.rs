//! A library with one aggregate, `collect`: its state is the list of all values, its result 1000 for each and their sum.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, ListBuilder, PrimitiveBuilder};
use arrow::datatypes::Int64Type;
use levada_common::plan::{AggregateCall, AggregateFunction, LibraryArgument, LibraryCall};
use levada_common::types::{Column, LogicalType};

use crate::aggregate::{LibraryAggregate, OfGroups};

/// The call `collect(v)`, named `name`.
pub(crate) fn collect(name: &str) -> AggregateCall {
    let list = LogicalType::List(Box::new(LogicalType::Int64));
    AggregateCall {
        function: AggregateFunction::Library,
        argument_nullable: true,
        library: Some(Box::new(LibraryCall {
            function: "collect".into(),
            arguments: vec![LibraryArgument::Column(Column::new("v", LogicalType::Int64, false))],
            distinct: false,
            filter: None,
            state: vec![Column::new(LibraryCall::state_name(name, "tests1", 0), list, true)],
        })),
        ..AggregateCall::count(name)
    }
}

/// The aggregate.
pub(super) struct Collect;

/// Adds the values of states to each group's.
fn take(lists: &mut [Vec<i64>], part: OfGroups<'_>) {
    let states = part.columns[0].as_list::<i32>();
    for (row, group) in part.groups.iter().enumerate() {
        lists[*group].extend(states.value(row).as_primitive::<Int64Type>().values());
    }
}

fn states(lists: Vec<Vec<i64>>) -> Vec<ArrayRef> {
    let mut builder = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
    lists.into_iter().for_each(|list| builder.append_value(list.into_iter().map(Some)));
    vec![Arc::new(builder.finish())]
}

impl LibraryAggregate for Collect {
    fn update(&self, groups: usize, known: OfGroups<'_>, rows: OfGroups<'_>) -> Result<Vec<ArrayRef>, String> {
        let mut lists = vec![Vec::new(); groups];
        take(&mut lists, known);
        let values = rows.columns[0].as_primitive::<Int64Type>().values();
        if values.contains(&i64::MAX) {
            return Err("it has no room for the greatest number".into());
        }
        rows.groups.iter().zip(values).for_each(|(group, value)| lists[*group].push(*value));
        Ok(states(lists))
    }

    fn merge(&self, groups: usize, parts: &[OfGroups<'_>]) -> Result<Vec<ArrayRef>, String> {
        let mut lists = vec![Vec::new(); groups];
        parts.iter().for_each(|part| take(&mut lists, *part));
        Ok(states(lists))
    }

    fn read(&self, groups: usize, known: OfGroups<'_>) -> Result<ArrayRef, String> {
        let mut lists = vec![Vec::new(); groups];
        take(&mut lists, known);
        if lists.iter().flatten().any(|value| *value == i64::MIN) {
            return Err("it cannot give the least number out".into());
        }
        let results = lists.into_iter().map(|list| list.len() as i64 * 1000 + list.into_iter().sum::<i64>());
        Ok(Arc::new(Int64Array::from_iter_values(results)))
    }
}
