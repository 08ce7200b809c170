//! The interval join: a row meets the rows of the other side whose time is near enough, as soon as both are there.
//!
//! Each side keeps its rows in panes of half the interval's span. A batch goes into its own panes and is matched against the few
//! panes of the other side that it can reach; a pane is dropped whole when time has passed what its rows can meet.

mod closing;
mod probe;
mod rows;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array};
use arrow::compute::filter_record_batch;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinKind, JoinSide};
use levada_common::planned_state::WATERMARK;
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::event_time::{event_times, restored_watermark, watermark_part};
use crate::operators::late::LateRows;
use crate::operators::waiting::{Panes, Place, Reading};
use crate::operators::window::{Grid, Split, Window, WindowSource};
use closing::Closing;
use probe::Probe;
use rows::IntervalRows;

/// Panes in the span of an interval.
const PANES_PER_SPAN: i64 = 2;

/// Least length of a pane in milliseconds: shorter ones would be many and nearly empty.
const PANE_MS_MIN: i64 = 1_000;

/// How far a side's rows reach: what the time of a row that it meets may be, less its own.
#[derive(Debug, Clone, Copy)]
struct Reach {
    from_ms: i64,
    to_ms: i64,
}

/// A join within an interval of event time.
///
/// Shape of the output: as planned; append. A row whose time has passed is late: counted, and given beside the result where that
/// is read. Rows that met none go out when time has passed what their pane can meet, so the watermark that goes on is held back by that.
pub(super) struct IntervalJoin {
    shape: Arc<Shape>,
    /// By side.
    reach: [Reach; 2],
    pane_ms: i64,
    panes: Panes<IntervalRows>,
    probes: VecDeque<Probe>,
    /// The pane and side that is read since its time has passed, and its rows that go out.
    reading: Option<(Place, Reading<IntervalRows>)>,
    closing: Option<Closing>,
    watermark: i64,
    /// The watermark at which panes are over: it begins anew with the sources' time.
    over_at: i64,
    /// By side.
    late: [LateRows; 2],
    context: Option<OperatorContext>,
}

impl IntervalJoin {
    /// The right row's time less the left one's is in `[from_ms, to_ms]`.
    pub(super) fn new(shape: Arc<Shape>, late: [LateRows; 2], from_ms: i64, to_ms: i64) -> Self {
        let reach = [Reach { from_ms, to_ms }, Reach { from_ms: to_ms.saturating_neg(), to_ms: from_ms.saturating_neg() }];
        Self {
            shape,
            reach,
            pane_ms: (to_ms.saturating_sub(from_ms) / PANES_PER_SPAN).max(PANE_MS_MIN),
            panes: Panes::new(),
            probes: VecDeque::new(),
            reading: None,
            closing: None,
            watermark: i64::MIN,
            over_at: i64::MIN,
            late,
            context: None,
        }
    }

    /// The rows whose time has not passed, in the columns that are kept; the others are late.
    fn in_time(&mut self, side: usize, given: &RecordBatch) -> Result<RecordBatch, EngineError> {
        let batch = self.shape.sides[side].rows(given.clone(), None).map_err(|source| self.shape.kernel(source))?;
        let time = self.shape.sides[side].time.ok_or_else(|| self.shape.invariant("the join has no interval"))?;
        let column = batch.column(time);
        let times = event_times(column).ok_or_else(|| self.shape.invariant("event time is of another type"))?;
        if times.iter().all(|time| *time > self.watermark) {
            return Ok(batch);
        }
        let times = Int64Array::new(times.clone(), column.nulls().cloned());
        let in_time: BooleanArray = times.iter().map(|time| Some(time.is_none_or(|time| time > self.watermark))).collect();
        self.late[side].take_others(given, &in_time).map_err(|source| self.shape.kernel(source))?;
        filter_record_batch(&batch, &in_time).map_err(|source| self.shape.kernel(source))
    }

    /// How much later than its time a row of this side can still meet one that comes.
    fn lasts_ms(&self, side: usize) -> i64 {
        self.reach[side].to_ms.max(0)
    }

    /// How far behind the watermark a row of the output can be.
    fn held_back_ms(&self) -> i64 {
        let [left, right] = [0, 1].map(|side| self.lasts_ms(side));
        match self.shape.kind {
            JoinKind::Inner | JoinKind::Semi => left,
            JoinKind::Left | JoinKind::Anti => left.saturating_add(self.pane_ms),
            JoinKind::Right => right.saturating_add(self.pane_ms),
            JoinKind::Full => left.max(right).saturating_add(self.pane_ms),
        }
    }

    /// The first pane and side whose time has passed what its rows can meet.
    fn next_over(&self) -> Option<Place> {
        let has_passed = |window: &Window, lasts_ms: i64| self.over_at >= window.end.saturating_sub(1).saturating_add(lasts_ms);
        let mut places = self.panes.places().take_while(|(window, _)| has_passed(window, 0));
        places.find(|(window, side)| has_passed(window, self.lasts_ms(*side)))
    }

    /// Begins with the next rows that met none and go out, of the pane that is read or of the next one; whether there are some.
    fn close_next(&mut self) -> Result<bool, EngineError> {
        let shape = Arc::clone(&self.shape);
        self.closing = None;
        while self.closing.is_none() {
            let Some(((_, side), reading)) = &mut self.reading else {
                let Some(place) = self.next_over() else { return Ok(false) };
                self.reading = Some((place, self.panes.read(&shape, &[(place, true)])?));
                continue;
            };
            let side = JoinSide::ALL[*side];
            let keeps = match side {
                JoinSide::Left => shape.kind.keeps_left(),
                JoinSide::Right => shape.kind.keeps_right(),
            };
            match reading.next(&shape, &mut self.panes)? {
                Some(rows) if keeps => self.closing = rows.into_iter().next().map(|(_, rows)| Closing::new(side, rows)),
                Some(_) => {}
                None => self.reading = None,
            }
            self.count()?;
        }
        Ok(true)
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        let reading = self.reading.iter().flat_map(|(_, reading)| reading.held());
        let closing = self.closing.iter().map(Closing::held);
        self.panes.count(&self.shape, context, reading.chain(closing))
    }
}

