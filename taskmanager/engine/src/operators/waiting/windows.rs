//! Windows whose rows wait in panes: where a row that comes goes, which window fires next, and what its rows are.
//!
//! Where windows overlap a row waits once, in the slice of its time, which leaves with the last window that has it. Must never know
//! what is done with a window's rows. Invariant: windows fire in the order of their ends, and none has rows of a key twice.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::keys::key_groups_of_rows;
use levada_common::plan::WindowTime;
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::{Panes, Place, ReadRows, Reading, Waiting, WaitingOwner};
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::window::{Series, Split, Window, WindowClock};

/// The windows of one operator, of event time or of processing time, by which no row is late.
pub(in crate::operators) struct WaitingWindows<W: Waiting> {
    panes: Panes<W>,
    /// The window that is read.
    reading: Option<(Window, Reading<W>)>,
    /// Those that overlap, of slices.
    series: Option<Series>,
    clock: WindowClock,
    /// The watermark at which the last of overlapping windows fired that has.
    fired: i64,
    /// The watermark at which windows that do not overlap fire: that of event time begins anew with the sources' time.
    fires_at: i64,
    context: Option<OperatorContext>,
}

impl<W: Waiting> WaitingWindows<W> {
    /// Windows of this time, which overlap where there is a series; `open` follows.
    pub(in crate::operators) fn new(time: &WindowTime, series: Option<Series>) -> Self {
        let (panes, clock) = (Panes::new(), WindowClock::new(time));
        Self { panes, reading: None, series, clock, fired: i64::MIN, fires_at: i64::MIN, context: None }
    }

    /// Opens the store, where there is one, and takes what was restored.
    ///
    /// Errors: `Restore` where another state, column or type was saved than the operator has.
    pub(in crate::operators) fn open(
        &mut self,
        owner: &W::Owner,
        context: &OperatorContext,
        mut restored: Vec<RestoredState>,
    ) -> Result<(), EngineError> {
        self.context = Some(context.clone());
        let has_pane = |(window, side): Place| owner.sides()[side].windows.as_ref().is_some_and(|windows| windows.has(window));
        self.clock.restore(owner.uid(), context, &mut restored)?;
        let nothing_fired = (self.series, i64::MIN);
        self.panes.open(owner, context, restored, has_pane, |panes, rows| {
            take_in(owner, panes, nothing_fired, (rows.side, &rows.batch)).map(drop)
        })?;
        let given = self.clock.all_given();
        self.fired = given;
        // Of a job with other windows there may be rows whose windows would all be over.
        while let Some(slice) = self.panes.first().filter(|slice| self.is_over(*slice, given)) {
            let mut over = self.panes.read(owner, &of_pane(owner.sides().len(), slice, true).collect::<Vec<_>>())?;
            while over.next(owner, &mut self.panes)?.is_some() {}
        }
        Ok(())
    }

    /// Takes rows of an input that come now into their panes, and those that are only in windows which have fired into `late`.
    ///
    /// Contract: every window that is due is out.
    pub(in crate::operators) fn take_in(
        &mut self,
        owner: &W::Owner,
        (input, batch): (usize, RecordBatch),
        late: &mut LateRows,
    ) -> Result<(), EngineError> {
        self.pass();
        let kept = owner.sides()[input].rows(batch.clone(), self.clock.now()).map_err(|source| owner.kernel(source))?;
        let fired = (self.series, self.clock.watermark());
        for split in take_in(owner, &mut self.panes, fired, (input, &kept))? {
            late.take(&batch, &split).map_err(|source| owner.kernel(source))?;
        }
        Ok(())
    }

    /// The next rows of a window that fires, all of it or a part of its keys; none where no more fires.
    pub(in crate::operators) fn next(&mut self, owner: &W::Owner) -> Result<Option<(Window, ReadRows<W>)>, EngineError> {
        loop {
            let Some((window, reading)) = &mut self.reading else {
                let Some(window) = self.due() else {
                    self.pass();
                    return Ok(None);
                };
                let reading = self.panes.read(owner, &self.places(owner, window))?;
                self.reading = Some((window, reading));
                continue;
            };
            let window = *window;
            let Some(rows) = reading.next(owner, &mut self.panes)? else {
                self.fired = self.fired.max(window.end.saturating_sub(1));
                self.reading = None;
                continue;
            };
            // The panes of windows that do not overlap went with what was given of them.
            let was_given = self.series.is_some() && self.clock.was_given(window);
            let rows = if was_given { self.without_given(owner, window, rows)? } else { rows };
            return Ok(Some((window, rows)));
        }
    }

    /// Whether a window is on its way out, or is to go.
    pub(in crate::operators) fn is_firing(&self) -> bool {
        self.reading.is_some() || self.due().is_some()
    }

