//! Aggregates in windows that give results more than once: early, on time and late, as changes or in parts.
//!
//! A pane stays until no row can come for it any more. Each of its groups knows how many rows it has taken in since it was last given,
//! and whether it was; what is given is only what has changed. Windows that overlap have panes of their own here, each with all of its
//! rows: what was given of one says nothing of another. By processing time no row is late, so that a window that is over goes at once.
//! Must never know processing time beyond what `tick` says.
//! Invariant: the changes add up to what a window gives that fires once, over all rows that were not late.

mod giving;
mod timer;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{FiringSpec, Trigger, WindowTime};
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::panes::OpenPanes;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::pending::Pending;
use crate::operators::window::{Series, Window, WindowClock};
use giving::{Giving, Job};

pub(super) use timer::Timers;

/// An aggregation whose windows give results more than once.
///
/// Shape of the output: keys, the window's bounds where it has any, aggregates. Where results accumulate it is a changelog by keys and
/// bounds: an insert is a group's first result, an update replaces the one before, which in a full changelog goes before it; at most
/// one change a group and firing. Where they do not accumulate it is append, and each row is over the rows since the group's last one. A
/// row is late when none of its windows is kept any more.
#[derive(Debug)]
pub(super) struct Updating {
    shape: Arc<Shape>,
    firing: FiringSpec,
    /// Where windows overlap: which of them a slice is in.
    series: Option<Series>,
    panes: OpenPanes,
    giving: Giving,
    /// What a group gives twice may be more than a batch.
    pending: Pending,
    /// Windows that may have something to be given.
    touched: BTreeSet<Window>,
    timers: Timers,
    late_rows: LateRows,
    ids: Vec<u32>,
    clock: WindowClock,
    context: Option<OperatorContext>,
}

impl Updating {
    pub(super) fn new(
        shape: Arc<Shape>,
        late_rows: LateRows,
        firing: FiringSpec,
        (series, time): (Option<Series>, &WindowTime),
    ) -> Self {
        Self {
            giving: Giving::new(Arc::clone(&shape), firing.accumulate),
            shape,
            series,
            panes: OpenPanes::default(),
            pending: Pending::default(),
            touched: BTreeSet::new(),
            timers: Timers::of(&firing),
            late_rows,
            firing,
            ids: Vec::new(),
            clock: WindowClock::new(time),
            context: None,
        }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        self.panes.count(&self.shape, context)
    }

    /// The time up to which windows take no row in any more.
    fn closed(&self) -> i64 {
        self.clock.watermark().saturating_sub(self.firing.lateness_ms)
    }

    /// The windows of a slice that take rows in; the slice itself where windows do not overlap.
    fn windows(&self, slice: Window) -> Vec<Window> {
        match self.series {
            None => [slice].into_iter().filter(|window| !window.has_fired(self.closed())).collect(),
            Some(series) => series.after(slice, self.closed()).collect(),
        }
    }

    /// Takes rows into a window, and notes which of its groups are to be given for it at once.
    fn take(&mut self, window: Window, keys: &[ArrayRef], inputs: &[ArrayRef], rows: usize) -> Result<(), EngineError> {
        self.panes.intern(&self.shape, window, keys, rows, &mut self.ids)?;
        match self.firing.accumulate {
            true => self.panes.take_in(&self.shape, window, &self.ids, inputs, rows)?,
            false => self.panes.take_in_anew(&self.shape, window, &self.ids, inputs, rows)?,
        }
        self.touched.insert(window);
        let is_over = window.has_fired(self.clock.watermark());
        match if is_over { self.firing.late } else { self.firing.early } {
            None if is_over && self.firing.accumulate => self.give_these(window, 1),
            None if is_over => self.giving.push(Job::Last(window)),
            Some(Trigger { rows: Some(rows), .. }) => self.give_these(window, i64::from(rows)),
            _ => {}
        }
        Ok(())
    }

