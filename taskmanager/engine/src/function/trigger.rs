//! Triggers and evictors: when a window of a key gives its rows to the function, and which of them.
//!
//! A trigger is asked about batches: about rows that came into windows, timers that are due, windows that are over. What it keeps of a
//! window stands in states per window, and goes with it. Must never know what the function does.

use levada_state::descriptor::{BindError, Binder};
use levada_state::keyed::Namespace;

use super::context::{FunctionContext, KeyedContext};
use super::error::FunctionError;
use super::inner::Inner;
use super::rows::Rows;
use super::traits::FiredTimers;
use super::window::{WindowGroup, WindowGroups};

/// What becomes of a window of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TriggerResult {
    /// Nothing.
    #[default]
    Continue,
    /// The function gets its rows, which stay.
    Fire,
    /// Its rows go; what the trigger keeps of it stays.
    Purge,
    /// The function gets its rows, then they go.
    FireAndPurge,
}

impl TriggerResult {
    pub(crate) fn fires(self) -> bool {
        matches!(self, Self::Fire | Self::FireAndPurge)
    }

    pub(crate) fn purges(self) -> bool {
        matches!(self, Self::Purge | Self::FireAndPurge)
    }
}

/// Says when a window of a key gives its rows to the function: early, when it is over, late, never.
///
/// Its states are bound `per_window`, and its timers belong to windows: within a call `enter` makes the key and the window of a row,
/// timer or window the current ones. When a window is forgotten, what the trigger keeps of it is too. A session keeps its states under
/// the window that it was when it began (`ctx.namespace()`), however far it reaches now, which the windows that are handed in say.
///
/// ```
/// use levada_engine::function::{FunctionError, KeyedContext, TriggerResult, TriggerRows, WindowTrigger};
/// use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};
///
/// /// Gives a window's rows after every third one, too.
/// struct EveryThird;
///
/// impl WindowTrigger for EveryThird {
///     type States = ValueState<i64>;
///
///     fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
///         ValueStateDescriptor::new("count").per_window().bind(binder)
///     }
///
///     fn on_rows(
///         &mut self,
///         count: &Self::States,
///         rows: TriggerRows<'_>,
///         ctx: &mut KeyedContext<'_>,
///         answers: &mut [TriggerResult],
///     ) -> Result<(), FunctionError> {
///         for row in 0..rows.len() {
///             ctx.enter(row);
///             let number = count.get(ctx)?.copied().unwrap_or(0) + 1;
///             count.set(ctx, number)?;
///             if number % 3 == 0 {
///                 answers[row] = TriggerResult::Fire;
///             }
///         }
///         Ok(())
///     }
/// }
/// ```
///
/// Contract: called on the task's thread only, one call at a time; its answers depend on what it is given and on its states, since
/// fields are lost with the task.
pub trait WindowTrigger: Send + 'static {
    /// The handles of its states.
    type States: Send + 'static;

    /// Binds its states, each `per_window`. Called at registration too: it depends on nothing.
    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError>;

    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Rows came into windows, those of a window in the order in which they came. An answer holds when its row has come, before the
    /// next one does.
    ///
    /// Answers are `Continue` at first, and `Fire` for the last row of each window that is over (`TriggerRows::is_over`): its end has been
    /// announced and comes no more.
    fn on_rows(
        &mut self,
        states: &Self::States,
        rows: TriggerRows<'_>,
        ctx: &mut KeyedContext<'_>,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError>;

    /// Timers that it has set are due, of windows that are there. Answers are `Continue` at first.
    fn on_timers(
        &mut self,
        _states: &Self::States,
        _timers: FiredTimers<'_>,
        _ctx: &mut KeyedContext<'_>,
        _answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Time has passed the ends of these windows: event time, or processing time where they go by that. Answers are `Fire` at first.
    /// Without `allowed_lateness` the windows are forgotten after it.
    fn on_end(
        &mut self,
        _states: &Self::States,
        _windows: &[Namespace],
        _ctx: &mut KeyedContext<'_>,
        _answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Sessions of a key have become one: the trigger takes into its states what it keeps of them. Afterwards their states are
    /// forgotten, and their timers do not come any more. The one that goes on is the current window.
    ///
    /// Contract: only a trigger that is declared `merging` is the trigger of sessions.
    fn on_merge(
        &mut self,
        _states: &Self::States,
        _merged: MergedWindows<'_>,
        _ctx: &mut KeyedContext<'_>,
    ) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// Rows and the windows into which they came: a row for each of its windows.
#[derive(Debug, Clone, Copy)]
pub struct TriggerRows<'a> {
    pub(crate) rows: Rows<'a>,
    pub(crate) windows: &'a [Namespace],
    pub(crate) over: &'a [bool],
    pub(crate) input: usize,
}

impl<'a> TriggerRows<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The columns that the trigger declares.
    pub fn rows(&self) -> Rows<'a> {
        self.rows
    }

    /// The window of each row; of a session, as far as it reaches with the row.
    pub fn windows(&self) -> &'a [Namespace] {
        self.windows
    }

    /// Whether event time had passed the end of this row's window: it was allowed to be late. By processing time no row is.
    pub fn is_over(&self, row: usize) -> bool {
        self.over[row]
    }

    /// Whether they are of the second input, where there are two.
    pub fn is_second(&self) -> bool {
        self.input == 1
    }
}

/// Sessions of the current key that have become one.
#[derive(Debug, Clone, Copy)]
pub struct MergedWindows<'a> {
    pub(crate) into: Namespace,
    pub(crate) from: &'a [Namespace],
    pub(crate) window: Namespace,
}

