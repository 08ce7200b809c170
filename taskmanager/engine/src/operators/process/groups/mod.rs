//! The operator that hands a function of a user the rows of windows whose keys give them each by itself: sessions, windows with a
//! trigger or an evictor of a user, windows that take late rows in.
//!
//! Rows are kept by key and window. What each key's windows are, and what a trigger keeps of them, are keyed states: snapshots, restores
//! and timers are those of keyed functions. Without a trigger a window gives its rows when it is over, and after each batch that
//! brings late ones. Windows go by event time, or by processing time, by which no row is late. Must never know what function and trigger
//! do.

mod arriving;
mod due;
mod evict;
mod firing;
mod held;
mod restore;
mod results;
mod table;
#[cfg(test)]
mod tests;
mod trigger;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use levada_common::function::FunctionDeclaration;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinSide, OperatorSpec, ProcessSpec, ProcessWindow, SideOutput, WindowSpec};
use levada_common::time::Watermark;
use levada_state::descriptor::{ValueState, ValueStateDescriptor};
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::guard::guarded;
use super::window::Shape;
use super::{failed, states};
use crate::error::EngineError;
use crate::function::{FunctionContext, FunctionError, Functions, Inner, Output, WindowWork};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::aggregate::{Ends, SessionSource, behind};
use crate::operators::charge::charge;
use crate::operators::late::LateRows;
use crate::operators::window::{Window, WindowClock};
use evict::Evictor;
use firing::{Firing, Given};
use held::Held;
use table::{Group, Groups, namespace};
use trigger::Trigger;

/// The operator of such a function, not yet opened.
///
/// Errors: `Invariant` where the plan names a column that there is not; a trigger or evictor that is not registered here, or was declared
/// otherwise at planning.
pub(super) fn build(
    spec: &OperatorSpec,
    process: &ProcessSpec,
    window: &ProcessWindow,
    work: Box<dyn WindowWork>,
    functions: &Functions,
) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Shape::new(spec, process, window)?;
    let inputs: Vec<_> = std::iter::once(&spec.input).chain(process.second.iter().map(|second| &second.schema)).collect();
    let late_names = match inputs.len() {
        1 => vec![SideOutput::LATE],
        _ => JoinSide::ALL.map(|side| side.late_output()).to_vec(),
    };
    let late = late_names.into_iter().zip(&inputs).map(|(name, input)| LateRows::new(spec, name, input));
    let sessions = match &window.window {
        WindowSpec::Session { gap } => {
            let sources = inputs.iter().map(|input| SessionSource::of_rows(spec, input, gap, &window.time));
            sources.collect::<Result<Vec<_>, _>>().map_err(|reason| shape.invariant(reason))?
        }
        _ => Vec::new(),
    };
    let trigger = match (&window.trigger, window.results()) {
        (Some(part), _) => Some(Trigger::new(&shape, part, &inputs, functions)?),
        (None, Some(firing)) => Some(Trigger::of_results(firing, inputs.len())),
        (None, None) => None,
    };
    let evictor = match (&window.evictor, window.evict) {
        (Some(part), _) => {
            let evictor = trigger::create(&shape.uid, part, functions, |function, options| function.create_evictor(options))?;
            Some((Evictor::Function(evictor), Arc::new(part.function.clone())))
        }
        (None, Some(evict)) => {
            let kept = &process.window_inputs(&spec.input)[0].0;
            let time = kept.event_time.as_ref().and_then(|time| kept.batch_index(time));
            Some((Evictor::Last(evict, time), Arc::clone(&shape.declaration)))
        }
        (None, None) => None,
    };
    Ok(Box::new(GroupProcess {
        held: inputs.iter().map(|_| Held::default()).collect(),
        firing: Firing::new(inputs.len()),
        groups: Groups::new(!sessions.is_empty()),
        late: late.collect::<Result<Vec<_>, _>>()?,
        shape,
        work,
        trigger,
        evictor,
        sessions,
        lateness_ms: window.lateness_ms(),
        given: Given::default(),
        ends: Ends::default(),
        due: VecDeque::new(),
        clock: WindowClock::new(&window.time),
        running: None,
    }))
}

/// A function in windows whose keys give their rows each by itself.
///
/// Shape of the output: as of a function in windows; a window comes as often as it gives its rows.
struct GroupProcess {
    shape: Shape,
    work: Box<dyn WindowWork>,
    trigger: Option<Trigger>,
    /// With its declaration.
    evictor: Option<(Evictor, Arc<FunctionDeclaration>)>,
    /// By input, where windows are sessions.
    sessions: Vec<SessionSource>,
    lateness_ms: i64,
    groups: Groups,
    /// By input.
    held: Vec<Held>,
    firing: Firing,
    given: Given,
    ends: Ends,
    /// Groups whose time has come, by it.
    due: VecDeque<(i64, u32)>,
    clock: WindowClock,
    /// By input.
    late: Vec<LateRows>,
    running: Option<Running>,
}

