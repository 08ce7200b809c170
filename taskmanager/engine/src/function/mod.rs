//! Functions of users: what they implement, what they are given, what they give.
//!
//! A function gets whole batches and may go through them row by row; nothing on the way is boxed, locked or allocated for a
//! row. Its states are bound once, as typed handles, and used through the context of a call. Must never know where it runs.
//! The operator that runs a function is `operators::process`.

mod adapters;
mod context;
mod erased;
mod error;
mod inner;
mod output;
mod registered;
mod rows;
mod timers;
mod traits;
mod trigger;
mod window;

pub use context::{FlatMapContext, FunctionContext, KeyedContext, TimerKind};
pub use error::FunctionError;
/// A window: what states kept per window, and timers of windows, belong to within a key.
pub use levada_state::keyed::Namespace;
pub use output::{Builder, Cell, Output, Row, SideRows};
pub use registered::{Functions, RegisteredFunction, RegistrationError};
pub use rows::{ColumnType, Rows, TypedColumn};
pub use traits::{
    AggregateFunction, BroadcastProcessFunction, CoFlatMapFunction, FiredTimers, FlatMapFunction, FoldFunction,
    KeyedCoProcessFunction, KeyedProcessFunction, ReduceFunction,
};

pub use trigger::{MergedWindows, TriggerResult, TriggerRows, WindowEvictor, WindowTrigger};
pub use window::{CoGroupFunction, WindowFunction, WindowGroup};

pub(crate) use erased::Function;
pub(crate) use inner::Inner;
pub(crate) use timers::FunctionTimers;
pub(crate) use trigger::{EvictorWork, TriggerWork, Triggering};
pub(crate) use window::{GroupBounds, WindowGroups, WindowWork};
