//! Every aggregate over every type, against a naive model: rows kept in lists, computed when asked.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, AsArray, BooleanArray, Decimal128Array, Float64Array, Int8Array, Int64Array, StringArray, TimestampMillisecondArray,
    UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use levada_common::aggregate_state::state_columns;
use levada_common::plan::{AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, OrderSpec, WindowSpec, WindowTime};
use levada_common::types::{Column, LogicalType, StreamSchema};
use proptest::prelude::*;

use super::*;

/// A value of the model. Null is the least in an order.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Int(i128),
    Float(f64),
    Text(String),
}

impl Value {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) => Ordering::Less,
            (_, Self::Null) => Ordering::Greater,
            (Self::Int(one), Self::Int(other)) => one.cmp(other),
            (Self::Float(one), Self::Float(other)) => normal(*one).total_cmp(&normal(*other)),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (one, other) => panic!("{one:?} and {other:?}"),
        }
    }
}

/// Floats have one zero and one NaN.
fn normal(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// The values of a column.
fn values(column: &ArrayRef) -> Vec<Value> {
    let value = |row: usize| {
        if column.is_null(row) {
            return Value::Null;
        }
        match column.data_type() {
            DataType::Utf8 => Value::Text(column.as_string::<i32>().value(row).into()),
            DataType::Float64 => Value::Float(column.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal128(_, _) => Value::Int(column.as_primitive::<Decimal128Type>().value(row)),
            DataType::UInt64 => Value::Int(column.as_primitive::<arrow::datatypes::UInt64Type>().value(row).into()),
            DataType::Boolean => Value::Int(column.as_boolean().value(row).into()),
            _ => {
                let column = cast(column, &DataType::Int64).expect("an integer or time");
                Value::Int(column.as_primitive::<Int64Type>().value(row).into())
            }
        }
    };
    (0..column.len()).map(value).collect()
}

const COLUMNS: [(&str, &str); 8] = [
    ("i", "INT64"),
    ("u", "UINT64"),
    ("f", "FLOAT64"),
    ("d", "DECIMAL(10,2)"),
    ("s", "STRING"),
    ("b", "BOOLEAN"),
    ("t", "TIMESTAMP"),
    ("y", "INT8"),
];

fn schema() -> StreamSchema {
    let columns = COLUMNS.iter().map(|(name, ty)| Column::new(*name, ty.parse().expect("a type"), true));
    StreamSchema::append(columns.collect())
}

fn type_of(name: &str) -> LogicalType {
    schema().column(name).expect("a column").ty.clone()
}

/// One row: a group and a small number per column, `None` for null.
type Row = (u8, [Option<i8>; 8]);

fn columns(rows: &[Row]) -> Vec<ArrayRef> {
    let of = |at: usize| rows.iter().map(move |(_, cells)| cells[at]);
    let special = [-f64::NAN, f64::NAN, -0.0, 0.0];
    let floats = of(2).map(|n| n.map(|n| special.get((n + 4) as usize).copied().unwrap_or(f64::from(n) / 2.0)));
    vec![
        Arc::new(of(0).map(|n| n.map(|n| if n == 7 { i64::MAX } else { i64::from(n) })).collect::<Int64Array>()),
        Arc::new(of(1).map(|n| n.map(|n| if n < 0 { u64::MAX - 7 } else { n as u64 })).collect::<UInt64Array>()),
        Arc::new(floats.collect::<Float64Array>()),
        Arc::new(
            of(3)
                .map(|n| n.map(i128::from))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(10, 2)
                .expect("a precision and a scale"),
        ),
        Arc::new(of(4).map(|n| n.map(|n| "ab".repeat(usize::from(n.unsigned_abs())))).collect::<StringArray>()),
        Arc::new(of(5).map(|n| n.map(|n| n > 0)).collect::<BooleanArray>()),
        Arc::new(of(6).map(|n| n.map(i64::from)).collect::<TimestampMillisecondArray>()),
        Arc::new(of(7).collect::<Int8Array>()),
    ]
}

fn call(function: AggregateFunction, argument: Option<&str>, order: &[(&str, bool)]) -> AggregateCall {
    let argument_type = argument.map(type_of);
    let result = match (function, &argument_type) {
        (AggregateFunction::Count, _) => LogicalType::Int64,
        (AggregateFunction::Avg, _) | (AggregateFunction::Sum, Some(LogicalType::Float64)) => LogicalType::Float64,
        (AggregateFunction::Sum, Some(LogicalType::Decimal(_, scale))) => LogicalType::Decimal(38, *scale),
        (AggregateFunction::Sum, _) => LogicalType::Decimal(38, 0),
        (_, ty) => ty.clone().expect("an argument"),
    };
    let order = order.iter().map(|(column, descending)| OrderSpec {
        column: (*column).into(),
        ty: type_of(column),
        nullable: true,
        descending: *descending,
    });
    let order: Vec<OrderSpec> = order.collect();
    let name = format!("{function:?}({argument:?} {})", order.iter().map(|by| by.column.as_str()).collect::<String>());
    let argument = argument.map(Into::into);
    AggregateCall { name, function, argument, argument_type, argument_nullable: true, order, result, library: None }
}

fn calls() -> Vec<AggregateCall> {
    use AggregateFunction::{Avg, Count, First, Last, Max, Min, Sum};
    let mut calls = vec![call(Count, None, &[]), call(Count, Some("s"), &[])];
    for (name, _) in COLUMNS {
        calls.extend([call(Min, Some(name), &[]), call(Max, Some(name), &[])]);
        calls.extend([call(First, Some(name), &[]), call(Last, Some(name), &[("t", false)])]);
        calls.extend([
            call(First, Some(name), &[("i", true), ("s", false)]),
            call(Last, Some(name), &[("s", true), ("d", false)]),
        ]);
        calls.push(call(First, Some("i"), &[(name, false)]));
        calls.push(call(Last, Some("s"), &[(name, true), ("y", true)]));
    }
    for name in ["i", "u", "f", "d", "y"] {
        calls.extend([call(Sum, Some(name), &[]), call(Avg, Some(name), &[])]);
    }
    calls
}

/// The result of a call over these rows, each a value per column of the schema.
fn naive(call: &AggregateCall, rows: &[Vec<Value>]) -> Value {
    let place = |name: &str| COLUMNS.iter().position(|(column, _)| *column == name).expect("a column");
    let argument = call.argument.as_deref().map(place);
    let present: Vec<&Value> = argument
        .map_or(Vec::new(), |argument| rows.iter().map(|row| &row[argument]).filter(|value| **value != Value::Null).collect());
    let sum = || {
        present.iter().fold((0i128, 0f64), |(ints, floats), value| match value {
            Value::Int(n) => (ints + n, floats),
            Value::Float(n) => (ints, floats + n),
            other => panic!("{other:?}"),
        })
    };
    let is_float = call.argument_type == Some(LogicalType::Float64);
    match call.function {
        AggregateFunction::Count => Value::Int(argument.map_or(rows.len(), |_| present.len()) as i128),
        _ if present.is_empty() && !matches!(call.function, AggregateFunction::First | AggregateFunction::Last) => Value::Null,
        AggregateFunction::Sum if is_float => Value::Float(sum().1),
        AggregateFunction::Sum => Value::Int(sum().0),
        AggregateFunction::Avg if is_float => Value::Float(sum().1 / present.len() as f64),
        AggregateFunction::Avg => {
            let scale =
                if let Some(LogicalType::Decimal(_, scale)) = call.argument_type { 10f64.powi(scale.into()) } else { 1.0 };
            Value::Float(sum().0 as f64 / (present.len() as f64 * scale))
        }
        AggregateFunction::Min => (*present.iter().min_by(|one, other| one.order(other)).expect("one")).clone(),
        AggregateFunction::Max => (*present.iter().max_by(|one, other| one.order(other)).expect("one")).clone(),
        AggregateFunction::Library => panic!("the engine has no library"),
        AggregateFunction::First | AggregateFunction::Last => {
            let compare = |one: &&Vec<Value>, other: &&Vec<Value>| {
                let orders = call.order.iter().map(|by| {
                    let ordering = one[place(&by.column)].order(&other[place(&by.column)]);
                    if by.descending { ordering.reverse() } else { ordering }
                });
                orders.fold(Ordering::Equal, Ordering::then)
            };
            // Of equal rows `min_by` gives the first, `max_by` the last.
            let is_first = call.function == AggregateFunction::First;
            let chosen = if is_first { rows.iter().min_by(compare) } else { rows.iter().max_by(compare) };
            chosen.map_or(Value::Null, |row| row[argument.expect("an argument")].clone())
        }
    }
}

fn no_library(call: &AggregateCall) -> Result<super::Make, String> {
    Err(format!("\"{}\" is of a library", call.name))
}

fn spec(calls: &[AggregateCall], phase: AggregatePhase) -> AggregateSpec {
    AggregateSpec {
        keys: Vec::new(),
        window: WindowSpec::Global,
        phase,
        calls: calls.to_vec(),
        changelog_full: false,
        firing: None,
        trigger: None,
        time: WindowTime::default(),
        takes_changes: false,
        distinct: Vec::new(),
    }
}

fn plan(calls: &[AggregateCall]) -> Arc<AggregatePlan> {
    Arc::new(AggregatePlan::new(&spec(calls, AggregatePhase::Single), &schema(), &no_library).expect("it is planned"))
}

/// Takes rows in, their groups numbered in order of first appearance in `known`.
fn take_in(plan: &AggregatePlan, set: &mut AggregateSet, known: &mut Vec<u8>, rows: &[Row]) {
    let mut ids = Vec::new();
    for (group, _) in rows {
        let id = known.iter().position(|other| other == group).unwrap_or_else(|| {
            known.push(*group);
            known.len() - 1
        });
        ids.push(id as u32);
    }
    set.resize(known.len());
    let columns = columns(rows);
    let inputs: Vec<ArrayRef> = plan.inputs(&columns).collect();
    let groups = match ids.as_slice() {
        [one, rest @ ..] if rest.iter().all(|id| id == one) => Groups::One { group: *one, rows: ids.len() },
        each => Groups::Each(each),
    };
    set.take_in(groups, &inputs).expect("no sum overflows");
}

/// Compares with the model, which has all rows by group.
fn compare(calls: &[AggregateCall], set: &AggregateSet, known: &[u8], rows: &[Row]) {
    let all: Vec<Vec<Value>> = columns(rows).iter().map(values).collect();
    let backwards: Vec<u32> = (0..known.len() as u32).rev().collect();
    for (selection, order) in
        [(Rows::first(known.len()), (0..known.len() as u32).collect()), (Rows::Ids(&backwards), backwards.clone())]
    {
        for (call, column) in calls.iter().zip(set.read(selection)) {
            assert_eq!(column.data_type(), &call.result.to_arrow(), "{}", call.name);
            let found = values(&column);
            for (at, id) in order.iter().enumerate() {
                let of_group = rows.iter().enumerate().filter(|(_, (group, _))| *group == known[*id as usize]);
                let of_group: Vec<Vec<Value>> =
                    of_group.map(|(row, _)| all.iter().map(|column| column[row].clone()).collect()).collect();
                let expected = naive(call, &of_group);
                assert_eq!(found[at].order(&expected), Ordering::Equal, "{}: {:?}, not {expected:?}", call.name, found[at]);
            }
        }
    }
}

fn row() -> impl Strategy<Value = Row> {
    let cell = prop_oneof![1 => Just(None), 8 => (-8i8..8).prop_map(Some)];
    (0u8..5, prop::array::uniform8(cell))
}

fn batches() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let no_nulls = prop::collection::vec((0u8..5, prop::array::uniform8((-8i8..8).prop_map(Some))), 1..12);
    prop::collection::vec(prop_oneof![prop::collection::vec(row(), 1..30), no_nulls], 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn results_are_those_of_the_model(batches in batches()) {
        let calls = calls();
        let plan = plan(&calls);
        let (mut set, mut known, mut all) = (plan.accumulators(), Vec::new(), Vec::new());
        for rows in &batches {
            take_in(&plan, &mut set, &mut known, rows);
            all.extend(rows.iter().cloned());
            compare(&calls, &set, &known, &all);
        }
        let (mut other, mut other_known) = (plan.accumulators(), Vec::new());
        take_in(&plan, &mut other, &mut other_known, &batches[0]);
        other.resize(known.len());
        let ids: Vec<u32> = (0..known.len() as u32).collect();
        other.assign(&ids, &set.states(Rows::Ids(&ids)));
        compare(&calls, &other, &known, &all);
        set.clear();
        let (mut known, last) = (Vec::new(), batches.last().expect("one"));
        take_in(&plan, &mut set, &mut known, last);
        compare(&calls, &set, &known, last);
    }

    #[test]
    fn states_of_parts_merge_to_the_whole(batches in batches()) {
        let calls = calls();
        let plan = plan(&calls);
        let states: Vec<Column> = state_columns(&calls);
        let last = Arc::new(
            AggregatePlan::new(&spec(&calls, AggregatePhase::Final), &StreamSchema::append(states.clone()), &no_library).expect("it is planned"),
        );
        let (mut set, mut known, mut all) = (last.accumulators(), Vec::<u8>::new(), Vec::new());
        for rows in &batches {
            let (mut part, mut part_known) = (plan.accumulators(), Vec::new());
            take_in(&plan, &mut part, &mut part_known, rows);
            let columns = part.states(Rows::first(part_known.len()));
            for (column, planned) in columns.iter().zip(&states) {
                prop_assert_eq!(column.data_type(), &planned.ty.to_arrow());
                prop_assert!(planned.nullable || column.null_count() == 0, "{} has a null", planned.name);
            }
            let mut ids = Vec::new();
            for group in &part_known {
                let id = known.iter().position(|other| other == group).unwrap_or_else(|| {
                    known.push(*group);
                    known.len() - 1
                });
                ids.push(id as u32);
            }
            set.resize(known.len());
            set.take_in(Groups::Each(&ids), &last.inputs(&columns).collect::<Vec<_>>()).expect("no sum overflows");
            all.extend(rows.iter().cloned());
        }
        compare(&calls, &set, &known, &all);
    }
}

#[test]
fn calls_with_one_order_share_one_row() {
    let calls = calls();
    let mut rows: Vec<(AggregateFunction, &[OrderSpec])> = Vec::new();
    // The greatest "i" and "t" are in rows that are chosen by them.
    let mut others = -2i64;
    for call in &calls {
        match call.function {
            AggregateFunction::First | AggregateFunction::Last => {
                if !rows.contains(&(call.function, &call.order)) {
                    rows.push((call.function, &call.order));
                }
            }
            _ => others += 1,
        }
    }
    assert_eq!(plan(&calls).accumulators().units_len() as i64, rows.len() as i64 + others);
}

#[test]
fn no_row_reads_as_null_and_zero() {
    let calls = calls();
    let mut set = plan(&calls).accumulators();
    set.resize(1);
    for (call, column) in calls.iter().zip(set.read(Rows::first(1))) {
        let expected = if call.function == AggregateFunction::Count { Value::Int(0) } else { Value::Null };
        assert_eq!(values(&column), [expected], "{}", call.name);
    }
}

#[test]
fn sums_beyond_64_bits_are_exact() {
    let calls = [call(AggregateFunction::Sum, Some("i"), &[])];
    let plan = plan(&calls);
    let mut set = plan.accumulators();
    set.resize(2);
    let ints = |values: Vec<i64>| -> Vec<ArrayRef> { vec![Arc::new(Int64Array::from(values))] };
    set.take_in(Groups::Each(&[0, 0, 1]), &ints(vec![i64::MAX, i64::MAX, -1])).expect("it fits");
    set.take_in(Groups::One { group: 0, rows: 2 }, &ints(vec![i64::MAX, i64::MAX])).expect("it fits");
    set.resize(3);
    set.take_in(Groups::Each(&[2, 2, 1]), &ints(vec![i64::MIN, i64::MIN, -1])).expect("it fits");
    let sums = values(&set.read(Rows::first(3))[0]);
    assert_eq!(sums, [Value::Int(4 * i128::from(i64::MAX)), Value::Int(-2), Value::Int(2 * i128::from(i64::MIN))]);
}

#[test]
fn sums_beyond_38_digits_are_refused() {
    let ty = LogicalType::Decimal(38, 2);
    let wide = StreamSchema::append(vec![Column::new("d", ty.clone(), true)]);
    for function in [AggregateFunction::Sum, AggregateFunction::Avg] {
        let call = AggregateCall {
            name: "total".into(),
            function,
            argument: Some("d".into()),
            argument_type: Some(ty.clone()),
            argument_nullable: true,
            order: Vec::new(),
            result: if function == AggregateFunction::Sum { ty.clone() } else { LogicalType::Float64 },
            library: None,
        };
        let plan =
            Arc::new(AggregatePlan::new(&spec(&[call], AggregatePhase::Single), &wide, &no_library).expect("it is planned"));
        let column = |values: Vec<i128>| -> Vec<ArrayRef> {
            vec![Arc::new(Decimal128Array::from(values).with_data_type(DataType::Decimal128(38, 2)))]
        };
        let (most, mut set) = (10i128.pow(38) - 1, plan.accumulators());
        set.resize(2);
        set.take_in(Groups::Each(&[0, 1, 1]), &column(vec![5, most - 1, 1])).expect("38 digits");
        let overflow = set.take_in(Groups::Each(&[1]), &column(vec![1])).expect_err("39 digits");
        assert_eq!((overflow.group, overflow.call.name.as_str()), (1, "total"));

        let state = set.states(Rows::Ids(&[0]));
        let mut other = plan.accumulators();
        other.resize(1);
        other.merge(Groups::Each(&[0]), &state).expect("it fits");
        assert_eq!(values(&other.states(Rows::first(1))[0]), [Value::Int(5)]);
    }
}
