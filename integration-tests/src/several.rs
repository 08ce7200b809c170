//! Functions of the cases that have several outputs or inputs.

use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_engine::function::{
    CoGroupFunction, FiredTimers, FunctionError, KeyedCoProcessFunction, KeyedContext, KeyedProcessFunction, Output, Rows,
    WindowFunction, WindowGroup,
};
use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};
use levada_taskmanager::Builder;

use crate::counting::add_up;

/// Adds the functions: `number_tenths` (k, n → k, n, and beside it `tenth` with every tenth row of a key and its number), `settle`
/// (orders and payments → id, amount, and beside it `unpaid` with the orders that no payment came for), `spread` (the greatest n of a
/// window less the least) and `balance` (rows of two inputs in a window, and the sum of their n).
pub fn register(builder: Builder) -> Builder {
    builder
        .keyed_process(tenths(), |_: &Options| Ok(Tenths))
        .keyed_co_process(settle(), |_: &Options| Ok(Settle))
        .window(spread(), |_: &Options| Ok(Spread))
        .co_group(balance(), |_: &Options| Ok(Balance))
}

fn spread() -> FunctionDeclaration {
    FunctionDeclaration::new("spread", FunctionKind::Window)
        .input("n", LogicalType::Int64)
        .output("rows", LogicalType::Int64)
        .output("spread", LogicalType::Int64)
}

/// The greatest number of a window less the least.
struct Spread;

impl WindowFunction for Spread {
    fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
        let numbers = rows.column::<i64>("n")?.values();
        let least = numbers.iter().min().copied().unwrap_or_default();
        let greatest = numbers.iter().max().copied().unwrap_or_default();
        out.push((rows.len() as i64, greatest - least))
    }
}

fn balance() -> FunctionDeclaration {
    FunctionDeclaration::new("balance", FunctionKind::CoGroup)
        .input("n", LogicalType::Int64)
        .second_input("n", LogicalType::Int64)
        .output("first", LogicalType::Int64)
        .output("second", LogicalType::Int64)
        .output("sum", LogicalType::Int64)
}

/// How many rows each of two inputs has in a window, and the sum of their numbers.
struct Balance;

impl CoGroupFunction for Balance {
    fn co_group(
        &mut self,
        _group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let sum = |rows: Rows<'_>| rows.column::<i64>("n").map(|n| n.values().iter().sum::<i64>());
        out.push((first.len() as i64, second.len() as i64, sum(first)? + sum(second)?))
    }
}

/// How long an order waits for its payment, in milliseconds of event time.
const PATIENCE_MS: i64 = 5_000;

fn settle() -> FunctionDeclaration {
    FunctionDeclaration::new("settle", FunctionKind::KeyedCoProcess)
        .input("id", LogicalType::Int64)
        .input("at", LogicalType::Int64)
        .second_input("amount", LogicalType::Int64)
        .output("id", LogicalType::Int64)
        .output("amount", LogicalType::Int64)
        .side_output("unpaid", "id", LogicalType::Int64)
        .event_timers()
}

/// Puts orders and payments together; whichever comes first waits.
struct Settle;

/// The id of an order that waits, and the amount of a payment that does.
type Waiting = (ValueState<i64>, ValueState<i64>);

impl KeyedCoProcessFunction for Settle {
    type States = Waiting;

    fn bind(binder: &mut dyn Binder) -> Result<Waiting, BindError> {
        Ok((ValueStateDescriptor::new("order").bind(binder)?, ValueStateDescriptor::new("amount").bind(binder)?))
    }

    fn process1(
        &mut self,
        (order, payment): &Waiting,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (id, at) = (rows.column::<i64>("id")?, rows.column::<i64>("at")?);
        for row in 0..rows.len() {
            ctx.enter(row);
            match payment.get(ctx)?.copied() {
                Some(amount) => {
                    payment.clear(ctx)?;
                    out.push((id.get(row), amount))?;
                }
                None => {
                    order.set(ctx, id.get(row))?;
                    ctx.set_event_timer(at.get(row) + PATIENCE_MS)?;
                }
            }
        }
        Ok(())
    }

    fn process2(
        &mut self,
        (order, payment): &Waiting,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let amounts = rows.column::<i64>("amount")?;
        for row in 0..rows.len() {
            ctx.enter(row);
            match order.get(ctx)?.copied() {
                Some(id) => {
                    order.clear(ctx)?;
                    out.push((id, amounts.get(row)))?;
                }
                None => payment.set(ctx, amounts.get(row))?,
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        (order, _): &Waiting,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        for timer in 0..timers.len() {
            ctx.enter(timer);
            if let Some(id) = order.get(ctx)?.copied() {
                order.clear(ctx)?;
                out.side("unpaid")?.push((id,))?;
            }
        }
        Ok(())
    }
}

fn tenths() -> FunctionDeclaration {
    FunctionDeclaration::new("number_tenths", FunctionKind::KeyedProcess)
        .input("k", LogicalType::Int64)
        .input("n", LogicalType::Int64)
        .output("k", LogicalType::Int64)
        .output("n", LogicalType::Int64)
        .side_output("tenth", "n", LogicalType::Int64)
        .side_output("tenth", "number", LogicalType::Int64)
}

/// Numbers the rows of each key, and tells of every tenth.
struct Tenths;

impl KeyedProcessFunction for Tenths {
    type States = ValueState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ValueStateDescriptor::new("count").bind(binder)
    }

    fn process(
        &mut self,
        count: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let n = rows.column::<i64>("n")?;
        let numbers = add_up(count, rows.len(), ctx, |_| 1)?;
        for (row, number) in numbers.into_iter().enumerate().filter(|(_, number)| number % 10 == 0) {
            out.side("tenth")?.push((n.get(row), number))?;
        }
        out.columns(vec![rows.array("k")?.clone(), rows.array("n")?.clone()])
    }
}
