//! The best rows of each key and window, given when the window fires.
//!
//! A key is one of a window: all windows share an index, a heap and lists, and each window knows its keys. In which window a row is
//! is not saved but computed again; where windows overlap a row is kept in each of its windows, with columns that say in which. In
//! front of a store keys leave memory one by one with their rows, and those of a batch come back by one sorted read, as those of a
//! running top-N do; a window that fires goes out key by key, what only the store has of it before what memory has. Invariant: a
//! window's rows go out best first, and are gone from the state when they are out.

mod firing;
mod restore;

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::WindowTime;
use levada_common::time::Watermark;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::best::{Best, BestOf, Stamps};
use super::count;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::rows::{KeyedRowStore, Saving};
use crate::operators::window::{Split, Window, WindowClock, placed_part};
use firing::{Firing, Made};

/// The best rows of each key in windows of event time or of processing time.
///
/// Shape of the output: the input's columns but for those of a window, the place where one is asked for, `window_start`,
/// `window_end`, `window_time` (end − 1 ms); append. Windows fire in the order of their ends. By processing time no row is late:
/// each is kept with when it came in, or in which windows. Of windows that overlap a row is late when all of its own have fired.
pub(super) struct WindowTop {
    shape: Shape,
    best: Best,
    /// Rows out of the store on their way out of a window that fires: they pass by those that memory has.
    passing: Best,
    /// Rows that wait until those of their keys come in.
    waiting: Option<RecordBatch>,
    firing: Option<Firing>,
    made: Made,
    late: LateRows,
    saving: Saving,
    /// What is behind the rows, where something is.
    store: Option<KeyedRowStore>,
    clock: WindowClock,
    /// The watermark at which windows fire: that of event time begins anew with the sources' time.
    fires_at: i64,
    running: Option<(OperatorContext, HeapShare)>,
}

impl WindowTop {
    /// Contract: the shape has windows.
    pub(super) fn new(shape: Shape, time: &WindowTime, late: LateRows) -> Self {
        Self {
            best: Best::new(&shape),
            passing: Best::new(&shape),
            shape,
            waiting: None,
            firing: None,
            made: Made::default(),
            late,
            saving: Saving::default(),
            store: None,
            clock: WindowClock::new(time),
            fires_at: i64::MIN,
            running: None,
        }
    }

    /// The store and the rows in front of it.
    fn before_store(&mut self) -> Option<(&mut KeyedRowStore, BestOf<'_>)> {
        let Self { shape, best, store, .. } = self;
        Some((store.as_mut()?, BestOf { shape, best, sweep: None }))
    }

    /// The next window that fires.
    fn due(&self) -> Option<Window> {
        self.best.windows.first().filter(|window| window.has_fired(self.fires_at))
    }

    /// Cuts a batch by window.
    fn split(&self, batch: &RecordBatch) -> Result<Vec<(Window, Split)>, EngineError> {
        let source = self.shape.windows.as_ref().expect("it is in windows");
        source.split(batch).map_err(|reason| self.shape.invariant(reason))
    }