/// What it works with once it is opened.
struct Running {
    context: OperatorContext,
    share: HeapShare,
    inner: Inner,
    out: Output,
    /// Each window by what it was when it began: from when to when it is.
    windows: ValueState<(i64, i64)>,
}

impl GroupProcess {
    fn failed(&self) -> impl Fn(FunctionError) -> EngineError + use<> {
        failed(&self.shape.uid, &self.shape.function)
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("an operator is opened first")
    }

    fn inner(&mut self) -> &mut Inner {
        &mut self.running().inner
    }

    fn over_at(&self, window: Window) -> i64 {
        over_at(!self.sessions.is_empty(), window)
    }

    /// Whether time has passed the end of a group's window: it is there for late rows.
    fn is_over(&self, group: u32) -> bool {
        self.over_at(self.groups.get(group).window) <= self.clock.watermark()
    }

    /// Whether rows of this window are late: by processing time none is.
    fn is_late(&self, window: Window) -> bool {
        let closes_at = self.over_at(window).saturating_add(self.lateness_ms);
        !self.clock.is_processing() && closes_at <= self.clock.watermark()
    }

    /// Says when a new group, or one whose window is another now, is looked at next.
    fn schedule(&mut self, group: u32) {
        let over_at = self.over_at(self.groups.get(group).window);
        let due = if over_at > self.clock.watermark() { over_at } else { over_at.saturating_add(self.lateness_ms) };
        let before = self.groups.set_due(group, due);
        if due < before {
            self.ends.leave(group);
            self.ends.enter(group, due);
        }
    }

    /// A group and all that is kept of it goes.
    fn forget(&mut self, group: u32) {
        self.held.iter_mut().for_each(|held| held.clear(group));
        let Group { key, name, .. } = *self.groups.get(group);
        let inner = self.inner();
        inner.enter_window(key, namespace(name));
        inner.keyed.clear_window();
        self.ends.leave(group);
        self.groups.remove(group);
    }

    /// Hands the groups that fire to the function.
    fn flush(&mut self) -> Result<(), EngineError> {
        let failed = self.failed();
        let Self { shape, work, evictor, held, firing, given, running: Some(running), .. } = self else { return Ok(()) };
        let evictor = evictor.as_mut().map(|(evictor, _)| evictor);
        firing.flush(shape, held, (work.as_mut(), evictor), (&running.inner, &mut running.out, given), &failed)
    }

    /// After each change: what fires is handed over, windows are noted, memory is given back and charged.
    fn end_batch(&mut self) -> Result<(), EngineError> {
        self.flush()?;
        let failed = self.failed();
        let Self { shape, groups, held, running: Some(Running { inner, windows, .. }), .. } = self else { return Ok(()) };
        for group in groups.take_changed() {
            let Group { key, name, window, .. } = *groups.get(group);
            inner.enter_window(key, namespace(name));
            let noted = windows.set(&mut inner.keyed, (window.start, window.end));
            noted.map_err(|source| failed(source.into()))?;
        }
        held.iter_mut().try_for_each(Held::tidy).map_err(|source| shape.kernel(source))?;
        inner.end_batch().map_err(failed)?;
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let Self { shape, groups, held, running: Some(running), .. } = self else { return Ok(()) };
        let metrics = &running.context.metrics;
        metrics.state_keys.store(groups.live() as u64, Ordering::Relaxed);
        let rows = shape.sides.iter().zip(held).map(|(side, held)| (side.state.name.as_str(), held.memory_bytes()));
        let rows = rows.chain([(ProcessSpec::WINDOWS, groups.memory_bytes())]);
        let sizes: Vec<(&str, usize)> = rows.chain(running.inner.sizes_beside_keyed()).collect();
        let beside_keyed: usize = running.inner.sizes_beside_keyed().map(|(_, bytes)| bytes).sum();
        let keyed = running.inner.memory_bytes() - beside_keyed;
        let total = sizes.iter().map(|(_, bytes)| bytes).sum::<usize>() + keyed;
        metrics.state_bytes.store(total as u64, Ordering::Relaxed);
        charge(
            &shape.uid,
            &mut running.share,
            &sizes,
            "make the window, or the session's gap, shorter, or purge it with a trigger",
        )
    }
}

/// The watermark with which a window is over. A session takes in a row at its end, so it is over a millisecond later.
fn over_at(is_session: bool, window: Window) -> i64 {
    if is_session { window.end } else { window.end.saturating_sub(1) }
}

