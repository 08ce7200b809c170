//! The operator that hands a function of a user the rows of each key in a window when it fires, of one input or of two.
//!
//! Rows wait as they came, in the window of their time, or where windows overlap in a slice; which key they have is found when the
//! window fires. Then the function is called key by key, from a cursor. Must never know what the function does.

mod evict;
mod firing;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{OperatorSpec, ProcessSpec, ProcessWindow, SideOutput};
use levada_common::time::Watermark;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::{StatePart, ready};

use super::failed;
use super::guard::guarded;
use crate::error::EngineError;
use crate::function::{FunctionContext, FunctionError, Output, WindowWork};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::event_time::watermark_part;
use crate::operators::late::LateRows;
use crate::operators::rows::RowBuffer;
use crate::operators::waiting;
use crate::operators::window::{Split, Window};
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
        panes: BTreeMap::new(),
        firing: None,
        due: VecDeque::new(),
        runs: Runs::default(),
        fired: i64::MIN,
        watermark: i64::MIN,
        late,
        running: None,
    }))
}

/// The rows of a window, or of a slice of windows that overlap, by input.
pub(super) type Pane = Vec<RowBuffer>;

/// A function in windows.
///
/// Shape of the output: the key's columns, `window_start`, `window_end`, `window_time` (end − 1 ms), and what the function gives;
/// append. Windows fire in the order of their ends.
struct WindowProcess {
    shape: Shape,
    work: Box<dyn WindowWork>,
    /// Shared with the window that fires: what is in several windows goes out with the last of them.
    panes: BTreeMap<Window, Arc<Pane>>,
    firing: Option<Firing>,
    /// Windows that do not overlap and fire next.
    due: VecDeque<(Window, Arc<Pane>)>,
    /// Whose rows the function has given.
    runs: Runs,
    /// The watermark at which the last of overlapping windows fired that has.
    fired: i64,
    watermark: i64,
    /// By input.
    late: Vec<LateRows>,
    running: Option<Running>,
}

/// What it works with once it is opened.
struct Running {
    context: OperatorContext,
    out: Output,
    share: HeapShare,
}

impl WindowProcess {
    fn failed(&self) -> impl Fn(FunctionError) -> EngineError + use<> {
        failed(&self.shape.uid, &self.shape.function)
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("an operator is opened first")
    }

    /// Whether this pane is only in windows that have fired.
    fn is_late(&self, pane: Window) -> bool {
        self.shape.series.map_or(pane, |series| series.last(pane)).has_fired(self.watermark)
    }

    /// Takes rows of an input into the panes of their windows; answers which are late.
    fn take_in(&mut self, input: usize, batch: &RecordBatch) -> Result<Vec<Split>, EngineError> {
        let side = &self.shape.sides[input];
        let windows = side.windows.as_ref().expect("it is in windows");
        let mut late = Vec::new();
        for (window, split) in windows.split(batch).map_err(|reason| self.shape.invariant(reason))? {
            if self.is_late(window) {
                late.push(split);
                continue;
            }
            let columns = split.columns(batch.columns()).map_err(|source| self.shape.kernel(source))?;
            let inputs = self.shape.sides.len();
            let pane = self.panes.entry(window).or_insert_with(|| Arc::new((0..inputs).map(|_| RowBuffer::default()).collect()));
            let pane = Arc::get_mut(pane).expect("no window fires while rows come");
            pane[input].push(&columns).map_err(|source| self.shape.kernel(source))?;
        }
        Ok(late)
    }

    /// The next window that fires at the watermark.
    fn next_window(&mut self) -> Option<Firing> {
        let Some(series) = self.shape.series else {
            let (window, pane) = self.due.pop_front()?;
            return Some(Firing::new(&self.shape, window, vec![pane]));
        };
        let first = self.panes.keys().next().copied();
        let window = first.and_then(|slice| series.first_after(slice, self.fired));
        let Some(window) = window.filter(|window| window.has_fired(self.watermark)) else {
            self.fired = self.watermark;
            return None;
        };
        let is_in = |slice: &Window| slice.start >= window.start && slice.end <= window.end;
        let panes = self.panes.iter().take_while(|(slice, _)| slice.end <= window.end).filter(|(slice, _)| is_in(slice));
        let panes = panes.map(|(_, pane)| Arc::clone(pane)).collect();
        Some(Firing::new(&self.shape, window, panes))
    }

