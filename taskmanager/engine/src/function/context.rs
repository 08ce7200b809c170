//! What a function reaches in a call: the current key, its states, its timers, the time.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use arrow::array::ArrayRef;
use levada_common::function::FunctionDeclaration;
use levada_common::ids::Uid;
use levada_common::time::Watermark;
use levada_common::types::Column;
use levada_state::keyed::KeyedState;
use levada_state::operator_state::OperatorStates;
pub use levada_state::timers::TimerKind;

use super::error::FunctionError;
use super::inner::Inner;
use crate::metrics::{Counter, NodeMetrics};
use crate::operator::OperatorContext;

/// What a function is told when its task starts.
#[derive(Debug, Clone)]
pub struct FunctionContext {
    pub(crate) uid: Uid,
    pub(crate) subtask: u32,
    pub(crate) parallelism: u32,
    pub(crate) keys: Vec<Column>,
    pub(crate) declaration: Arc<FunctionDeclaration>,
    pub(crate) metrics: Arc<NodeMetrics>,
}

impl FunctionContext {
    /// Of the function of a node, in the place where its operator runs.
    pub(crate) fn new(uid: &Uid, context: &OperatorContext, keys: Vec<Column>, declaration: Arc<FunctionDeclaration>) -> Self {
        let (subtask, parallelism) = (context.subtask, context.parallelism);
        Self { uid: uid.clone(), subtask, parallelism, keys, declaration, metrics: Arc::clone(&context.metrics) }
    }

    /// The node's name in the job.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Which parallel instance this is, from 0.
    pub fn subtask(&self) -> u32 {
        self.subtask
    }

    /// How many there are.
    pub fn parallelism(&self) -> u32 {
        self.parallelism
    }

    /// The columns of the key.
    pub fn keys(&self) -> &[Column] {
        &self.keys
    }

    /// The function's declaration.
    pub fn declaration(&self) -> &FunctionDeclaration {
        &self.declaration
    }

    /// A counter that `/metrics` shows under this name, per node and subtask. To be kept: finding it takes a lock.
    pub fn counter(&self, name: &str) -> Counter {
        self.metrics.counter(name)
    }
}

/// What a keyed function reaches. It stands for the keyed states: a handle takes it as it is (`count.get(ctx)`).
pub struct KeyedContext<'a> {
    inner: &'a mut Inner,
}

impl<'a> KeyedContext<'a> {
    pub(crate) fn new(inner: &'a mut Inner) -> Self {
        Self { inner }
    }

    /// Makes the key of this row of the batch (of this timer, in `on_timers`) the current one; the window of a timer that has one
    /// becomes the current window.
    ///
    /// Contract: the row is there; another one panics.
    #[inline]
    pub fn enter(&mut self, row: usize) {
        let id = self.inner.ids[row];
        self.inner.current = Some(id);
        self.inner.keyed.set_current(id);
        self.inner.keyed.touch_ahead(&self.inner.ids, row);
        if let Some(times) = &self.inner.row_times {
            self.inner.keyed.set_row_time(times[row]);
        }
        if let Some(window) = self.inner.windows.get(row) {
            self.inner.keyed.set_namespace(Some(*window));
        }
    }

    /// Makes keys that come from nowhere in the input the rows that `enter` takes: to look at states at the end, say. Keys that
    /// belong to another instance have no state here.
    ///
    /// Shape: the key's columns, of one length.
    pub fn enter_keys(&mut self, keys: &[ArrayRef]) -> Result<(), FunctionError> {
        self.inner.enter(keys, keys.first().map_or(0, |key| key.len()))
    }

    /// The watermark: no row with this time or an earlier one comes any more.
    pub fn watermark(&self) -> Watermark {
        self.inner.watermark
    }

    /// Processing time, in milliseconds since 1970. It never goes back within a process, and stands still during a call.
    pub fn processing_time_ms(&self) -> i64 {
        self.inner.processing_ms
    }

    /// Calls `on_timers` for the current key when the watermark reaches `time_ms`; once, however often it is set. One that has
    /// been reached already fires after this call. With `window_timers` it is the current window's, which comes back with it, and is
    /// set once for each window.
    ///
    /// Errors: `UndeclaredTimer`, `NoKey`; `NoWindow` with `window_timers`, where `set_namespace` was not called.
    #[inline]
    pub fn set_event_timer(&mut self, time_ms: i64) -> Result<(), FunctionError> {
        self.inner.set_timer(TimerKind::Event, time_ms)
    }

    /// Takes a timer of the current key back; none is needed to be there.
    ///
    /// Errors: as `set_event_timer`.
    #[inline]
    pub fn delete_event_timer(&mut self, time_ms: i64) -> Result<(), FunctionError> {
        self.inner.delete_timer(TimerKind::Event, time_ms)
    }

    /// Calls `on_timers` for the current key at `time_ms` of processing time. After a restore, timers whose time has passed
    /// meanwhile fire at once.
    ///
    /// Errors: as `set_event_timer`.
    #[inline]
    pub fn set_processing_timer(&mut self, time_ms: i64) -> Result<(), FunctionError> {
        self.inner.set_timer(TimerKind::Processing, time_ms)
    }

    /// Takes a timer of the current key back.
    ///
    /// Errors: as `set_event_timer`.
    #[inline]
    pub fn delete_processing_timer(&mut self, time_ms: i64) -> Result<(), FunctionError> {
        self.inner.delete_timer(TimerKind::Processing, time_ms)
    }

    /// The broadcast states, to be read.
    pub fn broadcast(&self) -> &OperatorStates {
        &self.inner.operator
    }
}

impl Deref for KeyedContext<'_> {
    type Target = KeyedState;

    #[inline]
    fn deref(&self) -> &KeyedState {
        &self.inner.keyed
    }
}

impl DerefMut for KeyedContext<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut KeyedState {
        &mut self.inner.keyed
    }
}

/// What a function without a key reaches, and a broadcast process function for its second input. It stands for the operator's
/// states: a handle takes it as it is.
pub struct FlatMapContext<'a> {
    inner: &'a mut Inner,
}

impl<'a> FlatMapContext<'a> {
    pub(crate) fn new(inner: &'a mut Inner) -> Self {
        Self { inner }
    }

    /// The watermark: no row with this time or an earlier one comes any more.
    pub fn watermark(&self) -> Watermark {
        self.inner.watermark
    }

    /// Processing time, in milliseconds since 1970.
    pub fn processing_time_ms(&self) -> i64 {
        self.inner.processing_ms
    }
}

impl Deref for FlatMapContext<'_> {
    type Target = OperatorStates;

    fn deref(&self) -> &OperatorStates {
        &self.inner.operator
    }
}

impl DerefMut for FlatMapContext<'_> {
    fn deref_mut(&mut self) -> &mut OperatorStates {
        &mut self.inner.operator
    }
}
