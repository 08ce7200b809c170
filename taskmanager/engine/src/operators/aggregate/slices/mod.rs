//! Aggregates in windows that overlap: sliding and cumulating.
//!
//! A row is taken in once, into the slice of its time; slices are panes, and all the state there is. Windows are made of slices
//! when they fire. A row whose windows have all fired is late. Where a row comes behind the watermark into a slice that windows
//! still to come have, what was merged of slices is made anew.
//!
//! In front of a store what was merged is the first to go where memory is short. A window of which part of a slice has left memory
//! is made of its slices range by range (`panes/ranges.rs`), so that it never comes into memory whole.

mod stacks;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::filter_record_batch;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::keys::key_groups_of_rows;
use levada_common::plan::WindowTime;
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::panes::{MergedRows, OpenPanes, Ranges};
use super::restore::refuse;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::window::{Series, Window, WindowClock};
use stacks::Stacks;

/// A window on its way out.
#[derive(Debug)]
struct Outgoing {
    window: Window,
    made: Made,
}

/// How a window is made.
#[derive(Debug)]
enum Made {
    /// Of `Slices::stacks`.
    Stacked {
        /// Next of its keys.
        cursor: usize,
    },
    /// Of `Slices::ranges`: a store has part of it.
    InRanges,
}

/// An aggregation in windows that overlap.
///
/// Shape of the output: as of `Windows`; windows fire in the order of their ends, each with the keys that have a row in it.
#[derive(Debug)]
pub(super) struct Slices {
    shape: Arc<Shape>,
    series: Series,
    panes: OpenPanes,
    stacks: Stacks,
    ranges: Ranges,
    /// Whether slices have changed that are in `stacks`.
    is_stale: bool,
    outgoing: Option<Outgoing>,
    ids: Vec<u32>,
    /// The watermark at which the last window fired that has.
    fired: i64,
    clock: WindowClock,
    late: LateRows,
    context: Option<OperatorContext>,
}

