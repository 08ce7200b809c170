//! The window join: rows wait in their window's pane until it fires, then meet.
//!
//! Left rows are only kept; the right side is indexed as it comes, so that firing is a probe of its index by the left chunks, from
//! a cursor. For kinds that give left rows only, the right side keeps a row for each key.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinKind, JoinSide, WindowTime};
use levada_common::time::Watermark;
use levada_state::key_index::ABSENT;
use levada_state::snapshot::StatePart;

use super::indexed::IndexedRows;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::rows::{Marks, NO_ROW, Part, RowBuffer};
use crate::operators::waiting::{Panes, Place, ReadRows, Reading, Waiting};
use crate::operators::window::{Split, Window, WindowClock};

/// A join in windows of event time or of processing time.
///
/// Shape of the output: as planned; append. Windows fire in the order of their ends. A row whose window has fired is late: dropped
/// and counted, or given beside the result where that is read. By processing time no row is: each is kept with when it came in.
pub(super) struct WindowJoin {
    shape: Arc<Shape>,
    panes: Panes<WindowRows>,
    /// The window that is read, and what goes out of it.
    reading: Option<(Window, Reading<WindowRows>)>,
    firing: Option<Firing>,
    clock: WindowClock,
    /// The watermark at which windows fire: that of event time begins anew with the sources' time.
    fires_at: i64,
    /// By side.
    late: [LateRows; 2],
    context: Option<OperatorContext>,
}

/// The rows of one side of a window.
enum WindowRows {
    Left(RowBuffer),
    Right(Box<IndexedRows>),
}

impl Waiting for WindowRows {
    type Owner = Shape;

    const OLDEST_LEAVE: bool = false;

    fn new(shape: &Shape, side: usize) -> Self {
        match JoinSide::ALL[side] {
            JoinSide::Left => Self::Left(RowBuffer::default()),
            JoinSide::Right => Self::Right(Box::new(IndexedRows::new(&shape.sides[side].key_types))),
        }
    }

    fn push(&mut self, shape: &Shape, side: usize, columns: &[ArrayRef], _: Option<&BooleanArray>) -> Result<(), ArrowError> {
        match self {
            Self::Left(rows) => rows.push(columns),
            Self::Right(rows) if shape.kind.gives_pairs() => rows.push(&shape.sides[side].keys(columns), columns),
            Self::Right(rows) => rows.push_new_keys(&shape.sides[side].keys(columns), columns),
        }
    }

    fn rows(&self) -> &RowBuffer {
        match self {
            Self::Left(rows) => rows,
            Self::Right(rows) => &rows.rows,
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Left(rows) => rows.memory_bytes(),
            Self::Right(rows) => rows.memory_bytes(),
        }
    }
}

/// Takes rows of a side into the panes of their windows; answers which are late at this watermark.
fn take_in(
    shape: &Shape,
    panes: &mut Panes<WindowRows>,
    watermark: i64,
    (side, batch): (usize, &RecordBatch),
) -> Result<Vec<Split>, EngineError> {
    let windows = shape.sides[side].windows.as_ref().ok_or_else(|| shape.invariant("the join is in no window"))?;
    let mut late = Vec::new();
    for (window, split) in windows.split(batch).map_err(|reason| shape.invariant(reason))? {
        if window.has_fired(watermark) {
            late.push(split);
            continue;
        }
        let columns = split.columns(batch.columns()).map_err(|source| shape.kernel(source))?;
        panes.push(shape, (window, side), &columns, None)?;
    }
    Ok(late)
}

impl WindowJoin {
    pub(super) fn new(shape: Arc<Shape>, time: &WindowTime, late: [LateRows; 2]) -> Self {
        let (reading, firing, clock) = (None, None, WindowClock::new(time));
        Self { shape, panes: Panes::new(), reading, firing, clock, fires_at: i64::MIN, late, context: None }
    }

