//! The interval join: a row meets the rows of the other side whose time is near enough, as soon as both are there.
//!
//! Each side keeps its rows in panes of half the interval's span. A batch goes into its own panes and is matched against the few
//! panes of the other side that it can reach; a pane is dropped whole when time has passed what its rows can meet.

mod closing;
mod probe;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinKind, JoinSide};
use levada_common::time::Watermark;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::indexed::IndexedRows;
use super::shape::Shape;
use super::state;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::event_time::event_times;
use crate::operators::late::LateRows;
use crate::operators::rows::Marks;
use crate::operators::waiting;
use crate::operators::window::{Grid, Split, Window, WindowSource};
use closing::Closing;
use probe::Probe;

/// Panes in the span of an interval.
const PANES_PER_SPAN: i64 = 2;

/// Least length of a pane in milliseconds: shorter ones would be many and nearly empty.
const PANE_MS_MIN: i64 = 1_000;

/// The rows of one side in one stretch of time.
struct Pane {
    rows: IndexedRows,
    /// Of each row.
    times: Vec<i64>,
    /// Rows that have met one, where that must be known.
    marks: Marks,
}

impl Pane {
    fn new(key_types: &[DataType]) -> Self {
        Self { rows: IndexedRows::new(key_types), times: Vec::new(), marks: Marks::default() }
    }

    fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes() + self.times.capacity() * size_of::<i64>() + self.marks.memory_bytes()
    }
}

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
    /// By side.
    panes: [BTreeMap<Window, Pane>; 2],
    probes: VecDeque<Probe>,
    closing: VecDeque<Closing>,
    watermark: i64,
    /// By side.
    late: [LateRows; 2],
    running: Option<(OperatorContext, HeapShare)>,
}

impl IntervalJoin {
    /// The right row's time less the left one's is in `[from_ms, to_ms]`.
    pub(super) fn new(shape: Arc<Shape>, late: [LateRows; 2], from_ms: i64, to_ms: i64) -> Self {
        let reach = [Reach { from_ms, to_ms }, Reach { from_ms: to_ms.saturating_neg(), to_ms: from_ms.saturating_neg() }];
        Self {
            shape,
            reach,
            pane_ms: (to_ms.saturating_sub(from_ms) / PANES_PER_SPAN).max(PANE_MS_MIN),
            panes: [BTreeMap::new(), BTreeMap::new()],
            probes: VecDeque::new(),
            closing: VecDeque::new(),
            watermark: i64::MIN,
            late,
            running: None,
        }
    }

    /// Puts rows of a side into their panes. Answers, for each pane, the rows' columns, their times and the number of the first.
    fn insert(&mut self, side: usize, batch: &RecordBatch, marks: Option<&BooleanArray>) -> Result<Vec<Inserted>, EngineError> {
        let shape = Arc::clone(&self.shape);
        let time = shape.sides[side].time.ok_or_else(|| shape.invariant("the join has no interval"))?;
        let source = WindowSource::Times { time, grid: Grid::new(self.pane_ms, 0, None) };
        let mut inserted = Vec::new();
        for (window, split) in source.split(batch).map_err(|reason| shape.invariant(reason))? {
            let columns = split.columns(batch.columns()).map_err(|source| shape.kernel(source))?;
            let times = event_times(&columns[time]).ok_or_else(|| shape.invariant("event time is of another type"))?.clone();
            let key_types = &shape.sides[side].key_types;
            let pane = self.panes[side].entry(window).or_insert_with(|| Pane::new(key_types));
            let first = pane.times.len();
            pane.rows.push(&shape.sides[side].keys(&columns), &columns).map_err(|source| shape.kernel(source))?;
            pane.times.extend_from_slice(&times);
            if shape.kind.marks(JoinSide::ALL[side]) {
                pane.marks.resize(pane.times.len());
                let marked = marks.map(|marks| marked(marks, &split)).unwrap_or_default();
                marked.into_iter().for_each(|row| {
                    pane.marks.set(first as u32 + row);
                });
            }
            inserted.push(Inserted { window, columns, times, first: first as u32 });
        }
        Ok(inserted)
    }

