//! Every aggregate, in one go against in pieces: states of parts that are merged, and that are loaded again for later rows, give what
//! all rows give at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use levada_common::plan::{AggregateCall, OrderSpec};
use levada_common::types::{Column, LogicalType};
use levada_engine::aggregate::{LibraryAggregate, OfGroups};
use levada_engine::expr::ExpressionCompiler;
use proptest::prelude::*;

use super::{Argument, LibraryRequest, names};
use crate::Compiler;

fn column(name: &str, ty: LogicalType) -> Argument {
    Argument::Column(Column::new(name, ty, true))
}

fn constant(sql: &str) -> Argument {
    let nothing = levada_common::types::StreamSchema::append(Vec::new());
    Argument::Constant(sql.into(), Compiler::new().constant(sql, &nothing).unwrap().unwrap())
}

fn request(function: &str) -> LibraryRequest {
    let (x, y, s, b) = (LogicalType::Int64, LogicalType::Float64, LogicalType::String, LogicalType::Boolean);
    let x = || column("x", x.clone());
    let arguments = match function {
        "corr" | "covar" | "covar_samp" | "covar_pop" => vec![x(), column("y", y)],
        name if name.starts_with("regr_") => vec![x(), column("y", y)],
        "approx_percentile_cont" | "percentile_cont" | "quantile_cont" => vec![x(), constant("0.25")],
        "approx_percentile_cont_with_weight" => vec![x(), column("w", LogicalType::Int64), constant("0.25")],
        "string_agg" => vec![column("s", s), constant("'; '")],
        "bool_and" | "bool_or" => vec![column("b", b)],
        _ => vec![x()],
    };
    LibraryRequest { function: function.into(), arguments, order: Vec::new(), distinct: false, filter: None }
}

fn by_x(descending: bool) -> Vec<OrderSpec> {
    vec![OrderSpec { column: "x".into(), ty: LogicalType::Int64, nullable: true, descending }]
}

/// Value and group.
type Row = (Option<i64>, usize);

/// The columns that a call reads, of these rows.
fn columns(call: &AggregateCall, rows: &[Row]) -> Vec<ArrayRef> {
    let of = |name: &String| -> ArrayRef {
        let values = rows.iter().map(|row| row.0);
        match name.as_str() {
            "y" => Arc::new(values.map(|x| x.map(|x| (x * x % 7) as f64 / 2.0)).collect::<Float64Array>()),
            "w" => Arc::new(values.map(|x| x.map(|x| x.abs() + 1)).collect::<Int64Array>()),
            "s" => Arc::new(values.map(|x| x.map(|x| format!("text {x}"))).collect::<StringArray>()),
            "b" => Arc::new(values.map(|x| x.map(|x| x > 0)).collect::<BooleanArray>()),
            "is_even" => Arc::new(values.map(|x| x.map(|x| x % 2 == 0)).collect::<BooleanArray>()),
            _ => Arc::new(values.collect::<Int64Array>()),
        }
    };
    call.reads().map(of).collect()
}

const GROUPS: usize = 4;

/// The states of all groups after these rows, `states` being those before, if any.
fn update(library: &dyn LibraryAggregate, call: &AggregateCall, states: Option<&[ArrayRef]>, rows: &[Row]) -> Vec<ArrayRef> {
    let all: Vec<usize> = (0..GROUPS).collect();
    let nothing: Vec<ArrayRef> = kept_types(call).iter().map(|ty| arrow::array::new_null_array(ty, 0)).collect();
    let known = match states {
        Some(states) => OfGroups { groups: &all, columns: states },
        None => OfGroups { groups: &[], columns: &nothing },
    };
    let groups: Vec<usize> = rows.iter().map(|row| row.1).collect();
    let states = library.update(GROUPS, known, OfGroups { groups: &groups, columns: &columns(call, rows) }).unwrap();
    assert_eq!(states.iter().map(|column| column.data_type().clone()).collect::<Vec<_>>(), kept_types(call), "{call:?}");
    assert!(states.iter().all(|column| column.len() == GROUPS));
    states
}

