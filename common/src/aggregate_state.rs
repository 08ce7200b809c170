//! What an aggregation keeps for a group: the columns in which its state leaves a partial, enters a final, and stands in
//! snapshots.
//!
//! Calls that are answered from the same row of a group share that row, so its columns are there once, however many calls read
//! it. Must never know how the columns are computed. Invariant: a column's name depends on neither the order of the calls nor, for
//! a row that is chosen by an order, on their names; another order is another column (golden test below).

use crate::plan::{AggregateCall, AggregateFunction, OrderSpec};
use crate::types::{Column, LogicalType};

/// Calls that are computed together, and the columns of their state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateUnit {
    /// Places of its calls among the aggregation's, rising.
    pub calls: Vec<usize>,
    /// The columns of its state.
    pub columns: Vec<Column>,
    /// The row of a group that answers them, where it is `first` or `last`; then `columns` are columns of that row.
    pub row: Option<ChosenRow>,
}

/// The first or last row of a group by an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenRow {
    /// Whether it is the last one.
    pub is_last: bool,
    /// The order, without columns that it has already.
    pub order: Vec<OrderSpec>,
    /// What is kept of the row: the input's columns, those of `order` first.
    pub columns: Vec<String>,
    /// For each of the unit's calls, which of `columns` answers it.
    pub answers: Vec<usize>,
}

/// The columns of the state of these calls, unit by unit.
///
/// Shape: count `<name>` INT64 not null; sum, min, max `<name>` of the result's type, null = no value yet; avg `<name>.sum` (exact
/// DECIMAL(38,s), or FLOAT64; null = no value yet) and `<name>.count` INT64 not null. For first and last of one order there are the
/// columns of the chosen row, each once: those of the order, then those that only an argument names, called
/// `first(<order>).<column>`, as `first(price desc, dateTime).bidder`, nullable as they are in the input. A maximum over the column
/// by which a row is chosen first descending (or last ascending) is that row's, and has no column of its own; a minimum likewise,
/// where the column cannot be null. A group has taken in at least one row, so it always has a chosen one.
pub fn state_columns(calls: &[AggregateCall]) -> Vec<Column> {
    units(calls).into_iter().flat_map(|unit| unit.columns).collect()
}

/// The calls by what they share, in order of each unit's first call.
pub fn units(calls: &[AggregateCall]) -> Vec<AggregateUnit> {
    let homes: Vec<usize> = (0..calls.len()).map(|at| home(calls, at)).collect();
    let mut units: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, home) in homes.into_iter().enumerate() {
        match units.iter_mut().find(|(other, _)| *other == home) {
            Some((_, members)) => members.push(at),
            None => units.push((home, vec![at])),
        }
    }
    let unit = |(home, members): (usize, Vec<usize>)| match chooses_row(&calls[home]) {
        true => row_unit(calls, home, members),
        false => AggregateUnit { columns: own_columns(&calls[home]), calls: members, row: None },
    };
    units.into_iter().map(unit).collect()
}

/// Whether this call reads a chosen row.
fn chooses_row(call: &AggregateCall) -> bool {
    matches!(call.function, AggregateFunction::First | AggregateFunction::Last)
}

/// The call with which this one shares its state: itself, or an earlier one that chooses the same row, or any that chooses the
/// row of its extreme.
fn home(calls: &[AggregateCall], at: usize) -> usize {
    let call = &calls[at];
    let same_row = |other: &AggregateCall| {
        chooses_row(other)
            && match call.function {
                AggregateFunction::First | AggregateFunction::Last => {
                    call.function == other.function && distinct(&call.order) == distinct(&other.order)
                }
                AggregateFunction::Min | AggregateFunction::Max => has_extreme(other, call),
                _ => false,
            }
    };
    calls.iter().position(same_row).unwrap_or(at)
}

/// Whether the row that `row` chooses has the extreme that `call` asks for. Null is the least value in an order, and no value to
/// an extreme.
fn has_extreme(row: &AggregateCall, call: &AggregateCall) -> bool {
    let Some(first) = row.order.first() else { return false };
    let is_greatest = first.descending == (row.function == AggregateFunction::First);
    let is_asked = if call.function == AggregateFunction::Max { is_greatest } else { !is_greatest && !first.nullable };
    is_asked && call.argument.as_ref() == Some(&first.column) && call.result == first.ty
}

/// An order without columns that stand in it before: they decide nothing.
fn distinct(order: &[OrderSpec]) -> Vec<&OrderSpec> {
    let is_new = |(at, by): &(usize, &OrderSpec)| order[..*at].iter().all(|before| before.column != by.column);
    order.iter().enumerate().filter(is_new).map(|(_, by)| by).collect()
}

fn row_unit(calls: &[AggregateCall], home: usize, members: Vec<usize>) -> AggregateUnit {
    let call = &calls[home];
    let order: Vec<OrderSpec> = distinct(&call.order).into_iter().cloned().collect();
    let mut kept: Vec<Column> = order.iter().map(|by| Column::new(&by.column, by.ty.clone(), by.nullable)).collect();
    let mut answers = Vec::new();
    for member in &members {
        let member = &calls[*member];
        let name = member.argument.as_deref().unwrap_or_default();
        answers.push(kept.iter().position(|column| column.name == name).unwrap_or_else(|| {
            kept.push(Column::new(name, member.result.clone(), member.argument_nullable));
            kept.len() - 1
        }));
    }
    let row = row_name(call.function, &order);
    let columns = kept.iter().map(|column| Column { name: format!("{row}.{}", column.name), ..column.clone() }).collect();
    let is_last = call.function == AggregateFunction::Last;
    let row = ChosenRow { is_last, order, columns: kept.into_iter().map(|column| column.name).collect(), answers };
    AggregateUnit { calls: members, columns, row: Some(row) }
}

