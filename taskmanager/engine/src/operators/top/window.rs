//! The best rows of each key and window, given when the window fires.
//!
//! A key is one of a window: all windows share an index, a heap and lists, and each window knows its keys. In which window a row is
//! is not saved but computed again. Invariant: a window's rows go out best first, and are gone from the state when they are out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::best::{Best, Candidates, Stamps};
use super::count;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::event_time::{restored_watermark, watermark_part};
use crate::operators::late::LateRows;
use crate::operators::rows::{NO_ROW, Part, Saving};
use crate::operators::window::{Split, Window};

/// The best rows of each key in event-time windows.
///
/// Shape of the output: the input's columns but for those of a window, the place where one is asked for, `window_start`,
/// `window_end`, `window_time` (end − 1 ms); append. Windows fire in the order of their ends.
pub(super) struct WindowTop {
    shape: Shape,
    best: Best,
    /// The keys that have rows, of each open window.
    windows: BTreeMap<Window, Vec<u32>>,
    firing: VecDeque<(Window, Vec<u32>)>,
    /// Of the window that fires, and not out yet.
    made: Made,
    late: LateRows,
    saving: Saving,
    watermark: i64,
    running: Option<(OperatorContext, HeapShare)>,
}

/// Rows on their way out, with their places.
#[derive(Default)]
struct Made {
    window: Option<Window>,
    rows: Vec<u32>,
    places: Vec<i64>,
    out: usize,
}

impl WindowTop {
    /// Contract: the shape has windows.
    pub(super) fn new(shape: Shape, late: LateRows) -> Self {
        Self {
            best: Best::new(&shape),
            shape,
            windows: BTreeMap::new(),
            firing: VecDeque::new(),
            made: Made::default(),
            late,
            saving: Saving::default(),
            watermark: i64::MIN,
            running: None,
        }
    }

    /// Takes rows that arrived under these numbers into their windows; answers which are late.
    fn take_in(&mut self, batch: &RecordBatch, arrivals: &ArrayRef) -> Result<Vec<Split>, EngineError> {
        let source = self.shape.windows.as_ref().expect("it is in windows");
        let mut late = Vec::new();
        for (window, split) in source.split(batch).map_err(|reason| self.shape.invariant(reason))? {
            if window.has_fired(self.watermark) {
                late.push(split);
                continue;
            }
            let rows = split.rows(batch.num_rows());
            let columns = split.columns(batch.columns()).map_err(|source| self.shape.kernel(source))?;
            let arrivals = split.columns(std::slice::from_ref(arrivals)).map_err(|source| self.shape.kernel(source))?;
            let stamps = Stamps { arrivals: Arc::clone(&arrivals[0]), since: None };
            let (start, end) = window.columns(rows);
            let keys: Vec<ArrayRef> = self.shape.keys(&columns).into_iter().chain([start, end]).collect();
            let candidates = self.best.candidates(&self.shape, &keys, &columns, &stamps)?;
            let Some(Candidates { keys, numbers, orders, .. }) = candidates else { continue };
            let known = self.windows.entry(window).or_default();
            for (at, (key, number)) in keys.into_iter().zip(numbers).enumerate() {
                if self.best.lists.len(key) == 0 {
                    known.push(key);
                }
                self.best.enter(&self.shape, key, number, orders.value(at));
            }
        }
        Ok(late)
    }

    /// Makes at least `rows_max` rows of the window that fires, if it has so many; whether there are any.
    fn make(&mut self, rows_max: usize) -> bool {
        let Some((window, keys)) = self.firing.front_mut() else { return false };
        self.made.window = Some(*window);
        while self.made.rows.len() < rows_max
            && let Some(key) = keys.pop()
        {
            let start = self.made.rows.len();
            let mut at = self.best.lists.first(key);
            while at != NO_ROW {
                self.made.rows.push(at);
                at = self.best.lists.after(at);
            }
            self.made.rows[start..].reverse();
            for (place, row) in (start..self.made.rows.len()).enumerate() {
                let tie = self.shape.with_ties
                    && place > 0
                    && self.best.are_equal(&self.shape, self.made.rows[row], self.made.rows[row - 1]);
                self.made.places.push(if tie { self.made.places[row - 1] } else { place as i64 + 1 });
            }
        }
        if keys.is_empty() {
            self.firing.pop_front();
        }
        !self.made.rows.is_empty()
    }

    /// The next rows that are made, at most `rows_max`.
    fn next(&mut self, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let Made { window, rows, places, out } = &mut self.made;
        let (start, end) = (*out, rows.len().min(*out + rows_max));
        let Some(window) = window.filter(|_| start < end) else { return Ok(None) };
        *out = end;
        let places: ArrayRef = Arc::new(Int64Array::from(places[start..end].to_vec()));
        let batch = self.shape.of_window(window, &Part::in_heap(&self.best.heap, &rows[start..end]), places)?;
        if end == self.made.rows.len() {
            std::mem::take(&mut self.made).rows.into_iter().for_each(|row| self.best.remove(row));
            self.best.tidy(&self.shape, None)?;
        }
        Ok(Some(batch))
    }

    fn count(&mut self) -> Result<(), EngineError> {
        count(&self.shape, &self.best, None, &mut self.running, "make the window shorter, or the limit smaller")
    }
}

impl Operator for WindowTop {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let watermark = restored_watermark(&self.shape.uid, &mut restored)?;
        for rows in self.shape.restored(context.key_groups, &restored)? {
            self.best.note_arrivals(&rows.stamps.arrivals);
            let batch = self.shape.batch(rows.columns)?;
            self.take_in(&batch, &rows.stamps.arrivals)?;
        }
        self.watermark = watermark;
        self.late.open(context);
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let arrivals = self.best.arrive(batch.num_rows());
        for split in self.take_in(&batch, &arrivals)? {
            self.late.take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.best.tidy(&self.shape, None)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.running.as_ref().expect("an operator is opened first").0.batch_rows_max;
        loop {
            if let Some(batch) = self.next(rows_max)? {
                return Ok(Some(batch));
            }
            if !self.make(rows_max) && self.firing.is_empty() {
                self.count()?;
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.poll())
    }

    fn has_output(&self) -> bool {
        !self.firing.is_empty() || !self.made.rows.is_empty() || self.late.has_some()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has fired stays fired.
        self.watermark = self.watermark.max(watermark.0);
        while let Some(entry) = self.windows.first_entry().filter(|entry| entry.key().has_fired(watermark.0)) {
            self.firing.push_back(entry.remove_entry());
        }
        Ok(Some(watermark))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let reader = self.saving.begin(checkpoint, &self.best.heap, None, &self.shape.pieces, &self.shape.saved);
        self.saving.advance();
        let mut parts = vec![StatePart { meta: self.shape.state.clone(), contents: reader.into() }];
        parts.extend(watermark_part(&self.shape.uid, self.watermark));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.saving.advance())
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.advance(Watermark::MAX).map(|_| ())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.saving.abandon(checkpoint);
        }
        Ok(())
    }
}