fn kept_types(call: &AggregateCall) -> Vec<DataType> {
    call.library.as_ref().unwrap().state.iter().map(|column| column.ty.to_arrow()).collect()
}

fn read(library: &dyn LibraryAggregate, states: &[ArrayRef]) -> ArrayRef {
    let all: Vec<usize> = (0..GROUPS).collect();
    library.read(GROUPS, OfGroups { groups: &all, columns: states }).unwrap()
}

/// Equal, floats but for rounding.
fn is_alike(one: &ArrayRef, other: &ArrayRef) -> bool {
    if one.data_type() != &DataType::Float64 {
        return one == other;
    }
    let (one, other) = (one.as_primitive::<Float64Type>(), other.as_primitive::<Float64Type>());
    let is_near = |(one, other): (Option<f64>, Option<f64>)| match (one, other) {
        (Some(one), Some(other)) => {
            one == other || (one - other).abs() <= 1e-9 * one.abs().max(1.0) || (one.is_nan() && other.is_nan())
        }
        (one, other) => one.is_none() && other.is_none(),
    };
    one.iter().zip(other).all(is_near)
}

fn requests() -> Vec<LibraryRequest> {
    let mut requests: Vec<LibraryRequest> = names().map(request).collect();
    let array = || request("array_agg");
    requests.extend([true, false].map(|descending| LibraryRequest { order: by_x(descending), ..array() }));
    requests.push(LibraryRequest { filter: Some("is_even".into()), ..array() });
    requests.push(LibraryRequest { filter: Some("is_even".into()), ..request("stddev") });
    requests.push(LibraryRequest { distinct: true, ..request("median") });
    requests
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pieces_give_what_the_whole_gives(
        first in prop::collection::vec((prop::option::weighted(0.9, -9i64..10), 0..GROUPS), 1..30),
        second in prop::collection::vec((prop::option::weighted(0.9, -9i64..10), 0..GROUPS), 1..30),
    ) {
        let (compiler, mut different) = (Compiler::new(), Vec::new());
        for request in requests() {
            let function = request.function.clone();
            let call = request.plan("c").unwrap_or_else(|reason| panic!("{function}: {reason}"));
            let library = compiler.aggregate(&call).unwrap();
            let library = library.as_ref();
            let whole: Vec<Row> = first.iter().chain(&second).copied().collect();
            let expected = read(library, &update(library, &call, None, &whole));
            assert_eq!(*expected.data_type(), call.result.to_arrow());
            let (one, other) = (update(library, &call, None, &first), update(library, &call, None, &second));
            let later = read(library, &update(library, &call, Some(&one), &second));
            if !is_alike(&later, &expected) {
                different.push(format!("{function} later: {later:?} {expected:?}"));
            }
            let all: Vec<usize> = (0..GROUPS).collect();
            let parts = [&one, &other].map(|states| OfGroups { groups: &all, columns: states });
            let merged = read(library, &library.merge(GROUPS, &parts).unwrap());
            if !is_alike(&merged, &expected) {
                different.push(format!("{function} merged: {merged:?} {expected:?}"));
            }
        }
        prop_assert!(different.is_empty(), "{}", different.join("\n"));
    }
}

#[test]
fn results_are_right_by_hand() {
    let rows: Vec<Row> = [1, 2, 2, 7].into_iter().map(|x| (Some(x), 0)).chain([(None, 0), (Some(5), 1)]).collect();
    let result = |request: LibraryRequest| {
        let call = request.plan("c").unwrap();
        let library = Compiler::new().aggregate(&call).unwrap();
        read(library.as_ref(), &update(library.as_ref(), &call, None, &rows))
    };
    let floats = |request| result(request).as_primitive::<Float64Type>().iter().collect::<Vec<_>>();
    assert_eq!(floats(request("var_pop"))[..2], [Some(5.5), Some(0.0)]);
    assert_eq!(floats(request("median"))[..3], [Some(2.0), Some(5.0), None]);
    let list = |request| {
        let column = result(request);
        let values = column.as_list::<i32>().value(0);
        values.as_primitive::<Int64Type>().iter().collect::<Vec<_>>()
    };
    let descending = LibraryRequest { order: by_x(true), ..request("array_agg") };
    assert_eq!(list(descending), [Some(7), Some(2), Some(2), Some(1), None], "null is the least value");
    let even = LibraryRequest { filter: Some("is_even".into()), ..request("array_agg") };
    assert_eq!(list(even), [Some(2), Some(2)]);
    let text = result(request("string_agg"));
    assert_eq!(text.as_string::<i32>().value(0), "text 1; text 2; text 2; text 7");
}