/// Rows that were put into a pane.
struct Inserted {
    place: Place,
    columns: Vec<ArrayRef>,
    times: arrow::buffer::ScalarBuffer<i64>,
    /// The number of the first of them there.
    first: u32,
}

/// Where the panes of this length come from.
fn source(shape: &Shape, side: usize, pane_ms: i64) -> Result<WindowSource, EngineError> {
    let time = shape.sides[side].time.ok_or_else(|| shape.invariant("the join has no interval"))?;
    Ok(WindowSource::Times { time, grid: Grid::new(pane_ms, 0, None) })
}

/// Puts rows of a side into their panes. Answers what was put into each.
fn insert(
    shape: &Shape,
    panes: &mut Panes<IntervalRows>,
    pane_ms: i64,
    (side, batch, marks): (usize, &RecordBatch, Option<&BooleanArray>),
) -> Result<Vec<Inserted>, EngineError> {
    let mut inserted = Vec::new();
    for (window, split) in source(shape, side, pane_ms)?.split(batch).map_err(|reason| shape.invariant(reason))? {
        let columns = split.columns(batch.columns()).map_err(|source| shape.kernel(source))?;
        let times = rows::times(shape, side, &columns)?;
        let place = (window, side);
        let first = panes.push(shape, place, &columns, marks.map(|marks| marked(marks, &split)).as_ref())?;
        inserted.push(Inserted { place, columns, times, first: first as u32 });
    }
    Ok(inserted)
}

/// The marks of the rows of a split.
fn marked(marks: &BooleanArray, split: &Split) -> BooleanArray {
    match split {
        Split::All => marks.clone(),
        Split::Run { start, rows } => marks.slice(*start, *rows),
        Split::Rows(rows) => rows.values().iter().map(|row| Some(marks.value(*row as usize))).collect(),
    }
}

impl Operator for IntervalJoin {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let (shape, pane_ms): (&Shape, i64) = (&self.shape, self.pane_ms);
        let has_pane = |(window, side): Place| source(shape, side, pane_ms).is_ok_and(|source| source.has(window));
        self.watermark = restored_watermark(&shape.uid, WATERMARK, context, &mut restored)?;
        self.panes.open(shape, context, restored, has_pane, |panes, rows| {
            insert(shape, panes, pane_ms, (rows.side, &rows.batch, rows.marks.as_ref())).map(drop)
        })?;
        self.late.iter_mut().for_each(|late| late.open(context));
        self.context = Some(context.clone());
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.panes.is_ready()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        // Before the rows: those that come stay until they have met what is there.
        self.panes.make_room(&self.shape)?;
        let batch = self.in_time(input, &batch)?;
        let reach = self.reach[input];
        for inserted in insert(&self.shape, &mut self.panes, self.pane_ms, (input, &batch, None))? {
            let others = self.panes.places().filter(|(window, side)| *side != input && reach.meets(&inserted.times, *window));
            let others: Vec<Window> = others.map(|(window, _)| window).collect();
            if !others.is_empty() {
                let keys = self.shape.sides[input].keys(&inserted.columns);
                self.probes.push_back(Probe::new(inserted, keys, others));
            }
        }
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context.as_ref().expect("an operator is opened first").batch_rows_max;
        while let Some(probe) = self.probes.front_mut() {
            if let Some(batch) = probe.next(&self.shape, &self.reach, &mut self.panes, rows_max)? {
                return Ok(Some(batch));
            }
            self.probes.pop_front();
        }
        loop {
            if let Some(closing) = &mut self.closing
                && let Some(batch) = closing.next(&self.shape, rows_max)?
            {
                return Ok(Some(batch));
            }
            if !self.close_next()? {
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.iter_mut().find_map(LateRows::poll))
    }

    fn has_output(&self) -> bool {
        let closes = self.closing.is_some() || self.reading.is_some() || self.next_over().is_some();
        !self.probes.is_empty() || closes || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has passed stays passed.
        self.watermark = self.watermark.max(watermark.0);
        self.over_at = watermark.0;
        Ok(Some(Watermark(watermark.0.saturating_sub(self.held_back_ms()))))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = self.panes.snapshot(&self.shape, checkpoint)?;
        let context = self.context.as_ref().expect("an operator is opened first");
        parts.extend(watermark_part(&self.shape.uid, WATERMARK, context, self.watermark));
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
        self.advance(Watermark::MAX).map(|_| ())
    }
}

impl Reach {
    /// Whether a row of one of these times can meet one of the window.
    fn meets(self, times: &[i64], window: Window) -> bool {
        let bounds = times.iter().fold((i64::MAX, i64::MIN), |(least, most), time| (least.min(*time), most.max(*time)));
        bounds.0.saturating_add(self.from_ms) < window.end && bounds.1.saturating_add(self.to_ms) >= window.start
    }

    /// Whether a row of time `own` meets one of time `other`.
    #[inline]
    fn holds(self, own: i64, other: i64) -> bool {
        let apart = other - own;
        apart >= self.from_ms && apart <= self.to_ms
    }
}