    /// Takes rows that wait in, as many as there is memory for with the best ones of their keys; whether there were any.
    fn take_waiting(&mut self) -> Result<bool, EngineError> {
        let Some(batch) = self.waiting.take() else { return Ok(false) };
        let (rows, watermark) = (batch.num_rows(), self.clock.watermark());
        let ready = self.load(&batch, watermark)?;
        self.waiting = (ready < rows).then(|| batch.slice(ready, rows - ready));
        let batch = if ready < rows { batch.slice(0, ready) } else { batch };
        let arrivals = self.best.arrive(batch.num_rows());
        for split in self.take_in(&batch, &arrivals, watermark)? {
            self.late.take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        Ok(true)
    }

    /// Brings in what only the store has of the keys of these rows, but for those that are late at this watermark: nothing is read for
    /// windows of which nothing left memory. Answers of how many of the first rows everything is there.
    fn load(&mut self, batch: &RecordBatch, watermark: i64) -> Result<usize, EngineError> {
        let all = batch.num_rows();
        if !self.best.windows.is_any_beyond() {
            return Ok(all);
        }
        let mut rows: Vec<(u32, Window)> = Vec::new();
        for (window, split) in self.split(batch)? {
            if self.best.windows.is_beyond(window) && !window.has_fired(watermark) {
                rows.extend(split.numbers(all).into_iter().map(|row| (row, window)));
            }
        }
        if rows.is_empty() {
            return Ok(all);
        }
        rows.sort_unstable_by_key(|(row, _)| *row);
        let places: UInt32Array = rows.iter().map(|(row, _)| *row).collect();
        let taken = |column: ArrayRef| take(&column, &places, None).map_err(|source| self.shape.kernel(source));
        let mut keys = self.shape.keys(batch.columns()).into_iter().map(taken).collect::<Result<Vec<_>, _>>()?;
        let times = |of: fn(&Window) -> i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|(_, window)| of(window))))
        };
        keys.extend([times(|window| window.start), times(|window| window.end)]);
        let ready = self.before_store().map_or(Ok(rows.len()), |(store, mut best)| store.load(&mut best, &keys, rows.len()))?;
        Ok(rows.get(ready).map_or(all, |(row, _)| *row as usize))
    }

    /// Takes rows that arrived under these numbers in, into their windows; answers which are late at this watermark.
    ///
    /// Contract: everything of their keys is in memory.
    fn take_in(&mut self, batch: &RecordBatch, arrivals: &ArrayRef, watermark: i64) -> Result<Vec<Split>, EngineError> {
        let mut late = Vec::new();
        for (window, split) in self.split(batch)? {
            if window.has_fired(watermark) {
                late.push(split);
                continue;
            }
            let columns = split.columns(batch.columns()).map_err(|source| self.shape.kernel(source))?;
            let arrivals = split.columns(std::slice::from_ref(arrivals)).map_err(|source| self.shape.kernel(source))?;
            let stamps = Stamps { arrivals: Arc::clone(&arrivals[0]), since: None };
            let keys = self.shape.keys_in(&columns, window, split.rows(batch.num_rows()));
            let candidates = self.best.candidates(&self.shape, &keys, &columns, &stamps)?;
            if let Some(store) = &mut self.store {
                store.note_used(&self.best.ids, self.best.keys());
                candidates.iter().for_each(|candidates| store.note_changed(&candidates.keys, self.best.keys()));
            }
            if let Some(candidates) = candidates {
                self.best.enter_all(&self.shape, window, candidates);
            }
        }
        Ok(late)
    }

    /// Gives back what rows that are gone held, and lets some go where memory is short.
    ///
    /// Contract: nothing is on its way out.
    fn tidy(&mut self) -> Result<(), EngineError> {
        self.best.tidy_over(&self.shape, self.store.as_mut())?;
        if let Some((store, mut best)) = self.before_store() {
            store.make_room(&mut best)?;
        }
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let remedy = "make the window shorter, or the limit smaller";
        count(&self.shape, &[&self.best, &self.passing], self.store.as_ref(), &mut self.running, remedy)
    }
}

impl Operator for WindowTop {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        self.restore(context, restored)?;
        self.late.open(context);
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.before_store().map_or(Ok(true), |(store, best)| store.is_ready(&best))
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (rows, late) = self.shape.taken(&batch, self.clock.now(), self.clock.watermark())?;
        if !late.is_empty() {
            let late = Split::Rows(UInt32Array::from(late));
            self.late.take(&batch, &late).map_err(|source| self.shape.kernel(source))?;
        }
        self.waiting = Some(rows).filter(|rows| rows.num_rows() > 0);
        self.take_waiting().map(drop)
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.running.as_ref().expect("an operator is opened first").0.batch_rows_max;
        loop {
            if let Some(batch) = self.next(rows_max)? {
                return Ok(Some(batch));
            }
            if self.firing.is_some() {
                self.make(rows_max)?;
                continue;
            }
            self.tidy()?;
            // What came goes into its windows before one of them fires.
            if !self.take_waiting()? && !self.begin()? {
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.poll())
    }

    fn has_output(&self) -> bool {
        self.firing.is_some() || self.waiting.is_some() || self.due().is_some() || self.late.has_some()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has fired stays fired.
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
            None => self.best.windows.first().map(|window| self.clock.shows_at(window.end)),
        })
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = match self.before_store() {
            Some((store, mut best)) => {
                let mut parts = store.snapshot(&mut best, checkpoint)?;
                parts.extend(placed_part(&self.shape.uid, self.shape.placed_by.clone()));
                parts
            }
            None => {
                let reader = self.saving.begin(checkpoint, &self.best.heap, None, &self.shape.pieces, &self.shape.saved);
                self.saving.advance();
                vec![StatePart { meta: self.shape.state.clone(), contents: reader.into() }]
            }
        };
        parts.extend(self.clock.parts(&self.shape.uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        match self.before_store() {
            Some((store, mut best)) => store.background(&mut best),
            None => Ok(self.saving.advance()),
        }
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        self.fires_at = i64::MAX;
        Ok(())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if let Some(store) = self.store.as_mut().filter(|_| !completed) {
            store.abandon(checkpoint);
        } else if !completed {
            self.saving.abandon(checkpoint);
        }
        Ok(())
    }
}
