//! The traits that users implement.

use levada_state::descriptor::{BindError, Binder};
use levada_state::types::StateType;

pub use levada_state::descriptor::AggregateFunction;

use levada_state::keyed::Namespace;
use levada_state::timers::TimerKind;

use super::context::{FlatMapContext, FunctionContext, KeyedContext};
use super::error::FunctionError;
use super::output::Output;
use super::rows::Rows;

/// A function over a keyed stream, with keyed state and timers.
///
/// ```
/// use levada_engine::function::{FunctionError, KeyedContext, KeyedProcessFunction, Output, Rows};
/// use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};
///
/// /// Numbers the rows of each key.
/// struct Number;
///
/// impl KeyedProcessFunction for Number {
///     type States = ValueState<i64>;
///
///     fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
///         ValueStateDescriptor::new("count").bind(binder)
///     }
///
///     fn process(
///         &mut self,
///         count: &Self::States,
///         rows: Rows<'_>,
///         ctx: &mut KeyedContext<'_>,
///         out: &mut Output,
///     ) -> Result<(), FunctionError> {
///         let user = rows.column::<str>("user")?;
///         for row in 0..rows.len() {
///             ctx.enter(row);
///             let number = count.get(ctx)?.copied().unwrap_or(0) + 1;
///             count.set(ctx, number)?;
///             out.push((user.get(row), number))?;
///         }
///         Ok(())
///     }
/// }
/// ```
///
/// Contract: called on the task's thread only, one call at a time. What decides about rows stands in states; fields of the
/// function are lost with the task.
pub trait KeyedProcessFunction: Send + 'static {
    /// The handles of its states.
    type States: Send + 'static;

    /// Binds its states. Called at registration too, before there is a job or a function: it depends on nothing.
    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError>;

    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Takes rows.
    ///
    /// Errors: whatever it answers fails the task; `FunctionError::failed` for good, `transient` with a restart.
    fn process(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// Timers that it has set are due: those of event time when the watermark has reached their time.
    fn on_timers(
        &mut self,
        _states: &Self::States,
        _timers: FiredTimers<'_>,
        _ctx: &mut KeyedContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// The data has ended, and all timers of event time have fired. Those of processing time never will.
    fn close(&mut self, _states: &Self::States, _ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// Timers that are due, in the order of their times; no two of one key, window and time.
#[derive(Debug, Clone, Copy)]
pub struct FiredTimers<'a> {
    pub(crate) kind: TimerKind,
    pub(crate) keys: Rows<'a>,
    pub(crate) times_ms: &'a [i64],
    pub(crate) windows: &'a [Namespace],
}

impl<'a> FiredTimers<'a> {
    /// Which clock has reached them.
    pub fn kind(&self) -> TimerKind {
        self.kind
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    /// The time for which each was set. Units: milliseconds since 1970.
    pub fn times_ms(&self) -> &'a [i64] {
        self.times_ms
    }

    /// The window of each, for a function with `window_timers`; else none. `enter` makes it the current one, so that states kept per
    /// window are that window's.
    pub fn windows(&self) -> &'a [Namespace] {
        self.windows
    }

    /// The key's columns: a row for each timer, which `enter` takes as its number.
    pub fn keys(&self) -> Rows<'a> {
        self.keys
    }
}

