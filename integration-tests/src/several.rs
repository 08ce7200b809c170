//! Functions of the cases that have several outputs or inputs.

use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_engine::function::{FunctionError, KeyedContext, KeyedProcessFunction, Output, Rows};
use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};
use levada_taskmanager::Builder;

/// Adds the functions: `number_tenths` (k, n → k, n, and beside it `tenth` with every tenth row of a key and its number).
pub fn register(builder: Builder) -> Builder {
    builder.keyed_process(tenths(), |_: &Options| Ok(Tenths))
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
        for row in 0..rows.len() {
            ctx.enter(row);
            let number = count.get(ctx)?.copied().unwrap_or(0) + 1;
            count.set(ctx, number)?;
            if number % 10 == 0 {
                out.side("tenth")?.push((n.get(row), number))?;
            }
        }
        out.columns(vec![rows.array("k")?.clone(), rows.array("n")?.clone()])
    }
}