    /// The rows whose time has not passed, in the columns that are kept; the others are late.
    fn in_time(&mut self, side: usize, given: &RecordBatch) -> Result<RecordBatch, EngineError> {
        let batch = self.shape.sides[side].rows(given.clone()).map_err(|source| self.shape.kernel(source))?;
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

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let bytes = [0, 1].map(|side: usize| {
            let closing = self.closing.iter().filter(|closing| closing.side as usize == side).map(|closing| &closing.pane);
            self.panes[side].values().chain(closing).map(Pane::memory_bytes).sum::<usize>()
        });
        let rows: usize = self.panes.iter().flat_map(BTreeMap::values).map(|pane| pane.times.len()).sum();
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store((bytes[0] + bytes[1]) as u64, Ordering::Relaxed);
        state::charge(&self.shape, share, bytes)
    }
}

/// Rows that were put into a pane.
struct Inserted {
    window: Window,
    columns: Vec<ArrayRef>,
    times: arrow::buffer::ScalarBuffer<i64>,
    first: u32,
}

/// Which rows of a split are marked, by their place in it.
fn marked(marks: &BooleanArray, split: &Split) -> Vec<u32> {
    let is_marked = |row: usize| marks.value(row);
    let places: Vec<usize> = match split {
        Split::All => (0..marks.len()).collect(),
        Split::Run { start, rows } => (*start..start + rows).collect(),
        Split::Rows(rows) => rows.values().iter().map(|row| *row as usize).collect(),
    };
    places.into_iter().enumerate().filter(|(_, row)| is_marked(*row)).map(|(place, _)| place as u32).collect()
}

impl Operator for IntervalJoin {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.shape);
        let restored = waiting::read(&shape.uid, &shape.sides, context.key_groups, restored)?;
        for rows in restored.rows {
            self.insert(rows.side, &rows.batch, rows.marks.as_ref())?;
        }
        self.watermark = restored.watermark;
        self.late.iter_mut().for_each(|late| late.open(context));
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let batch = self.in_time(input, &batch)?;
        let reach = self.reach[input];
        for inserted in self.insert(input, &batch, None)? {
            let keys = self.shape.sides[input].keys(&inserted.columns);
            let reached = self.panes[1 - input].keys().copied().filter(|window| reach.meets(&inserted.times, *window));
            let reached: Vec<Window> = reached.collect();
            if !reached.is_empty() {
                self.probes.push_back(Probe::new(JoinSide::ALL[input], inserted, keys, reached));
            }
        }
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        while let Some(probe) = self.probes.front_mut() {
            if let Some(batch) = probe.next(&self.shape, &self.reach, &mut self.panes, rows_max)? {
                return Ok(Some(batch));
            }
            self.probes.pop_front();
        }
        while let Some(closing) = self.closing.front_mut() {
            if let Some(batch) = closing.next(&self.shape, rows_max)? {
                return Ok(Some(batch));
            }
            self.closing.pop_front();
            self.count()?;
        }
        Ok(None)
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.iter_mut().find_map(LateRows::poll))
    }

    fn has_output(&self) -> bool {
        !self.probes.is_empty() || !self.closing.is_empty() || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has passed stays passed.
        self.watermark = self.watermark.max(watermark.0);
        for side in JoinSide::ALL {
            let lasts_ms = self.lasts_ms(side as usize);
            let keeps = match side {
                JoinSide::Left => self.shape.kind.keeps_left(),
                JoinSide::Right => self.shape.kind.keeps_right(),
            };
            let is_over = |window: &Window| watermark.0 >= window.end.saturating_sub(1).saturating_add(lasts_ms);
            let panes = &mut self.panes[side as usize];
            while let Some(entry) = panes.first_entry().filter(|entry| is_over(entry.key())) {
                let pane = entry.remove();
                if keeps {
                    self.closing.push_back(Closing::new(side, pane));
                }
            }
        }
        self.count()?;
        Ok(Some(Watermark(watermark.0.saturating_sub(self.held_back_ms()))))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut pieces = [Vec::new(), Vec::new()];
        for (side, panes) in self.panes.iter().enumerate() {
            for pane in panes.values() {
                waiting::save(&self.shape.sides[side], &pane.rows.rows, Some(&pane.marks), &mut pieces[side]);
            }
        }
        Ok(state::parts(&self.shape, pieces, self.watermark))
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