    /// The next window that fires.
    fn due(&self) -> Option<Window> {
        self.panes.first().filter(|window| window.has_fired(self.fires_at))
    }

    /// Begins with the next rows that go out, of the window that is read or of the next one; whether there are some.
    fn fire_next(&mut self) -> Result<bool, EngineError> {
        let shape = Arc::clone(&self.shape);
        self.firing = None;
        while self.firing.is_none() {
            let Some((window, reading)) = &mut self.reading else {
                let Some(window) = self.due() else { return Ok(false) };
                self.reading = Some((window, self.panes.read(&shape, &[0, 1].map(|side| ((window, side), true)))?));
                continue;
            };
            match reading.next(&shape, &mut self.panes)? {
                Some(rows) => self.firing = Some(Firing::new(&shape, *window, rows)?),
                None => self.reading = None,
            }
            self.count()?;
        }
        Ok(true)
    }

    fn context(&self) -> &OperatorContext {
        self.context.as_ref().expect("an operator is opened first")
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        let firing = self.firing.iter().flat_map(Firing::held);
        let reading = self.reading.iter().flat_map(|(_, reading)| reading.held());
        self.panes.count(&self.shape, context, reading.chain(firing))
    }
}

impl Operator for WindowJoin {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let shape: &Shape = &self.shape;
        let has_pane = |(window, side): Place| shape.sides[side].windows.as_ref().is_some_and(|windows| windows.has(window));
        self.clock.restore(&shape.uid, context, &mut restored)?;
        self.panes.open(shape, context, restored, has_pane, |panes, rows| {
            take_in(shape, panes, i64::MIN, (rows.side, &rows.batch)).map(drop)
        })?;
        self.late.iter_mut().for_each(|late| late.open(context));
        self.context = Some(context.clone());
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
        let rows_max = self.context().batch_rows_max;
        loop {
            if let Some(firing) = &mut self.firing
                && let Some(batch) = firing.next(&self.shape, rows_max)?
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
        self.firing.is_some() || self.reading.is_some() || self.due().is_some() || self.late.iter().any(LateRows::has_some)
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
        Ok(match self.due() {
            Some(_) => Some(time_ms),
            None => self.panes.first().map(|window| self.clock.shows_at(window.end)),
        })
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

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        self.fires_at = i64::MAX;
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.panes.abandon(checkpoint);
        }
        Ok(())
    }
}

/// Rows of a window on their way out.
struct Firing {
    window: Window,
    left: RowBuffer,
    right: IndexedRows,
    stage: Stage,
    /// Right keys that a left row has met, where right rows that met none go out.
    met: Option<Marks>,
    left_rows: Vec<u32>,
    right_rows: Vec<u32>,
}

/// How far it is.
enum Stage {
    /// Left rows meet right ones.
    Probe {
        chunk: usize,
        /// The chunk's keys in the right index, once they were looked up.
        keys: Vec<u32>,
        row: usize,
        /// The next right row of this left one, where it was begun.
        link: u32,
    },
    /// Right rows of keys that met none, from this key and row.
    Unmatched { key: usize, link: u32 },
}

impl Firing {
    /// Of what was read of the window: nothing else has it any more.
    fn new(shape: &Shape, window: Window, rows: ReadRows<WindowRows>) -> Result<Self, EngineError> {
        let (mut left, mut right) = (RowBuffer::default(), IndexedRows::new(&shape.sides[1].key_types));
        for (_, rows) in rows {
            match Arc::into_inner(rows).ok_or_else(|| shape.invariant("a window that fires is held elsewhere"))? {
                WindowRows::Left(rows) => left = rows,
                WindowRows::Right(rows) => right = *rows,
            }
        }
        let met = shape.kind.keeps_right().then(|| {
            let mut met = Marks::default();
            met.resize(right.keys());
            met
        });
        let stage = Stage::Probe { chunk: 0, keys: Vec::new(), row: 0, link: NO_ROW };
        Ok(Self { window, left, right, stage, met, left_rows: Vec::new(), right_rows: Vec::new() })
    }

