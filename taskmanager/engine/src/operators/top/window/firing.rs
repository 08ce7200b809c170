//! A window that fires: first what only the store has of it, a batch of its keys after the other and deleted on the way, so that a
//! window larger than memory never comes into it; then what memory has.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::compute::filter_record_batch;
use arrow::record_batch::RecordBatch;
use levada_state::cold::Scan;
use levada_state::key_index::ABSENT;

use super::super::best::Best;
use super::super::shape::{RestoredRows, Shape};
use super::WindowTop;
use crate::error::EngineError;
use crate::operators::rows::{NO_ROW, Part};
use crate::operators::window::Window;

/// The window, and what is read of it, where only the store has some.
pub(super) struct Firing {
    window: Window,
    reading: Option<Reading>,
}

/// What is read of the store.
struct Reading {
    scan: Scan,
    /// Keys of which all rows were read.
    keys: Vec<u32>,
    /// The key that was read last: more of its rows may follow.
    last: Option<u32>,
}

/// Rows on their way out, with their places.
#[derive(Default)]
pub(super) struct Made {
    window: Option<Window>,
    /// Whether they are out of the store.
    is_passing: bool,
    rows: Vec<u32>,
    places: Vec<i64>,
    out: usize,
}

impl Made {
    /// Appends the rows of a key, best first.
    fn push(&mut self, shape: &Shape, best: &Best, key: u32) {
        let start = self.rows.len();
        let mut at = best.lists.first(key);
        while at != NO_ROW {
            self.rows.push(at);
            at = best.lists.after(at);
        }
        self.rows[start..].reverse();
        for (place, row) in (start..self.rows.len()).enumerate() {
            let tie = shape.with_ties && place > 0 && best.are_equal(shape, self.rows[row], self.rows[row - 1]);
            self.places.push(if tie { self.places[row - 1] } else { place as i64 + 1 });
        }
    }
}

impl WindowTop {
    /// Begins with the next window that fires; whether there is one.
    pub(super) fn begin(&mut self) -> Result<bool, EngineError> {
        let Some(window) = self.due() else { return Ok(false) };
        let is_beyond = self.best.windows.forget_beyond(window);
        let scan = self.before_store().filter(|_| is_beyond).map(|(store, mut best)| store.visit(&mut best, window));
        let reading = scan.transpose()?.map(|scan| Reading { scan, keys: Vec::new(), last: None });
        self.firing = Some(Firing { window, reading });
        Ok(true)
    }

    /// Makes the next rows of the window that fires, about `rows_max`; at its end there is none that fires.
    pub(super) fn make(&mut self, rows_max: usize) -> Result<(), EngineError> {
        self.read()?;
        let Self { shape, best, passing, firing, made, .. } = self;
        let Some(Firing { window, reading }) = firing else { return Ok(()) };
        (made.window, made.is_passing) = (Some(*window), reading.is_some());
        while made.rows.len() < rows_max {
            let (from, key) = match reading {
                Some(reading) => (&*passing, reading.keys.pop()),
                None => {
                    let key = best.windows.pop(*window);
                    (&*best, key)
                }
            };
            let Some(key) = key else { break };
            made.push(shape, from, key);
        }
        if made.rows.is_empty() {
            self.firing = None;
        }
        self.count()
    }

    /// Reads on until all rows of a key were read, where something is read; behind the last of them nothing is.
    fn read(&mut self) -> Result<(), EngineError> {
        while let Some(Firing { window, reading: Some(reading) }) = &mut self.firing
            && reading.keys.is_empty()
        {
            let store = self.store.as_ref().expect("what is read is the store's");
            let (window, batch) = (*window, store.visited(&mut reading.scan)?);
            match batch {
                Some(batch) => self.pass(window, &batch)?,
                None => match reading.last.take() {
                    Some(last) => reading.keys.push(last),
                    None => self.firing = Some(Firing { window, reading: None }),
                },
            }
        }
        Ok(())
    }

    /// Takes rows of the store to those that pass by, and deletes them there, but for those of keys that memory has.
    fn pass(&mut self, window: Window, batch: &RecordBatch) -> Result<(), EngineError> {
        let batch = self.absent(window, batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if let Some((store, mut best)) = self.before_store() {
            store.delete(&mut best, &batch)?;
        }
        let RestoredRows { columns, stamps } = self.shape.columns(&batch).map_err(|reason| self.shape.invariant(reason))?;
        let keys = self.shape.keys_in(&columns, window, batch.num_rows());
        let candidates = self.passing.candidates(&self.shape, &keys, &columns, &stamps)?;
        if let Some(candidates) = candidates {
            self.passing.enter_all(&self.shape, window, candidates);
        }
        let Some(Firing { reading: Some(reading), .. }) = &mut self.firing else { return Ok(()) };
        // Rows of a key lie together, so all keys but the last are whole.
        reading.keys.extend(reading.last.take());
        reading.keys.extend(std::iter::from_fn(|| self.passing.windows.pop(window)));
        reading.last = self.passing.ids.last().copied();
        reading.keys.retain(|key| Some(*key) != reading.last);
        Ok(())
    }

    /// The rows of a batch of the store whose keys memory does not have.
    fn absent(&mut self, window: Window, batch: &RecordBatch) -> Result<RecordBatch, EngineError> {
        let rows = batch.num_rows();
        let columns = self.shape.columns(batch).map_err(|reason| self.shape.invariant(reason))?.columns;
        let mut ids = Vec::with_capacity(rows);
        self.best.find(&self.shape.keys_in(&columns, window, rows), rows, &mut ids);
        let absent: BooleanArray = ids.into_iter().map(|id| Some(id == ABSENT)).collect();
        match absent.has_false() {
            true => filter_record_batch(batch, &absent).map_err(|source| self.shape.kernel(source)),
            false => Ok(batch.clone()),
        }
    }

    /// The next rows that are made, at most `rows_max`.
    pub(super) fn next(&mut self, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let Self { shape, best, passing, made, .. } = self;
        let (start, end) = (made.out, made.rows.len().min(made.out + rows_max));
        let Some(window) = made.window.filter(|_| start < end) else { return Ok(None) };
        made.out = end;
        let from = if made.is_passing { passing } else { best };
        let places: ArrayRef = Arc::new(Int64Array::from(made.places[start..end].to_vec()));
        let batch = shape.of_window(window, &Part::in_heap(&from.heap, &made.rows[start..end]), places)?;
        if end == made.rows.len() {
            let Made { rows, is_passing, .. } = std::mem::take(made);
            rows.into_iter().for_each(|row| from.remove(row));
            from.tidy_over(shape, self.store.as_mut().filter(|_| !is_passing))?;
        }
        Ok(Some(batch))
    }
}
