//! Reduce, fold and aggregate as keyed process functions: a row goes out for each that comes in, the key before the result.

use std::marker::PhantomData;

use levada_state::descriptor::{
    AggregatingState, AggregatingStateDescriptor, BindError, Binder, FoldingState, FoldingStateDescriptor, ReducingState,
    ReducingStateDescriptor,
};
use levada_state::types::{StateReader, StateType, StateWriter};

use super::context::{FunctionContext, KeyedContext};
use super::error::FunctionError;
use super::output::Output;
use super::rows::Rows;
use super::traits::{AggregateFunction, FoldFunction, KeyedProcessFunction, ReduceFunction};

/// The columns that an adapter reads, known from `open` on.
#[derive(Debug, Default)]
struct Columns {
    keys: Vec<String>,
    inputs: Vec<String>,
}

impl Columns {
    fn of(context: &FunctionContext) -> Self {
        let names = |columns: &[levada_common::types::Column]| columns.iter().map(|column| column.name.clone()).collect();
        Self { keys: names(context.keys()), inputs: names(&context.declaration().inputs) }
    }

    /// Gives the key and what `step` makes of each row.
    fn map<I: StateType, O: StateType>(
        &self,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
        mut step: impl FnMut(&mut KeyedContext<'_>, I) -> Result<O, FunctionError>,
    ) -> Result<(), FunctionError> {
        let arrays = |names: &[String]| names.iter().map(|name| rows.array(name).cloned()).collect::<Result<Vec<_>, _>>();
        let reader = I::reader("input", &arrays(&self.inputs)?)?;
        let mut writer = O::writer(rows.len());
        for row in 0..rows.len() {
            ctx.enter(row);
            writer.push(&step(ctx, reader.get(row))?);
        }
        let mut columns = arrays(&self.keys)?;
        writer.finish(&mut columns)?;
        out.columns(columns)
    }
}

macro_rules! adapter {
    ($(#[$doc:meta])* $name:ident<$function:ident>) => {
        $(#[$doc])*
        pub struct $name<F> {
            columns: Columns,
            function: PhantomData<fn() -> F>,
        }

        impl<F> Default for $name<F> {
            fn default() -> Self {
                Self { columns: Columns::default(), function: PhantomData }
            }
        }
    };
}

adapter!(
    /// A [`ReduceFunction`] at work.
    Reducing<ReduceFunction>
);
adapter!(
    /// A [`FoldFunction`] at work.
    Folding<FoldFunction>
);
adapter!(
    /// An [`AggregateFunction`] at work.
    Aggregating<AggregateFunction>
);

impl<F: ReduceFunction> KeyedProcessFunction for Reducing<F> {
    type States = ReducingState<F::Value>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        ReducingStateDescriptor::new("reduced", F::reduce).bind(binder)
    }

    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.columns = Columns::of(context);
        Ok(())
    }

    fn process(
        &mut self,
        state: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        self.columns.map(rows, ctx, out, |ctx, next: F::Value| {
            state.add(ctx, next)?;
            Ok(state.get(ctx)?.expect("something was added").clone())
        })
    }
}

impl<F: FoldFunction> KeyedProcessFunction for Folding<F> {
    type States = FoldingState<F::Input, F::Accumulator>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        FoldingStateDescriptor::new("folded", F::initial(), F::fold).bind(binder)
    }

    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.columns = Columns::of(context);
        Ok(())
    }

    fn process(
        &mut self,
        state: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        self.columns.map(rows, ctx, out, |ctx, next: F::Input| {
            state.add(ctx, next)?;
            Ok(state.get(ctx)?.expect("something was added").clone())
        })
    }
}

impl<A> KeyedProcessFunction for Aggregating<A>
where
    A: AggregateFunction<Input: StateType, Output: StateType> + Default,
{
    type States = AggregatingState<A>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        AggregatingStateDescriptor::new("aggregated", A::default()).bind(binder)
    }

    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.columns = Columns::of(context);
        Ok(())
    }

    fn process(
        &mut self,
        state: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        self.columns.map(rows, ctx, out, |ctx, next: A::Input| {
            state.add(ctx, next)?;
            Ok(state.get(ctx)?.expect("something was added"))
        })
    }
}