impl Slices {
    pub(super) fn new(shape: Arc<Shape>, late: LateRows, series: Series, time: &WindowTime) -> Self {
        Self {
            stacks: Stacks::new(&shape),
            ranges: Ranges::new(&shape),
            shape,
            series,
            panes: OpenPanes::default(),
            is_stale: false,
            outgoing: None,
            ids: Vec::new(),
            fired: i64::MIN,
            clock: WindowClock::new(time),
            late,
            context: None,
        }
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    /// The window that fires next.
    fn upcoming(&self) -> Option<Window> {
        self.panes.first().and_then(|slice| self.series.first_after(slice, self.fired))
    }

    /// The next window that fires at the watermark, its slices merged or about to be.
    fn next_window(&mut self) -> Result<Option<Outgoing>, EngineError> {
        let watermark = self.clock.watermark();
        let Some(window) = self.upcoming().filter(|window| window.has_fired(watermark)) else {
            self.fired = watermark;
            return Ok(None);
        };
        let made = if self.panes.beyond(window.start, window.end).next().is_some() {
            self.unstack();
            self.ranges.begin(&mut self.panes, window.start, window.end);
            Made::InRanges
        } else {
            self.stacks.move_to(&self.shape, window, &self.panes, std::mem::take(&mut self.is_stale))?;
            Made::Stacked { cursor: 0 }
        };
        Ok(Some(Outgoing { window, made }))
    }

    /// The next rows of a window, at most `rows_max`; `None` when it is out.
    fn merged_rows(&mut self, made: &mut Made, rows_max: usize) -> Result<Option<MergedRows>, EngineError> {
        match made {
            Made::Stacked { cursor } => self.stacks.next(&self.shape, cursor, rows_max),
            Made::InRanges => self.ranges.next(&self.shape, &mut self.panes, rows_max),
        }
    }

    /// Of rows with these keys those of which the window was not given before a restore.
    fn not_given(&self, window: Window, keys: &[ArrayRef], rows: RecordBatch) -> Result<RecordBatch, EngineError> {
        if !self.clock.was_given(window) {
            return Ok(rows);
        }
        let mut groups = Vec::new();
        key_groups_of_rows(keys, rows.num_rows(), self.context().max_parallelism, &mut groups);
        let is_new = groups.into_iter().map(|group| Some(!self.clock.was_given_to(group, window))).collect();
        filter_record_batch(&rows, &is_new).map_err(|source| self.shape.kernel(source))
    }

    /// The window is out: slices that no other window has are dropped.
    fn end_window(&mut self, window: Window) -> Result<(), EngineError> {
        self.fired = window.end.saturating_sub(1);
        self.drop_dead()?;
        if self.panes.groups() == 0 {
            self.unstack();
        }
        self.make_room()?;
        self.count()
    }

    /// Drops the slices whose windows have all fired.
    fn drop_dead(&mut self) -> Result<(), EngineError> {
        while let Some(slice) = self.panes.first().filter(|slice| self.series.last(*slice).has_fired(self.fired)) {
            self.panes.drop_pane(&self.shape, slice)?;
        }
        Ok(())
    }

    /// Forgets what was merged of slices.
    fn unstack(&mut self) {
        if !self.stacks.is_new() {
            self.stacks = Stacks::new(&self.shape);
        }
        self.is_stale = false;
    }

    /// Lets go what should where memory is short: what was merged first.
    fn make_room(&mut self) -> Result<(), EngineError> {
        self.hold_beside();
        if self.panes.is_short() {
            self.unstack();
            self.hold_beside();
        }
        self.panes.make_room(&self.shape)
    }

    fn hold_beside(&mut self) {
        self.panes.hold_beside(self.stacks.memory_bytes() + self.ranges.memory_bytes());
    }

    /// Slices that were saved by windows of another making are not these.
    fn check_grid(&self) -> Result<(), EngineError> {
        let grid = self.shape.grid.expect("windows that overlap have slices");
        match self.panes.windows().find(|slice| grid.window(slice.start) != *slice) {
            None => Ok(()),
            Some(Window { start, end }) => {
                let reason = format!(
                    "it has a slice from {start} to {end} ms, and the slices of this window are {grid}; \
                     restore with the window's size, slide, offset and time zone as they were"
                );
                Err(refuse(&self.shape, self.shape.state_name(), reason))
            }
        }
    }

    fn count(&mut self) -> Result<(), EngineError> {
        self.hold_beside();
        let context = self.context.as_ref().expect("an operator is opened first");
        self.panes.count(&self.shape, context)
    }
}

impl Operator for Slices {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        self.fired = self.clock.all_given();
        self.panes.open(&self.shape, context, restored)?;
        self.check_grid()?;
        // A snapshot of a store may have slices of which it had not deleted everything.
        self.drop_dead()?;
        self.late.open(context);
        self.context = Some(context.clone());
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (watermark, now) = (self.clock.watermark(), self.clock.now());
        let late = self.panes.take_batch(&self.shape, (&batch, now), &mut self.ids, |slice| {
            let is_late = self.series.last(slice).has_fired(watermark);
            self.is_stale |= !is_late && self.stacks.has(slice.end);
            is_late
        })?;
        for split in late {
            self.late.take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.make_room()?;
        // Faster than slices can grow.
        self.panes.delete_leaving(&self.shape, 2 * batch.num_rows())?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        let (mut parts, mut rows) = (Vec::new(), 0);
        while rows < rows_max {
            if self.outgoing.is_none() {
                self.outgoing = self.next_window()?;
            }
            let Some(Outgoing { window, mut made }) = self.outgoing.take() else { break };
            match self.merged_rows(&mut made, rows_max - rows)? {
                Some(merged) => {
                    let columns = merged.keys.iter().cloned().chain(window.result_columns(merged.rows)).chain(merged.results);
                    let part = self.not_given(window, &merged.keys, self.shape.output(columns.collect())?)?;
                    rows += part.num_rows();
                    parts.extend(Some(part).filter(|part| part.num_rows() > 0));
                    self.outgoing = Some(Outgoing { window, made });
                }
                None => self.end_window(window)?,
            }
        }
        self.shape.joined(parts)
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.poll())
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.clock.advance(watermark);
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        Ok(self.upcoming().map(|window| match window.has_fired(self.clock.watermark()) {
            true => time_ms,
            false => self.clock.shows_at(window.end),
        }))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = vec![self.panes.snapshot(&self.shape, checkpoint)?];
        parts.extend(self.clock.parts(&self.shape.uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}