    /// The window is out: what no other window has is dropped.
    fn end_window(&mut self, window: Window) -> Result<(), EngineError> {
        if let Some(series) = self.shape.series {
            self.fired = window.end.saturating_sub(1);
            while let Some(entry) = self.panes.first_entry().filter(|entry| series.last(*entry.key()).has_fired(self.fired)) {
                entry.remove();
            }
        }
        self.count()
    }

    /// Calls the function for the next groups of the window that fires; whether there is one.
    fn fire(&mut self) -> Result<bool, EngineError> {
        if self.firing.is_none() {
            self.firing = self.next_window();
        }
        let failed = self.failed();
        let Self { shape, work, firing: Some(firing), runs, running: Some(running), .. } = self else { return Ok(false) };
        match firing.groups(shape, GROUPS_PER_CALL)? {
            Some((groups, keys)) => {
                let mut given = Vec::with_capacity(keys.len());
                guarded(|| work.fire(&groups, &mut running.out, &mut given)).map_err(&failed)?;
                keys.into_iter().zip(given).for_each(|(key, rows)| runs.push(key, rows));
            }
            None => {
                let window = firing.window;
                self.firing = None;
                self.end_window(window)?;
            }
        }
        Ok(true)
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let panes = || self.panes.values().chain(self.due.iter().map(|(_, pane)| pane));
        let bytes = |input: usize| panes().map(|pane| pane[input].memory_bytes()).sum::<usize>();
        let bytes: Vec<usize> = (0..self.shape.sides.len()).map(bytes).collect();
        let rows: usize = panes().flat_map(|pane| pane.iter()).map(RowBuffer::len).sum();
        let total = bytes.iter().sum::<usize>();
        let Running { context, share, .. } = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(total as u64, Ordering::Relaxed);
        let states: Vec<(&str, usize)> =
            self.shape.sides.iter().zip(&bytes).map(|(side, bytes)| (side.state.name.as_str(), *bytes)).collect();
        charge(&self.shape.uid, share, &states, "make the window shorter, or aggregate before it")
    }
}

impl Operator for WindowProcess {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let restored = waiting::read(&self.shape.uid, &self.shape.sides, context.key_groups, restored)?;
        for rows in restored.rows {
            self.take_in(rows.side, &rows.batch)?;
        }
        (self.watermark, self.fired) = (restored.watermark, restored.watermark);
        self.late.iter_mut().for_each(|late| late.open(context));
        let own = FunctionContext::new(&self.shape.uid, context, self.shape.keys.clone(), Arc::clone(&self.shape.declaration));
        let work = &mut self.work;
        guarded(|| work.open(&own)).map_err(self.failed())?;
        let out = Output::new(&self.shape.own_output, context.batch_rows_max);
        let out = out.with_sides(&self.shape.declaration.sides, &self.shape.read);
        let share = HeapShare::new(Arc::clone(&context.heap_budget));
        self.running = Some(Running { context: context.clone(), out, share });
        self.count()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let kept = self.shape.sides[input].rows(batch.clone()).map_err(|source| self.shape.kernel(source))?;
        for split in self.take_in(input, &kept)? {
            self.late[input].take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.count()
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
        let fires = self.firing.is_some() || !self.due.is_empty() || self.shape.series.is_some();
        waits || fires || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has fired stays fired.
        self.watermark = self.watermark.max(watermark.0);
        if self.shape.series.is_none() {
            while let Some(entry) = self.panes.first_entry().filter(|entry| entry.key().has_fired(watermark.0)) {
                self.due.push_back(entry.remove_entry());
            }
        }
        Ok(Some(watermark))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = Vec::new();
        for (input, side) in self.shape.sides.iter().enumerate() {
            let mut pieces = Vec::new();
            self.panes.values().for_each(|pane| waiting::save(side, &pane[input], None, &mut pieces));
            parts.push(StatePart { meta: side.state.clone(), contents: ready(pieces).into() });
        }
        parts.extend(watermark_part(&self.shape.uid, self.watermark));
        Ok(parts)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.advance(Watermark::MAX).map(|_| ())
    }
}