/// How a chosen row is called: `first(price desc, dateTime)`.
fn row_name(function: AggregateFunction, order: &[OrderSpec]) -> String {
    let by = |by: &OrderSpec| format!("{}{}", quoted(&by.column), if by.descending { " desc" } else { "" });
    format!("{}({})", function.name(), order.iter().map(by).collect::<Vec<_>>().join(", "))
}

/// A column's name, in quotes where it is more than a word, so that no two orders have one name.
fn quoted(name: &str) -> String {
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_word { name.into() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The columns of a call that shares nothing.
fn own_columns(call: &AggregateCall) -> Vec<Column> {
    match call.function {
        AggregateFunction::Count => vec![Column::new(&call.name, LogicalType::Int64, false)],
        AggregateFunction::Avg => {
            let sum = match &call.argument_type {
                Some(LogicalType::Decimal(_, scale)) => LogicalType::Decimal(38, *scale),
                Some(ty) if ty.is_integer() => LogicalType::Decimal(38, 0),
                _ => LogicalType::Float64,
            };
            vec![
                Column::new(format!("{}.sum", call.name), sum, true),
                Column::new(format!("{}.count", call.name), LogicalType::Int64, false),
            ]
        }
        AggregateFunction::Library => call.library.iter().flat_map(|library| library.state.clone()).collect(),
        _ => vec![Column::new(&call.name, call.result.clone(), true)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, function: AggregateFunction, argument: &str, order: &[(&str, bool)]) -> AggregateCall {
        let by = |(column, descending): &(&str, bool)| OrderSpec {
            column: (*column).into(),
            ty: LogicalType::Int64,
            nullable: *column == "maybe",
            descending: *descending,
        };
        AggregateCall {
            name: name.into(),
            function,
            argument: Some(argument.into()),
            argument_type: Some(LogicalType::Int64),
            argument_nullable: argument == "maybe",
            order: order.iter().map(by).collect(),
            result: LogicalType::Int64,
            library: None,
        }
    }

    fn texts(calls: &[AggregateCall]) -> Vec<String> {
        let text = |column: Column| format!("{} {}{}", column.name, column.ty, if column.nullable { "" } else { " NOT NULL" });
        state_columns(calls).into_iter().map(text).collect()
    }

    use AggregateFunction::{Avg, Count, First, Last, Max, Min, Sum};

    #[test]
    fn names_are_fixed() {
        let calls = [
            call("n", Count, "v", &[]),
            call("total", Sum, "v", &[]),
            call("mean", Avg, "v", &[]),
            call("most", Max, "v", &[]),
            call("any", First, "v", &[]),
            call("who", First, "bidder", &[("price", true), ("a \"time\"", false), ("price", false)]),
            call("when", First, "a \"time\"", &[("price", true), ("a \"time\"", false)]),
            call("late", Last, "maybe", &[("t", false)]),
        ];
        let expected = [
            "n INT64 NOT NULL",
            "total INT64",
            "mean.sum DECIMAL(38,0)",
            "mean.count INT64 NOT NULL",
            "most INT64",
            "first().v INT64 NOT NULL",
            "first(price desc, \"a \"\"time\"\"\").price INT64 NOT NULL",
            "first(price desc, \"a \"\"time\"\"\").a \"time\" INT64 NOT NULL",
            "first(price desc, \"a \"\"time\"\"\").bidder INT64 NOT NULL",
            "last(t).t INT64 NOT NULL",
            "last(t).maybe INT64",
        ];
        assert_eq!(texts(&calls), expected);
    }

    #[test]
    fn the_order_of_calls_changes_no_column() {
        let order = [("price", true), ("t", false)];
        let calls = [call("m", Max, "price", &[]), call("a", First, "x", &order), call("b", First, "y", &order)];
        let mut backwards = calls.to_vec();
        backwards.reverse();
        let sorted = |calls: &[AggregateCall]| {
            let mut texts = texts(calls);
            texts.sort();
            texts
        };
        assert_eq!(sorted(&calls), sorted(&backwards));
        assert_eq!(units(&calls)[0].calls, [0, 1, 2], "the maximum is in the row");
    }

    #[test]
    fn an_extreme_is_in_the_row_that_has_it() {
        let shares = |extreme: AggregateFunction, row: AggregateFunction, column: &str, descending: bool| {
            units(&[call("e", extreme, column, &[]), call("r", row, "x", &[(column, descending)])]).len() == 1
        };
        for column in ["v", "maybe"] {
            let is_never_null = column == "v";
            assert!(shares(Max, First, column, true) && shares(Max, Last, column, false));
            assert!(!shares(Max, First, column, false) && !shares(Max, Last, column, true));
            assert_eq!([shares(Min, First, column, false), shares(Min, Last, column, true)], [is_never_null; 2]);
            assert!(!shares(Min, First, column, true) && !shares(Min, Last, column, false));
        }
        assert_eq!(units(&[call("e", Max, "v", &[]), call("r", First, "x", &[("y", true)])]).len(), 2);
    }
}