impl<'a> MergedWindows<'a> {
    /// Under which window the states of the one that goes on stand: the `into` of a state's `merge_namespaces`.
    pub fn kept(&self) -> Namespace {
        self.into
    }

    /// Under which windows those of the others stand: the `from` of a state's `merge_namespaces`.
    pub fn gone(&self) -> &'a [Namespace] {
        self.from
    }

    /// How far the session reaches now.
    pub fn window(&self) -> Namespace {
        self.window
    }
}

/// Says which rows of a window go, before the function gets them or after.
///
/// What goes is gone: where a trigger gives a window again, it is not there.
///
/// ```
/// use levada_engine::function::{FunctionError, Rows, WindowEvictor, WindowGroup};
///
/// /// Leaves out what is more than ten times the least value.
/// struct Outliers;
///
/// impl WindowEvictor for Outliers {
///     fn before(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, keep: &mut [bool]) -> Result<(), FunctionError> {
///         let values = rows.column::<i64>("value")?.values();
///         let most = values.iter().min().map_or(0, |least| least.saturating_mul(10));
///         keep.iter_mut().zip(values).for_each(|(keep, value)| *keep = *value <= most);
///         Ok(())
///     }
/// }
/// ```
///
/// Contract: as of a window function.
pub trait WindowEvictor: Send + 'static {
    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// The function is about to get these rows, at least one: those whose `keep` is set to false go, and it does not. Where none is kept
    /// it is not called.
    fn before(&mut self, group: WindowGroup<'_>, rows: Rows<'_>, keep: &mut [bool]) -> Result<(), FunctionError>;

    /// The function has got these rows: those whose `keep` is set to false go. Asked where the window may give them again: with a
    /// trigger, and with `allowed_lateness`.
    fn after(&mut self, _group: WindowGroup<'_>, _rows: Rows<'_>, _keep: &mut [bool]) -> Result<(), FunctionError> {
        Ok(())
    }
}

/// What an operator does with any trigger. Contract: `bind` first, then `open`; what can be entered is in `inner`.
pub(crate) trait TriggerWork: Send {
    fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError>;
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError>;
    fn on_rows(&mut self, rows: TriggerRows<'_>, inner: &mut Inner, answers: &mut [TriggerResult]) -> Result<(), FunctionError>;
    fn on_timers(
        &mut self,
        timers: FiredTimers<'_>,
        inner: &mut Inner,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError>;
    fn on_end(&mut self, windows: &[Namespace], inner: &mut Inner, answers: &mut [TriggerResult]) -> Result<(), FunctionError>;
    fn on_merge(&mut self, merged: MergedWindows<'_>, inner: &mut Inner) -> Result<(), FunctionError>;
}

/// A trigger without its type.
pub(crate) struct Triggering<T: WindowTrigger> {
    trigger: T,
    states: Option<T::States>,
}

impl<T: WindowTrigger> Triggering<T> {
    pub(crate) fn new(trigger: T) -> Self {
        Self { trigger, states: None }
    }

    fn parts(&mut self) -> (&mut T, &T::States) {
        (&mut self.trigger, self.states.as_ref().expect("an operator binds first"))
    }
}

impl<T: WindowTrigger> TriggerWork for Triggering<T> {
    fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError> {
        self.states = Some(T::bind(binder)?);
        Ok(())
    }

    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.trigger.open(context)
    }

    fn on_rows(&mut self, rows: TriggerRows<'_>, inner: &mut Inner, answers: &mut [TriggerResult]) -> Result<(), FunctionError> {
        let (trigger, states) = self.parts();
        trigger.on_rows(states, rows, &mut KeyedContext::new(inner), answers)
    }

    fn on_timers(
        &mut self,
        timers: FiredTimers<'_>,
        inner: &mut Inner,
        answers: &mut [TriggerResult],
    ) -> Result<(), FunctionError> {
        let (trigger, states) = self.parts();
        trigger.on_timers(states, timers, &mut KeyedContext::new(inner), answers)
    }

    fn on_end(&mut self, windows: &[Namespace], inner: &mut Inner, answers: &mut [TriggerResult]) -> Result<(), FunctionError> {
        let (trigger, states) = self.parts();
        trigger.on_end(states, windows, &mut KeyedContext::new(inner), answers)
    }

    fn on_merge(&mut self, merged: MergedWindows<'_>, inner: &mut Inner) -> Result<(), FunctionError> {
        let (trigger, states) = self.parts();
        let mut ctx = KeyedContext::new(inner);
        ctx.enter(0);
        trigger.on_merge(states, merged, &mut ctx)
    }
}

/// What an operator does with any evictor; `keep` is as long as the rows of the groups' first input.
pub(crate) trait EvictorWork: Send {
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError>;
    fn before(&mut self, groups: &WindowGroups, keep: &mut [bool]) -> Result<(), FunctionError>;
    fn after(&mut self, groups: &WindowGroups, keep: &mut [bool]) -> Result<(), FunctionError>;
}

/// An evictor without its type.
pub(super) struct Evicting<E>(pub(super) E);

impl<E: WindowEvictor> EvictorWork for Evicting<E> {
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.0.open(context)
    }

    fn before(&mut self, groups: &WindowGroups, keep: &mut [bool]) -> Result<(), FunctionError> {
        groups.each(|group, at| self.0.before(group, Rows::new(&groups.rows(0, at)), &mut keep[groups.span(0, at)]))
    }

    fn after(&mut self, groups: &WindowGroups, keep: &mut [bool]) -> Result<(), FunctionError> {
        groups.each(|group, at| self.0.after(group, Rows::new(&groups.rows(0, at)), &mut keep[groups.span(0, at)]))
    }
}
