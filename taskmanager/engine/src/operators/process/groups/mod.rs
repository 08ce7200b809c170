//! Operators in windows whose keys give what they have each by itself: sessions, windows with a trigger or an evictor of a user, windows
//! that take late rows in. What they have are rows for a function, or accumulators (`Contents`).
//!
//! It is kept by key and window. What each key's windows are, and what a trigger keeps of them, are keyed states: snapshots, restores
//! and timers are those of keyed functions. They are on the heap, whatever is behind the contents, which may leave memory. Without a
//! trigger a window gives what it has when it is over, and after each batch that brings late rows. Windows go by event time, or by
//! processing time, by which no row is late. Must never know what trigger and contents do.

mod arriving;
mod contents;
mod due;
mod restore;
mod results;
mod rows;
mod table;
#[cfg(test)]
pub(in crate::operators) mod tests;
mod trigger;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::ProcessSpec;
use levada_common::time::Watermark;
use levada_state::descriptor::{ValueState, ValueStateDescriptor};
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::guard::guarded;
use super::{failed, states};
use crate::error::EngineError;
use crate::function::{FunctionContext, FunctionError, Inner};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::aggregate::{Ends, SessionSource, behind};
use crate::operators::charge::charge;
use crate::operators::late::LateRows;
use crate::operators::window::{Window, WindowClock};
use table::{Group, Groups};

pub(in crate::operators) use contents::{Arrival, Belongs, Contents, Entries, Frame, Place, Returned, rows_of};
pub(super) use rows::build;
pub(in crate::operators) use table::namespace;
pub(in crate::operators) use trigger::Trigger;

/// An operator in windows whose keys give what they have each by itself.
pub(in crate::operators) struct GroupWindows<C> {
    contents: C,
    trigger: Option<Trigger>,
    /// By input, where windows are sessions.
    sessions: Vec<SessionSource>,
    lateness_ms: i64,
    groups: Groups,
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
    /// Each window by what it was when it began: from when to when it is.
    windows: ValueState<(i64, i64)>,
}

impl<C: Contents> GroupWindows<C> {
    /// With these contents, by input the sources of sessions where windows are that, and late rows.
    pub(in crate::operators) fn new(
        contents: C,
        trigger: Option<Trigger>,
        (sessions, late): (Vec<SessionSource>, Vec<LateRows>),
        (clock, lateness_ms): (WindowClock, i64),
    ) -> Self {
        Self {
            contents,
            trigger,
            lateness_ms,
            groups: Groups::new(!sessions.is_empty()),
            sessions,
            ends: Ends::default(),
            due: VecDeque::new(),
            clock,
            late,
            running: None,
        }
    }

    fn failed(&self) -> impl Fn(FunctionError) -> EngineError + use<C> {
        let frame = self.contents.frame();
        failed(&frame.uid, &frame.name)
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("an operator is opened first")
    }

    fn inner(&mut self) -> &mut Inner {
        &mut self.running().inner
    }

    /// The contents, and where they stand.
    fn contents(&mut self) -> (&mut C, Place<'_>) {
        let running = self.running.as_mut().expect("an operator is opened first");
        (&mut self.contents, Place { groups: &self.groups, inner: &mut running.inner })
    }

    /// The watermark with which a window is over. A session takes in a row at its end, so it is over a millisecond later.
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

    /// Groups and all that is kept of them go.
    fn forget(&mut self, groups: &[u32]) {
        let (contents, mut place) = self.contents();
        contents.clear(&mut place, groups);
        for group in groups {
            let Group { key, name, .. } = *self.groups.get(*group);
            let inner = self.inner();
            inner.enter_window(key, namespace(name));
            inner.keyed.clear_window();
            self.ends.leave(*group);
            self.groups.remove(*group);
        }
    }

    /// Has the groups that fire give what they have.
    fn flush(&mut self) -> Result<(), EngineError> {
        let (contents, mut place) = self.contents();
        contents.flush(&mut place)
    }

