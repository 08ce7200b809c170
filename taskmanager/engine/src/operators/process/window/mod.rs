//! The operator that hands a function of a user the rows of each key in a window when it fires, of one input or of two.
//!
//! Rows wait as they came, in the window of their time, or where windows overlap in a slice; which key they have is found when the
//! window fires. Then the function is called key by key, from a cursor. Must never know what the function does.

mod evict;
mod firing;
mod shape;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{OperatorSpec, ProcessSpec, ProcessWindow, SideOutput};
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::failed;
use super::guard::guarded;
use crate::error::EngineError;
use crate::function::{FunctionContext, FunctionError, Output, WindowWork};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::rows::RowBuffer;
use crate::operators::waiting::{Panes, Place, Reading, Waiting};
use crate::operators::window::{Split, Window, WindowClock};
use firing::{Firing, Runs};

pub(super) use shape::Shape;

/// Groups that a function gets in one go, so that their rows are gathered together.
const GROUPS_PER_CALL: usize = 256;

/// The operator of a function in windows, not yet opened.
///
/// Errors: `Invariant` where the plan names a column that there is not.
pub(super) fn build(
    spec: &OperatorSpec,
    process: &ProcessSpec,
    window: &ProcessWindow,
    work: Box<dyn WindowWork>,
) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Shape::new(spec, process, window)?;
    let late = match &process.second {
        None => vec![LateRows::new(spec, SideOutput::LATE, &spec.input)?],
        Some(second) => {
            let [left, right] = levada_common::plan::JoinSide::ALL.map(|side| side.late_output());
            vec![LateRows::new(spec, left, &spec.input)?, LateRows::new(spec, right, &second.schema)?]
        }
    };
    Ok(Box::new(WindowProcess {
        shape,
        work,
        panes: Panes::new(),
        reading: None,
        firing: None,
        runs: Runs::default(),
        fired: i64::MIN,
        clock: WindowClock::new(&window.time),
        fires_at: i64::MIN,
        late,
        running: None,
    }))
}

/// The rows of an input in a window, or in a slice of windows that overlap.
#[derive(Default)]
struct InputRows(RowBuffer);

impl Waiting for InputRows {
    type Owner = Shape;

    const OLDEST_LEAVE: bool = false;

    fn new(_: &Shape, _: usize) -> Self {
        Self::default()
    }

    fn push(&mut self, _: &Shape, _: usize, columns: &[ArrayRef], _: Option<&BooleanArray>) -> Result<(), ArrowError> {
        self.0.push(columns)
    }