    /// Gives the groups of the batch that have taken in so many rows since they were given.
    fn give_these(&mut self, window: Window, rows: i64) {
        let Some(marks) = self.panes.pane(window).and_then(|pane| pane.groups.marks()) else { return };
        let mut ids: Vec<u32> = self.ids.iter().copied().filter(|id| marks.rows(*id) >= rows).collect();
        if !ids.is_empty() {
            ids.sort_unstable();
            ids.dedup();
            self.giving.push(Job::These(window, ids));
        }
    }

    /// Gives what has changed in the windows that are over, or in those that are not.
    fn give_touched(&mut self, over: bool) {
        let watermark = self.clock.watermark();
        let due: Vec<Window> = self.touched.extract_if(.., |window| window.has_fired(watermark) == over).collect();
        due.into_iter().for_each(|window| self.give(window));
    }

    fn give(&mut self, window: Window) {
        self.giving.push(if self.firing.accumulate { Job::All(window) } else { Job::Last(window) });
    }

    /// Gives the windows that are over, and were not at the watermark `before`; those that take no row in any more are forgotten.
    fn fire(&mut self, before: i64) {
        let closed = self.closed().saturating_add(1);
        for window in self.panes.known(i64::MIN, closed) {
            self.touched.remove(&window);
            self.giving.push(Job::Last(window));
        }
        for window in self.panes.known(closed.max(before.saturating_add(1)), self.clock.watermark().saturating_add(1)) {
            self.touched.remove(&window);
            self.give(window);
        }
    }
}

impl Operator for Updating {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        self.panes.open(&self.shape, context, restored)?;
        self.touched = self.panes.windows().collect();
        self.late_rows.open(context);
        self.context = Some(context.clone());
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs) = (self.shape.keys(&batch), self.shape.inputs(&batch));
        for (slice, split) in self.shape.split_at(&batch, self.clock.now())? {
            let (rows, windows) = (split.rows(batch.num_rows()), self.windows(slice));
            if windows.is_empty() {
                self.late_rows.take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
                continue;
            }
            let keys = split.columns(&keys).map_err(|source| self.shape.kernel(source))?;
            let inputs = split.columns(&inputs).map_err(|source| self.shape.kernel(source))?;
            for window in windows {
                self.take(window, &keys, &inputs, rows)?;
            }
        }
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        if self.pending.is_empty() {
            match self.giving.next(&mut self.panes, rows_max)? {
                Some(batch) => self.pending.push(batch),
                None => {
                    // Only now: what waits to be given is known by its place in memory.
                    self.panes.make_room(&self.shape)?;
                    self.count()?;
                }
            }
        }
        Ok(self.pending.pop(rows_max))
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late_rows.poll())
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        let before = self.clock.watermark();
        if self.clock.advance(watermark) {
            self.fire(before);
        }
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.timers.are_set() || self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        if self.clock.is_processing() {
            let before = self.clock.watermark();
            self.clock.tick(time_ms);
            self.fire(before);
        }
        let due = self.timers.due(time_ms);
        if due.early {
            self.give_touched(false);
        }
        if due.late {
            self.give_touched(true);
        }
        if self.giving.has_jobs() || !self.pending.is_empty() {
            return Ok(Some(time_ms));
        }
        let over = self.panes.first().filter(|_| self.clock.is_processing()).map(|window| self.clock.shows_at(window.end));
        Ok(self.timers.next().into_iter().chain(over).min())
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = vec![self.panes.snapshot(&self.shape, checkpoint)?];
        if self.shape.is_windowed {
            parts.extend(self.clock.parts(&self.shape.uid));
        }
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        let before = self.clock.watermark();
        self.clock.end();
        self.fire(before);
        if !self.shape.is_windowed {
            if self.shape.key_types.is_empty() && self.firing.accumulate {
                // The one group is there even where no row has made it.
                self.panes.intern(&self.shape, Window::WHOLE, &[], 1, &mut self.ids)?;
            }
            self.giving.push(Job::Last(Window::WHOLE));
        }
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}
