//! The window join: rows wait in their window's pane until it fires, then meet.
//!
//! Left rows are only kept; the right side is indexed as it comes, so that firing is a probe of its index by the left chunks, from
//! a cursor. Where windows overlap both sides wait in slices, and the right rows of a window are indexed when it fires. For kinds
//! that give left rows only, the right side keeps a row for each key.

mod firing;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinSide, WindowTime};
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::indexed::IndexedRows;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::rows::RowBuffer;
use crate::operators::waiting::{Waiting, WaitingWindows};
use firing::Firing;

/// A join in windows of event time or of processing time.
///
/// Shape of the output: as planned; append. Windows fire in the order of their ends. A row whose window has fired is late: dropped
/// and counted, or given beside the result where that is read. By processing time no row is: each is kept with when it came in.
pub(super) struct WindowJoin {
    shape: Arc<Shape>,
    windows: WaitingWindows<WindowRows>,
    /// What was read of the window that fires.
    firing: Option<Firing>,
    /// By side.
    late: [LateRows; 2],
    rows_max: usize,
}

/// The rows of one side of a window, or of a slice.
enum WindowRows {
    Plain(RowBuffer),
    Indexed(Box<IndexedRows>),
}

impl Waiting for WindowRows {
    type Owner = Shape;

    const OLDEST_LEAVE: bool = false;

    fn new(shape: &Shape, side: usize) -> Self {
        match JoinSide::ALL[side] {
            JoinSide::Left => Self::Plain(RowBuffer::default()),
            // The index of a slice would be of no use to a window that has several.
            JoinSide::Right if shape.series.is_some() && shape.kind.gives_pairs() => Self::Plain(RowBuffer::default()),
            JoinSide::Right => Self::Indexed(Box::new(IndexedRows::new(&shape.sides[side].key_types))),
        }
    }

    fn push(&mut self, shape: &Shape, side: usize, columns: &[ArrayRef], _: Option<&BooleanArray>) -> Result<(), ArrowError> {
        match self {
            Self::Plain(rows) => rows.push(columns),
            Self::Indexed(rows) if shape.kind.gives_pairs() => rows.push(&shape.sides[side].keys(columns), columns),
            Self::Indexed(rows) => rows.push_new_keys(&shape.sides[side].keys(columns), columns),
        }
    }

    fn rows(&self) -> &RowBuffer {
        match self {
            Self::Plain(rows) => rows,
            Self::Indexed(rows) => &rows.rows,
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Plain(rows) => rows.memory_bytes(),
            Self::Indexed(rows) => rows.memory_bytes(),
        }
    }
}

impl WindowJoin {
    pub(super) fn new(shape: Arc<Shape>, time: &WindowTime, late: [LateRows; 2]) -> Self {
        let windows = WaitingWindows::new(time, shape.series);
        Self { shape, windows, firing: None, late, rows_max: 1 }
    }

    /// Begins with the next rows that go out, of the window that is read or of the next one; whether there are some.
    fn fire_next(&mut self) -> Result<bool, EngineError> {
        self.firing = None;
        let next = self.windows.next(&self.shape)?;
        self.firing = next.map(|(window, rows)| Firing::new(&self.shape, window, rows));
        self.count()?;
        Ok(self.firing.is_some())
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        self.windows.count(&self.shape, self.firing.iter().flat_map(Firing::held))
    }
}

impl Operator for WindowJoin {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.windows.open(&self.shape, context, restored)?;
        self.late.iter_mut().for_each(|late| late.open(context));
        self.rows_max = context.batch_rows_max;
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
            if let Some(firing) = &mut self.firing
                && let Some(batch) = firing.next(&self.shape, self.rows_max)?
            {
                return Ok(Some(batch));
            }
            if !self.fire_next()? {
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.iter_mut().find_map(LateRows::poll))
    }

    fn has_output(&self) -> bool {
        self.firing.is_some() || self.windows.is_firing() || self.late.iter().any(LateRows::has_some)
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

    fn finish(&mut self) -> Result<(), EngineError> {
        self.windows.finish();
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.windows.notify(checkpoint, completed);
        Ok(())
    }
}