    /// Whether there is room for another batch.
    pub(in crate::operators) fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready()
    }

    /// To be called after each batch, when it was counted: sends and forgets what is due where memory is short.
    ///
    /// Contract: every window that is due is out.
    pub(in crate::operators) fn make_room(&mut self, owner: &W::Owner) -> Result<(), EngineError> {
        self.panes.make_room(owner)
    }

    /// Counts what is held, and what is held beside it (side, bytes, rows), and charges it.
    ///
    /// Errors: `OverBudget`.
    pub(in crate::operators) fn count(
        &mut self,
        owner: &W::Owner,
        beside: impl Iterator<Item = (usize, usize, usize)>,
    ) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("windows are opened first");
        let reading = self.reading.iter().flat_map(|(_, reading)| reading.held());
        self.panes.count(owner, context, reading.chain(beside))
    }

    /// Event time has come to `watermark`. After a restore the sources' time starts anew; what has fired stays fired.
    pub(in crate::operators) fn advance(&mut self, watermark: Watermark) {
        if self.clock.advance(watermark) {
            self.fires_at = watermark.0;
        }
    }

    /// Whether they go by processing time, which is heard by `tick`.
    pub(in crate::operators) fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    /// The clock shows `time_ms`; answers what it will show when the next window fires.
    pub(in crate::operators) fn tick(&mut self, time_ms: i64) -> Option<i64> {
        self.clock.tick(time_ms);
        self.fires_at = self.clock.watermark();
        self.upcoming().map(|window| match window.has_fired(self.fires_at) {
            true => time_ms,
            false => self.clock.shows_at(window.end),
        })
    }

    /// Nothing comes any more: every window may fire.
    pub(in crate::operators) fn finish(&mut self) {
        self.clock.end();
        self.fires_at = i64::MAX;
    }

    /// The synchronous part of a snapshot; of one of the end of the data there is none.
    pub(in crate::operators) fn snapshot(
        &mut self,
        owner: &W::Owner,
        checkpoint: CheckpointId,
        finished: bool,
    ) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = self.panes.snapshot(owner, checkpoint)?;
        parts.extend(self.clock.parts(owner.uid()));
        Ok(parts)
    }

    /// Sends a further piece of what is being sent; answers whether more remain.
    pub(in crate::operators) fn background(&mut self, owner: &W::Owner) -> Result<bool, EngineError> {
        self.panes.background(owner)
    }

    /// Hears what became of a checkpoint.
    pub(in crate::operators) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) {
        if !completed {
            self.panes.abandon(checkpoint);
        }
    }

    /// The next window of the rows that are here, fired or not.
    fn upcoming(&self) -> Option<Window> {
        let first = self.panes.first()?;
        self.series.map_or(Some(first), |series| series.first_after(first, self.fired))
    }

    /// The next window that fires.
    fn due(&self) -> Option<Window> {
        let watermark = if self.series.is_some() { self.clock.watermark() } else { self.fires_at };
        self.upcoming().filter(|window| window.has_fired(watermark))
    }

    /// Windows that were empty when time passed them stay so, whatever comes into their slices for later ones.
    fn pass(&mut self) {
        if self.due().is_none() {
            self.fired = self.fired.max(self.clock.watermark());
        }
    }

    /// Whether this slice, where windows overlap, is in none that has not fired at this watermark.
    fn is_over(&self, slice: Window, watermark: i64) -> bool {
        self.series.is_some_and(|series| series.last(slice).has_fired(watermark))
    }

    /// Where the rows of a window are, each with whether it is the last to have them.
    fn places(&self, owner: &W::Owner, window: Window) -> Vec<(Place, bool)> {
        let sides = owner.sides().len();
        if self.series.is_none() {
            return of_pane(sides, window, true).collect();
        }
        let last = window.end.saturating_sub(1);
        let slices = self.panes.within(window).into_iter();
        slices.flat_map(|slice| of_pane(sides, slice, self.is_over(slice, last))).collect()
    }

    /// The rows but for those of keys of which the window was given before a restore: they are still there for later ones.
    fn without_given(&self, owner: &W::Owner, window: Window, rows: ReadRows<W>) -> Result<ReadRows<W>, EngineError> {
        let max_parallelism = self.context.as_ref().expect("windows are opened first").max_parallelism;
        let mut groups = Vec::new();
        let others = rows.into_iter().map(|(side, rows)| {
            let mut others = W::new(owner, side);
            for chunk in rows.rows().chunks() {
                groups.clear();
                key_groups_of_rows(&owner.sides()[side].keys(&chunk.columns), chunk.rows, max_parallelism, &mut groups);
                let is_other: BooleanArray = groups.iter().map(|group| Some(!self.clock.was_given_to(*group, window))).collect();
                if is_other.has_true() {
                    let columns = chunk.columns.iter().map(|column| filter(column, &is_other));
                    others.push(owner, side, &columns.collect::<Result<Vec<ArrayRef>, _>>()?, None)?;
                }
            }
            Ok((side, Arc::new(others)))
        });
        others.collect::<Result<_, _>>().map_err(|source| owner.kernel(source))
    }
}

/// Where the rows that so many sides have in a pane are, each with whether they leave.
fn of_pane(sides: usize, pane: Window, leaves: bool) -> impl Iterator<Item = (Place, bool)> {
    (0..sides).map(move |side| ((pane, side), leaves))
}

/// Takes rows of an input into their panes; answers which are only in windows that have fired at this watermark.
fn take_in<W: Waiting>(
    owner: &W::Owner,
    panes: &mut Panes<W>,
    (series, watermark): (Option<Series>, i64),
    (side, batch): (usize, &RecordBatch),
) -> Result<Vec<Split>, EngineError> {
    let invariant = |message: String| EngineError::Invariant { uid: owner.uid().clone(), message };
    let windows = owner.sides()[side].windows.as_ref().ok_or_else(|| invariant("rows wait in no window".into()))?;
    let mut late = Vec::new();
    for (pane, split) in windows.split(batch).map_err(invariant)? {
        let last = series.map_or(pane, |series| series.last(pane));
        if last.has_fired(watermark) {
            late.push(split);
            continue;
        }
        let columns = split.columns(batch.columns()).map_err(|source| owner.kernel(source))?;
        panes.push(owner, (pane, side), &columns, None)?;
    }
    Ok(late)
}