    fn rows(&self) -> &RowBuffer {
        &self.0
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A function in windows.
///
/// Shape of the output: the key's columns, `window_start`, `window_end`, `window_time` (end − 1 ms), and what the function gives;
/// append. Windows fire in the order of their ends; they are of event time, or of processing time, by which no row is late.
struct WindowProcess {
    shape: Shape,
    work: Box<dyn WindowWork>,
    /// What is in several windows leaves with the last of them.
    panes: Panes<InputRows>,
    /// The window that is read.
    reading: Option<(Window, Reading<InputRows>)>,
    /// What goes out of it.
    firing: Option<Firing>,
    /// Whose rows the function has given.
    runs: Runs,
    /// The watermark at which the last of overlapping windows fired that has.
    fired: i64,
    clock: WindowClock,
    /// The watermark at which windows that do not overlap fire: that of event time begins anew with the sources' time.
    fires_at: i64,
    /// By input.
    late: Vec<LateRows>,
    running: Option<Running>,
}

/// What it works with once it is opened.
struct Running {
    context: OperatorContext,
    out: Output,
}

impl WindowProcess {
    fn failed(&self) -> impl Fn(FunctionError) -> EngineError + use<> {
        failed(&self.shape.uid, &self.shape.function)
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("an operator is opened first")
    }

    /// The next window of the rows that are here, fired or not.
    fn upcoming(&self) -> Option<Window> {
        let first = self.panes.first()?;
        self.shape.series.map_or(Some(first), |series| series.first_after(first, self.fired))
    }

    /// The next window that fires, and its rows' places with whether they leave.
    fn next_window(&mut self) -> Option<(Window, Vec<(Place, bool)>)> {
        let first = self.panes.first();
        let Some(series) = self.shape.series else {
            let window = first.filter(|window| window.has_fired(self.fires_at));
            return window.map(|window| (window, self.shape.places(window, true).collect()));
        };
        let watermark = self.clock.watermark();
        let window = first.and_then(|slice| series.first_after(slice, self.fired));
        let Some(window) = window.filter(|window| window.has_fired(watermark)) else {
            self.fired = watermark;
            return None;
        };
        let last = window.end.saturating_sub(1);
        let slices = self.panes.within(window).into_iter();
        Some((window, slices.flat_map(|slice| self.shape.places(slice, self.shape.is_over(slice, last))).collect()))
    }

    /// Begins with the next groups, of the window that is read or of the next one; whether there are some.
    fn fire_next(&mut self) -> Result<bool, EngineError> {
        self.firing = None;
        while self.firing.is_none() {
            let Some((window, reading)) = &mut self.reading else {
                let Some((window, panes)) = self.next_window() else { return Ok(false) };
                self.reading = Some((window, self.panes.read(&self.shape, &panes)?));
                continue;
            };
            match reading.next(&self.shape, &mut self.panes)? {
                Some(rows) => {
                    let mut firing = Firing::new(&self.shape, *window, rows);
                    if self.shape.series.is_some() && self.clock.was_given(*window) {
                        let max = self.running.as_ref().expect("an operator is opened first").context.max_parallelism;
                        firing.leave_out(max, |group| self.clock.was_given_to(group, *window));
                    }
                    self.firing = Some(firing);
                }
                None => {
                    self.fired = self.fired.max(window.end.saturating_sub(1));
                    self.reading = None;
                }
            }
            self.count()?;
        }
        Ok(true)
    }

    /// Calls the function for the next groups of the window that fires; whether there is one.
    fn fire(&mut self) -> Result<bool, EngineError> {
        if self.firing.as_ref().is_none_or(Firing::is_over) && !self.fire_next()? {
            return Ok(false);
        }
        let failed = self.failed();
        let Self { shape, work, firing: Some(firing), runs, running: Some(running), .. } = self else { return Ok(false) };
        if let Some((groups, keys)) = firing.groups(shape, GROUPS_PER_CALL)? {
            let mut given = Vec::with_capacity(keys.len());
            guarded(|| work.fire(&groups, &mut running.out, &mut given)).map_err(&failed)?;
            keys.into_iter().zip(given).for_each(|(key, rows)| runs.push(key, rows));
        }
        Ok(true)
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let Running { context, .. } = self.running.as_ref().expect("an operator is opened first");
        let firing = self.firing.iter().flat_map(Firing::held);
        let reading = self.reading.iter().flat_map(|(_, reading)| reading.held());
        self.panes.count(&self.shape, context, reading.chain(firing))
    }
}

/// Takes rows of an input into the panes of their windows; answers which are only in windows that have fired at this watermark.
fn take_in(
    shape: &Shape,
    panes: &mut Panes<InputRows>,
    watermark: i64,
    (input, batch): (usize, &RecordBatch),
) -> Result<Vec<Split>, EngineError> {
    let windows = shape.sides[input].windows.as_ref().ok_or_else(|| shape.invariant("the function is in no window"))?;
    let mut late = Vec::new();
    for (window, split) in windows.split(batch).map_err(|reason| shape.invariant(reason))? {
        let last = shape.series.map_or(window, |series| series.last(window));
        if last.has_fired(watermark) {
            late.push(split);
            continue;
        }
        let columns = split.columns(batch.columns()).map_err(|source| shape.kernel(source))?;
        panes.push(shape, (window, input), &columns, None)?;
    }
    Ok(late)
}

impl Operator for WindowProcess {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let shape = &self.shape;
        let has_pane = |(window, side): Place| shape.sides[side].windows.as_ref().is_some_and(|windows| windows.has(window));
        self.clock.restore(&shape.uid, context, &mut restored)?;
        self.panes.open(shape, context, restored, has_pane, |panes, rows| {
            take_in(shape, panes, i64::MIN, (rows.side, &rows.batch)).map(drop)
        })?;
        let given = self.clock.all_given();
        self.fired = given;
        // Of a job with other windows there may be rows whose windows would all be over.
        while let Some(slice) = self.panes.first().filter(|slice| shape.is_over(*slice, given)) {
            let mut over = self.panes.read(shape, &shape.places(slice, true).collect::<Vec<_>>())?;
            while over.next(shape, &mut self.panes)?.is_some() {}
        }
        self.late.iter_mut().for_each(|late| late.open(context));
        let own = FunctionContext::new(&self.shape.uid, context, self.shape.keys.clone(), Arc::clone(&self.shape.declaration));
        let work = &mut self.work;
        guarded(|| work.open(&own)).map_err(self.failed())?;
        let out = Output::new(&self.shape.own_output, context.batch_rows_max);
        let out = out.with_sides(&self.shape.declaration.sides, &self.shape.read);
        self.running = Some(Running { context: context.clone(), out });
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (watermark, now) = (self.clock.watermark(), self.clock.now());
        let kept = self.shape.sides[input].rows(batch.clone(), now).map_err(|source| self.shape.kernel(source))?;
        for split in take_in(&self.shape, &mut self.panes, watermark, (input, &kept))? {
            self.late[input].take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.count()?;
        self.panes.make_room(&self.shape)
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            let failed = self.failed();
            let rows_max = self.running().context.batch_rows_max;
            let is_over = self.firing.as_ref().is_some_and(Firing::is_over);
            let out = &mut self.running().out;
            if out.waiting() >= rows_max || (is_over && out.waiting() > 0) {
                let Some(batch) = out.take().map_err(failed)? else { continue };
                let firing = self.firing.as_ref().expect("rows are of a window that fires");
                return self.shape.output(firing, &mut self.runs, batch).map(Some);
            }
            // What the next groups give may be as much again: rows for other outputs go out first.
            if out.has_side_rows() || !self.fire()? {
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
        let waits = self.running.as_ref().is_some_and(|running| !running.out.is_empty());
        let is_due = || self.panes.first().is_some_and(|window| window.has_fired(self.fires_at));
        let fires = self.firing.is_some() || self.reading.is_some() || self.shape.series.is_some() || is_due();
        waits || fires || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        if self.clock.advance(watermark) {
            self.fires_at = watermark.0;
        }
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        self.fires_at = self.clock.watermark();
        Ok(self.upcoming().map(|window| match window.has_fired(self.fires_at) {
            true => time_ms,
            false => self.clock.shows_at(window.end),
        }))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = self.panes.snapshot(&self.shape, checkpoint)?;
        parts.extend(self.clock.parts(&self.shape.uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.panes.background(&self.shape)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        self.fires_at = i64::MAX;
        Ok(())
    }
}