#[test]
fn floats_have_one_zero_and_one_nan() {
    let y = || vec![column("y", LogicalType::Float64)];
    let by_y = vec![OrderSpec { column: "y".into(), ty: LogicalType::Float64, nullable: true, descending: false }];
    let of = |request: LibraryRequest, values: &[f64]| {
        let call = request.plan("c").unwrap();
        let library = Compiler::new().aggregate(&call).unwrap();
        let floats: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
        let columns: Vec<ArrayRef> = call.reads().map(|name| Arc::clone(if name == "y" { &floats } else { &numbers })).collect();
        let nothing: Vec<ArrayRef> = kept_types(&call).iter().map(arrow::array::new_empty_array).collect();
        let rows = OfGroups { groups: &vec![0; values.len()], columns: &columns };
        let states = library.update(1, OfGroups { groups: &[], columns: &nothing }, rows).unwrap();
        library.read(1, OfGroups { groups: &[0], columns: &states }).unwrap()
    };
    let median = of(LibraryRequest { arguments: y(), ..request("median") }, &[-f64::NAN, 1.0, 2.0]);
    assert_eq!(median.as_primitive::<Float64Type>().value(0), 2.0);
    let numbers = of(LibraryRequest { order: by_y, ..request("array_agg") }, &[-f64::NAN, 0.0, -0.0, -1.0, f64::NAN]);
    assert_eq!(numbers.as_list::<i32>().value(0).as_primitive::<Int64Type>().values(), &[3, 1, 2, 0, 4]);
}

#[test]
fn no_groups_have_no_states_and_no_results() {
    for request in requests() {
        let call = request.plan("c").unwrap();
        let library = Compiler::new().aggregate(&call).unwrap();
        let nothing: Vec<ArrayRef> = kept_types(&call).iter().map(arrow::array::new_empty_array).collect();
        let of_none = OfGroups { groups: &[], columns: &nothing };
        assert_eq!(library.read(0, of_none).unwrap().len(), 0, "{call:?}");
        let rows = columns(&call, &[]);
        let updated = library.update(0, of_none, OfGroups { groups: &[], columns: &rows }).unwrap();
        let merged = library.merge(0, &[of_none, of_none]).unwrap();
        for states in [updated, merged] {
            let types: Vec<DataType> = states.iter().map(|column| column.data_type().clone()).collect();
            assert!(types == kept_types(&call) && states.iter().all(|column| column.is_empty()), "{call:?}");
        }
    }
}

#[test]
fn groups_without_rows_read_as_over_no_rows() {
    let call = request("approx_distinct").plan("c").unwrap();
    let library = Compiler::new().aggregate(&call).unwrap();
    let states = update(library.as_ref(), &call, None, &[(Some(1), 2)]);
    let some = UInt32Array::from(vec![2]);
    let states: Vec<ArrayRef> = states.iter().map(|column| take(column, &some, None).unwrap()).collect();
    let read = library.read(3, OfGroups { groups: &[1], columns: &states }).unwrap();
    let counts = arrow::compute::cast(&read, &DataType::Int64).unwrap();
    assert_eq!(counts.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(0), Some(1), Some(0)]);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let text = || vec![column("s", LogicalType::String)];
    let cases = [
        (LibraryRequest { arguments: text(), ..request("bool_and") }, "bool_and"),
        (LibraryRequest { arguments: vec![], ..request("median") }, "needs an argument"),
        (LibraryRequest { arguments: text(), ..request("corr") }, "corr"),
    ];
    for (request, part) in cases {
        let reason = request.plan("c").expect_err(part);
        assert!(reason.contains(part), "{reason}");
    }
}
