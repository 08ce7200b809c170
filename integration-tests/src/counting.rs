//! Functions of the cases: the number of a key's row, and the sum of its values so far.
//!
//! A row's columns go through unchanged, with the result behind them: nothing is lost between two of them in a chain.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_engine::function::{FoldFunction, FunctionError, KeyedContext, KeyedProcessFunction, Output, Rows};
use levada_state::descriptor::{BindError, Binder, Ttl, ValueState, ValueStateDescriptor};
use levada_taskmanager::Builder;

/// An hour.
const HOUR_MS: u64 = 3_600_000;

/// Two seconds.
const SECONDS_MS: u64 = 2_000;

/// Adds the functions: `count`, `count_for_an_hour` and `count_for_two_seconds` (k, v → k, v, n), `number` (the same, as a fold: its rows stay where their
/// keys are), `sum` (k, v, n → k, n, total).
pub fn register(builder: Builder) -> Builder {
    builder
        .keyed_process(counting("count"), |_: &Options| Ok(Count::<0>))
        .keyed_process(counting("count_for_an_hour"), |_: &Options| Ok(Count::<HOUR_MS>))
        .keyed_process(counting("count_for_two_seconds"), |_: &Options| Ok(Count::<SECONDS_MS>))
        .fold::<Number>(
            FunctionDeclaration::new("number", FunctionKind::Fold)
                .input("v", LogicalType::Int64)
                .output("v", LogicalType::Int64)
                .output("n", LogicalType::Int64),
        )
        .keyed_process(summing(), |_: &Options| Ok(Sum))
}

fn counting(name: &str) -> FunctionDeclaration {
    FunctionDeclaration::new(name, FunctionKind::KeyedProcess)
        .nullable_input("k", LogicalType::String)
        .nullable_input("v", LogicalType::Int64)
        .nullable_output("k", LogicalType::String)
        .nullable_output("v", LogicalType::Int64)
        .output("n", LogicalType::Int64)
}

fn summing() -> FunctionDeclaration {
    FunctionDeclaration::new("sum", FunctionKind::KeyedProcess)
        .nullable_input("k", LogicalType::String)
        .nullable_input("v", LogicalType::Int64)
        .input("n", LogicalType::Int64)
        .nullable_output("k", LogicalType::String)
        .output("n", LogicalType::Int64)
        .output("total", LogicalType::Int64)
}

/// Adds to the number of each row's key what `of_row` says; what that comes to, row by row.
pub(crate) fn add_up(
    number: &ValueState<i64>,
    rows: usize,
    ctx: &mut KeyedContext<'_>,
    of_row: impl Fn(usize) -> i64,
) -> Result<Vec<i64>, FunctionError> {
    let mut numbers = Vec::with_capacity(rows);
    for row in 0..rows {
        ctx.enter(row);
        let sum = number.get(ctx)?.copied().unwrap_or(0) + of_row(row);
        number.set(ctx, sum)?;
        numbers.push(sum);
    }
    Ok(numbers)
}

/// Numbers the rows of each key. Its state lives for `TTL_MS` milliseconds of processing time; 0 = for ever.
struct Count<const TTL_MS: u64>;

impl<const TTL_MS: u64> KeyedProcessFunction for Count<TTL_MS> {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        let count = ValueStateDescriptor::new("count");
        let lives = Ttl::processing(Duration::from_millis(TTL_MS));
        if TTL_MS == 0 { count.bind(binder) } else { count.with_ttl(lives).bind(binder) }
    }

    fn process(
        &mut self,
        count: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let numbers = add_up(count, rows.len(), ctx, |_| 1)?;
        out.columns(vec![rows.array("k")?.clone(), rows.array("v")?.clone(), Arc::new(Int64Array::from(numbers))])
    }
}

/// Numbers the rows of each key.
struct Number;

impl FoldFunction for Number {
    type Input = i64;
    type Accumulator = (i64, i64);

    fn initial() -> (i64, i64) {
        (0, 0)
    }

    fn fold((last, number): &mut (i64, i64), next: i64) {
        (*last, *number) = (next, *number + 1);
    }
}

/// Adds up the values of each key.
struct Sum;

impl KeyedProcessFunction for Sum {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new("sum").bind(binder)
    }

    fn process(
        &mut self,
        sum: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let values = rows.array("v")?.as_primitive::<Int64Type>().values().clone();
        let totals = add_up(sum, rows.len(), ctx, |row| values[row])?;
        out.columns(vec![rows.array("k")?.clone(), rows.array("n")?.clone(), Arc::new(Int64Array::from(totals))])
    }
}
