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

/// What an adapter's function keeps by key, and how a value gets into it.
pub trait Accumulating: Send + 'static {
    /// The handle of the one state.
    type State: Send + 'static;
    /// A value.
    type Input: StateType;
    /// What goes out for it.
    type Output: StateType;

    /// Binds the state.
    fn bind(binder: &mut dyn Binder) -> Result<Self::State, BindError>;

    /// The result of all of these values, at least one.
    fn over(values: impl Iterator<Item = Self::Input>) -> Self::Output;

    /// Takes a value into the current key's state and answers the result so far.
    fn step(state: &Self::State, ctx: &mut KeyedContext<'_>, next: Self::Input) -> Result<Self::Output, FunctionError>;
}

/// A function of one of the kinds below, at work.
pub struct Adapter<A> {
    columns: Columns,
    kind: PhantomData<fn() -> A>,
}

impl<A> Default for Adapter<A> {
    fn default() -> Self {
        Self { columns: Columns::default(), kind: PhantomData }
    }
}

impl<A: Accumulating> KeyedProcessFunction for Adapter<A> {
    type States = A::State;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        A::bind(binder)
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
        self.columns.map(rows, ctx, out, |ctx, next| A::step(state, ctx, next))
    }
}

/// A [`ReduceFunction`].
pub struct Reducing<F>(PhantomData<fn() -> F>);

impl<F: ReduceFunction> Accumulating for Reducing<F> {
    type State = ReducingState<F::Value>;
    type Input = F::Value;
    type Output = F::Value;

    fn over(mut values: impl Iterator<Item = F::Value>) -> F::Value {
        let mut so_far = values.next().expect("there is at least one value");
        values.for_each(|next| F::reduce(&mut so_far, next));
        so_far
    }

    fn bind(binder: &mut dyn Binder) -> Result<Self::State, BindError> {
        ReducingStateDescriptor::new("reduced", F::reduce).bind(binder)
    }

    fn step(state: &Self::State, ctx: &mut KeyedContext<'_>, next: F::Value) -> Result<F::Value, FunctionError> {
        state.add(ctx, next)?;
        Ok(state.get(ctx)?.expect("something was added").clone())
    }
}

/// A [`FoldFunction`].
pub struct Folding<F>(PhantomData<fn() -> F>);

impl<F: FoldFunction> Accumulating for Folding<F> {
    type State = FoldingState<F::Input, F::Accumulator>;
    type Input = F::Input;
    type Output = F::Accumulator;

    fn over(values: impl Iterator<Item = F::Input>) -> F::Accumulator {
        let mut so_far = F::initial();
        values.for_each(|next| F::fold(&mut so_far, next));
        so_far
    }

    fn bind(binder: &mut dyn Binder) -> Result<Self::State, BindError> {
        FoldingStateDescriptor::new("folded", F::initial(), F::fold).bind(binder)
    }

    fn step(state: &Self::State, ctx: &mut KeyedContext<'_>, next: F::Input) -> Result<F::Accumulator, FunctionError> {
        state.add(ctx, next)?;
        Ok(state.get(ctx)?.expect("something was added").clone())
    }
}

/// An [`AggregateFunction`].
pub struct Aggregating<A>(PhantomData<fn() -> A>);

impl<A> Accumulating for Aggregating<A>
where
    A: AggregateFunction<Input: StateType, Output: StateType> + Default,
{
    type State = AggregatingState<A>;
    type Input = A::Input;
    type Output = A::Output;

    fn over(values: impl Iterator<Item = A::Input>) -> A::Output {
        let function = A::default();
        let mut so_far = function.create();
        values.for_each(|next| function.add(&mut so_far, next));
        function.read(&so_far)
    }

    fn bind(binder: &mut dyn Binder) -> Result<Self::State, BindError> {
        AggregatingStateDescriptor::new("aggregated", A::default()).bind(binder)
    }

    fn step(state: &Self::State, ctx: &mut KeyedContext<'_>, next: A::Input) -> Result<A::Output, FunctionError> {
        state.add(ctx, next)?;
        Ok(state.get(ctx)?.expect("something was added"))
    }
}