    /// After each change: what fires is given, windows are noted, memory is given back and charged.
    fn end_batch(&mut self) -> Result<(), EngineError> {
        self.flush()?;
        let failed = self.failed();
        let Self { groups, contents, running: Some(Running { inner, windows, .. }), .. } = self else { return Ok(()) };
        for group in groups.take_changed() {
            let Group { key, name, window, .. } = *groups.get(group);
            inner.enter_window(key, namespace(name));
            let noted = windows.set(&mut inner.keyed, (window.start, window.end));
            noted.map_err(|source| failed(source.into()))?;
        }
        contents.tidy(&mut Place { groups, inner })?;
        inner.end_batch().map_err(failed)?;
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let Self { contents, groups, running: Some(running), .. } = self else { return Ok(()) };
        let metrics = &running.context.metrics;
        metrics.state_keys.store(groups.live() as u64, Ordering::Relaxed);
        let own = contents.sizes().into_iter().chain([(ProcessSpec::WINDOWS, groups.memory_bytes())]);
        let sizes: Vec<(&str, usize)> = own.chain(running.inner.sizes_beside_keyed()).collect();
        let beside_keyed: usize = running.inner.sizes_beside_keyed().map(|(_, bytes)| bytes).sum();
        let keyed = running.inner.memory_bytes() - beside_keyed;
        let total = sizes.iter().map(|(_, bytes)| bytes).sum::<usize>() + keyed;
        let before_store = contents.before_store();
        if let Some((store, _)) = before_store {
            metrics.set_store(store);
        }
        let total = total + before_store.map_or(0, |(_, bytes)| bytes);
        metrics.state_bytes.store(total as u64, Ordering::Relaxed);
        charge(&contents.frame().uid, &mut running.share, &sizes, contents.remedy())
    }
}

/// The watermark with which a window is over. A session takes in a row at its end, so it is over a millisecond later.
fn over_at(is_session: bool, window: Window) -> i64 {
    if is_session { window.end } else { window.end.saturating_sub(1) }
}

impl<C: Contents> Operator for GroupWindows<C> {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.late.iter_mut().for_each(|late| late.open(context));
        self.sessions.iter_mut().for_each(|source| source.open(&context.metrics));
        let timers = self.trigger.as_ref().map_or([false; 2], Trigger::timers);
        let bound = ValueStateDescriptor::<(i64, i64)>::new(ProcessSpec::WINDOWS).per_window();
        let (uid, name, keys) = {
            let frame = self.contents.frame();
            (frame.uid.clone(), frame.name.clone(), frame.keys.clone())
        };
        let (trigger, contents) = (&mut self.trigger, &mut self.contents);
        let (inner, windows) = states::on_heap((&uid, &name), &keys, context, timers, |binder| {
            let windows = bound.bind(binder)?;
            contents.bind(binder)?;
            trigger.as_mut().map_or(Ok(()), |trigger| trigger.work.bind(binder))?;
            Ok(windows)
        })?;
        self.contents.open(context)?;
        if let Some(trigger) = &mut self.trigger {
            let own = FunctionContext::new(&uid, context, keys, Arc::clone(&trigger.declaration));
            guarded(|| trigger.work.open(&own)).map_err(failed(&uid, &own.declaration.name))?;
        }
        let share = HeapShare::new(Arc::clone(&context.heap_budget));
        self.running = Some(Running { context: context.clone(), share, inner, windows });
        self.restore(restored)?;
        self.end_batch()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        let (contents, mut place) = self.contents();
        contents.is_ready(&mut place)
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.take_in(input, batch)?;
        self.end_batch()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            let is_idle = self.due.is_empty();
            let running = self.running();
            let (is_idle, rows_max) = (is_idle && !running.inner.has_due(), running.context.batch_rows_max);
            let waiting = self.contents.waiting();
            if waiting >= rows_max || (is_idle && waiting > 0) {
                let Some(batch) = self.contents.next()? else { continue };
                return Ok(Some(batch));
            }
            // What fires next may give as much again: rows for other outputs go out first.
            if self.contents.has_side_rows() || !self.fire_due()? {
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        match self.late.iter_mut().find_map(LateRows::poll) {
            Some(late) => Ok(Some(late)),
            None => self.contents.next_side(),
        }
    }

    fn has_output(&self) -> bool {
        let waits = self.running.as_ref().is_some_and(|running| running.inner.has_due());
        let of_contents = self.contents.waiting() > 0 || self.contents.has_side_rows();
        waits || of_contents || !self.due.is_empty() || self.late.iter().any(LateRows::has_some)
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
        let (contents, mut place) = self.contents();
        parts.extend(contents.snapshot(&mut place, checkpoint)?);
        parts.extend(self.clock.parts(&self.contents.frame().uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let failed = self.failed();
        let remains = self.inner().background().map_err(failed)?;
        let (contents, mut place) = self.contents();
        Ok(contents.background(&mut place)? | remains)
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
            self.contents.abandon(checkpoint);
        }
        Ok(())
    }
}