impl Operator for GroupProcess {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.late.iter_mut().for_each(|late| late.open(context));
        self.sessions.iter_mut().for_each(|source| source.open(&context.metrics));
        let (uid, keys) = (&self.shape.uid, &self.shape.keys);
        let timers = self.trigger.as_ref().map_or([false; 2], Trigger::timers);
        let bound = ValueStateDescriptor::<(i64, i64)>::new(ProcessSpec::WINDOWS).per_window();
        let trigger = &mut self.trigger;
        let (inner, windows) = states::on_heap((uid, self.shape.function.as_str()), keys, context, timers, |binder| {
            let windows = bound.bind(binder)?;
            trigger.as_mut().map_or(Ok(()), |trigger| trigger.work.bind(binder))?;
            Ok(windows)
        })?;
        let of = |declaration| FunctionContext::new(uid, context, keys.clone(), declaration);
        let (own, work) = (of(Arc::clone(&self.shape.declaration)), &mut self.work);
        guarded(|| work.open(&own)).map_err(failed(uid, &self.shape.function))?;
        if let Some(trigger) = &mut self.trigger {
            let own = of(Arc::clone(&trigger.declaration));
            guarded(|| trigger.work.open(&own)).map_err(failed(uid, &own.declaration.name))?;
        }
        if let Some((evictor, declaration)) = &mut self.evictor {
            let own = of(Arc::clone(declaration));
            guarded(|| evictor.open(&own)).map_err(failed(uid, &own.declaration.name))?;
        }
        let out = Output::new(&self.shape.own_output, context.batch_rows_max);
        let out = out.with_sides(&self.shape.declaration.sides, &self.shape.read);
        let share = HeapShare::new(Arc::clone(&context.heap_budget));
        self.running = Some(Running { context: context.clone(), share, inner, out, windows });
        self.restore(restored)?;
        self.end_batch()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.take_in(input, batch)?;
        self.end_batch()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            let failed = self.failed();
            let is_idle = self.due.is_empty();
            let running = self.running();
            let is_idle = is_idle && !running.inner.has_due();
            let waiting = running.out.waiting();
            if waiting >= running.context.batch_rows_max || (is_idle && waiting > 0) {
                let Some(batch) = running.out.take().map_err(failed)? else { continue };
                return self.given.output(&self.shape, &batch).map(Some);
            }
            // What fires next may give as much again: rows for other outputs go out first.
            if running.out.has_side_rows() || !self.fire_due()? {
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        let failed = self.failed();
        match self.late.iter_mut().find_map(LateRows::poll) {
            Some(late) => Ok(Some(late)),
            None => self.running().out.take_side().map_err(failed),
        }
    }

    fn has_output(&self) -> bool {
        let waits = self.running.as_ref().is_some_and(|running| !running.out.is_empty() || running.inner.has_due());
        waits || !self.due.is_empty() || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        if !self.clock.advance(watermark) {
            self.inner().set_watermark(watermark);
            return Ok(Some(watermark));
        }
        let reached = Watermark(self.clock.watermark());
        self.inner().set_watermark(reached);
        self.collect_due();
        Ok(Some(if self.sessions.is_empty() { watermark } else { behind(watermark) }))
    }

    fn keeps_time(&self) -> bool {
        self.trigger.is_some() || self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        // A trigger's timers and its windows go by one clock.
        let now = self.clock.now().unwrap_or(time_ms);
        let inner = self.inner();
        inner.set_processing_time(now);
        let timer = inner.next_processing_timer();
        if !self.clock.is_processing() {
            return Ok(timer);
        }
        self.collect_due();
        let next = timer.into_iter().chain(self.ends.first_over()).min();
        Ok(if self.due.is_empty() { next.map(|next| self.clock.shows_at(next)) } else { Some(time_ms) })
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let failed = self.failed();
        let mut parts = self.inner().snapshot(checkpoint, finished).map_err(failed)?;
        for (held, side) in self.held.iter_mut().zip(&self.shape.sides) {
            let reader = held.saving.begin(checkpoint, &held.heap, None, &side.pieces, &side.saved);
            held.saving.advance();
            parts.push(StatePart { meta: side.state.clone(), contents: reader.into() });
        }
        parts.extend(self.clock.parts(&self.shape.uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let failed = self.failed();
        let mut remains = self.inner().background().map_err(failed)?;
        for held in &mut self.held {
            remains |= held.saving.advance();
        }
        Ok(remains)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        self.advance(Watermark::MAX)?;
        self.collect_due();
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.inner().notify(checkpoint, completed);
        if !completed {
            self.held.iter_mut().for_each(|held| held.saving.abandon(checkpoint));
        }
        Ok(())
    }
}
