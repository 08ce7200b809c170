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
use crate::operators::waiting::{Waiting, WaitingWindows};
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
        windows: WaitingWindows::new(&window.time, shape.series),
        shape,
        work,
        firing: None,
        runs: Runs::default(),
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
    windows: WaitingWindows<InputRows>,
    /// What was read of the window that fires.
    firing: Option<Firing>,
    /// Whose rows the function has given.
    runs: Runs,
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

    /// Begins with the next groups, of the window that is read or of the next one; whether there are some.
    fn fire_next(&mut self) -> Result<bool, EngineError> {
        self.firing = None;
        let next = self.windows.next(&self.shape)?;
        self.firing = next.map(|(window, rows)| Firing::new(&self.shape, window, rows));
        self.count()?;
        Ok(self.firing.is_some())
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
        self.windows.count(&self.shape, self.firing.iter().flat_map(Firing::held))
    }
}

impl Operator for WindowProcess {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.windows.open(&self.shape, context, restored)?;
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
        self.windows.is_ready()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.windows.take_in(&self.shape, (input, batch), &mut self.late[input])?;
        self.count()?;
        self.windows.make_room(&self.shape)
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
        let fires = self.firing.is_some() || self.windows.is_firing();
        waits || fires || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.windows.advance(watermark);
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.windows.keeps_time()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        Ok(self.windows.tick(time_ms))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        self.windows.snapshot(&self.shape, checkpoint, finished)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.windows.background(&self.shape)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.windows.notify(checkpoint, completed);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.windows.finish();
        Ok(())
    }
}