/// A function over a stream without a key: no, one or many rows for each, with state of its subtask.
pub trait FlatMapFunction: Send + 'static {
    /// The handles of its states.
    type States: Send + 'static;

    /// Binds its states; as with a keyed function, it depends on nothing.
    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError>;

    /// The task starts; states have what was restored.
    fn open(
        &mut self,
        _states: &Self::States,
        _ctx: &mut FlatMapContext<'_>,
        _context: &FunctionContext,
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Takes rows.
    fn flat_map(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// A checkpoint's barrier is here: what the function holds in fields goes into its states.
    fn snapshot(&mut self, _states: &Self::States, _ctx: &mut FlatMapContext<'_>) -> Result<(), FunctionError> {
        Ok(())
    }

    /// The data has ended.
    fn close(&mut self, _states: &Self::States, _ctx: &mut FlatMapContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// A function over two streams without a key, with state of its subtask: no, one or many rows for each of either input.
///
/// Contract: as of a flat map. Which instance gets a row of either input, and which input's rows come first, is nobody's promise; rows
/// that must meet have a key (`KeyedCoProcessFunction`), or one input goes to every instance (`BroadcastProcessFunction`).
pub trait CoFlatMapFunction: Send + 'static {
    /// The handles of its states.
    type States: Send + 'static;

    /// Binds its states; as with a keyed function, it depends on nothing.
    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError>;

    /// The task starts; states have what was restored.
    fn open(
        &mut self,
        _states: &Self::States,
        _ctx: &mut FlatMapContext<'_>,
        _context: &FunctionContext,
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Takes rows of the first input.
    fn flat_map1(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// Takes rows of the second input.
    fn flat_map2(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// A checkpoint's barrier is here: what the function holds in fields goes into its states.
    fn snapshot(&mut self, _states: &Self::States, _ctx: &mut FlatMapContext<'_>) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Both inputs have ended.
    fn close(&mut self, _states: &Self::States, _ctx: &mut FlatMapContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// A function with a second input, all of whose rows every instance gets: rules, rates, models. With a key or without.
///
/// Contract: what `process_broadcast` does to broadcast states depends on its rows alone, since each instance does it for itself.
pub trait BroadcastProcessFunction: Send + 'static {
    /// The handles of its states.
    type States: Send + 'static;

    /// Binds its states; as with a keyed function, it depends on nothing.
    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError>;

    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Takes rows of the first input. Broadcast states are read here, through `ctx.broadcast()`, and not written.
    fn process(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// Takes rows of the second input. There is no current key here.
    fn process_broadcast(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// Timers that it has set are due.
    fn on_timers(
        &mut self,
        _states: &Self::States,
        _timers: FiredTimers<'_>,
        _ctx: &mut KeyedContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Both inputs have ended.
    fn close(&mut self, _states: &Self::States, _ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// A function over two keyed streams that share its state and timers: the rows of a key of either come to one instance.
///
/// Contract: as of a keyed function. Which input's rows come first is nobody's promise; time is the lesser one of both.
pub trait KeyedCoProcessFunction: Send + 'static {
    /// The handles of its states.
    type States: Send + 'static;

    /// Binds its states; as with a keyed function, it depends on nothing.
    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError>;

    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Takes rows of the first input.
    fn process1(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// Takes rows of the second input, which have the key, too.
    fn process2(
        &mut self,
        states: &Self::States,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;

    /// Timers that it has set are due.
    fn on_timers(
        &mut self,
        _states: &Self::States,
        _timers: FiredTimers<'_>,
        _ctx: &mut KeyedContext<'_>,
        _out: &mut Output,
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Both inputs have ended, and all timers of event time have fired.
    fn close(&mut self, _states: &Self::States, _ctx: &mut KeyedContext<'_>, _out: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// Reduces the values of each key to one of the same type. The row that goes out for each that comes in has the key and the
/// value so far.
///
/// Shape: a value is the columns of the declaration's `inputs`, in order; they are `outputs` again.
pub trait ReduceFunction: Send + Sync + 'static {
    /// What is reduced.
    type Value: StateType;

    /// Takes `next` into `so_far`.
    fn reduce(so_far: &mut Self::Value, next: Self::Value);
}

/// Folds the values of each key into an accumulator of another type. The row that goes out for each that comes in has the key
/// and the accumulator so far.
///
/// Shape: an input is the columns of the declaration's `inputs`, the accumulator those of `outputs`.
pub trait FoldFunction: Send + Sync + 'static {
    /// What is folded.
    type Input: StateType;
    /// What it is folded into.
    type Accumulator: StateType;

    /// The accumulator of nothing.
    fn initial() -> Self::Accumulator;

    /// Takes `next` into `so_far`.
    fn fold(so_far: &mut Self::Accumulator, next: Self::Input);
}