    /// What is held, as it is counted: by side, bytes and rows.
    fn held(&self) -> [(usize, usize, usize); 2] {
        let (left, right) = (&self.left, &self.right);
        [(0, left.memory_bytes(), left.len()), (1, right.memory_bytes(), right.rows.len())]
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    fn next(&mut self, shape: &Shape, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            self.left_rows.clear();
            self.right_rows.clear();
            match &self.stage {
                Stage::Probe { chunk, .. } if *chunk < self.left.chunks().len() => {
                    let chunk = *chunk;
                    self.probe(shape, rows_max);
                    if self.left_rows.is_empty() {
                        continue;
                    }
                    let left = Part::of(&self.left.chunks()[chunk].columns, &self.left_rows);
                    let right = match shape.kind.gives_pairs() {
                        true => Part::kept(&self.right.rows, &self.right_rows),
                        false => Part::Nothing,
                    };
                    return shape.output(self.left_rows.len(), [&left, &right], Some(self.window)).map(Some);
                }
                Stage::Probe { .. } => self.stage = Stage::Unmatched { key: 0, link: NO_ROW },
                Stage::Unmatched { .. } => {
                    self.unmatched(rows_max);
                    if self.right_rows.is_empty() {
                        return Ok(None);
                    }
                    let right = Part::kept(&self.right.rows, &self.right_rows);
                    return shape.output(self.right_rows.len(), [&Part::Nothing, &right], Some(self.window)).map(Some);
                }
            }
        }
    }

    /// Goes on through the current left chunk, and to the next one at its end.
    fn probe(&mut self, shape: &Shape, rows_max: usize) {
        let Stage::Probe { chunk: at, keys, row, link } = &mut self.stage else { return };
        let (chunk, right, kind) = (&self.left.chunks()[*at], &mut self.right, shape.kind);
        if keys.is_empty() {
            right.find(&shape.sides[0].keys(&chunk.columns), chunk.rows, keys);
            if let Some(met) = &mut self.met {
                keys.iter().filter(|key| **key != ABSENT).for_each(|key| {
                    met.set(*key);
                });
            }
        }
        while *row < chunk.rows && self.left_rows.len() < rows_max {
            let key = keys[*row];
            match kind {
                JoinKind::Semi | JoinKind::Anti => {
                    if (key == ABSENT) == (kind == JoinKind::Anti) {
                        self.left_rows.push(*row as u32);
                    }
                }
                _ if key == ABSENT => {
                    if kind.keeps_left() {
                        self.left_rows.push(*row as u32);
                        self.right_rows.push(NO_ROW);
                    }
                }
                _ => {
                    if *link == NO_ROW {
                        *link = right.newest(key);
                    }
                    while *link != NO_ROW && self.left_rows.len() < rows_max {
                        self.left_rows.push(*row as u32);
                        self.right_rows.push(*link);
                        *link = right.before(*link);
                    }
                    if *link != NO_ROW {
                        return;
                    }
                }
            }
            *row += 1;
        }
        if *row == chunk.rows {
            keys.clear();
            (*at, *row) = (*at + 1, 0);
        }
    }

    /// Collects right rows whose key no left row has.
    fn unmatched(&mut self, rows_max: usize) {
        let (Stage::Unmatched { key, link }, Some(met)) = (&mut self.stage, &self.met) else { return };
        let right = &self.right;
        while self.right_rows.len() < rows_max && *key < right.keys() {
            if met.has(*key as u32) {
                *key += 1;
                continue;
            }
            if *link == NO_ROW {
                *link = right.newest(*key as u32);
            }
            while *link != NO_ROW && self.right_rows.len() < rows_max {
                self.right_rows.push(*link);
                *link = right.before(*link);
            }
            if *link == NO_ROW {
                *key += 1;
            }
        }
    }
}
