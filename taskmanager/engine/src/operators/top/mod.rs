//! The best rows of each key by an order: kept up to date as rows come (running top-N, and deduplication, which is the best one), or
//! given when their window fires. Without a key a local half in every instance leaves out what cannot be among the best.
//!
//! What a batch changes goes out key by key, once a batch. Must never know changelogs on its input.

mod best;
mod changes;
mod local;
mod shape;
mod window;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{OperatorSpec, SideOutput, TopSpec};
use levada_state::keyed::HeapShare;
use levada_state::row_codec::STAMP_UNKNOWN;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::late::LateRows;
use crate::operators::rows::{KeyedRowStore, Saving, Sweep};
use best::{Best, BestOf, Candidates, Stamps};
use changes::Changes;
use local::LocalTop;
use shape::Shape;
use window::WindowTop;

/// The operator of this top-N.
///
/// Errors: `Invariant` where the plan names a column that there is not, or orders by one that has no order.
pub(super) fn build(spec: &OperatorSpec, top: &TopSpec) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Shape::new(spec, top)?;
    if top.local {
        return Ok(Box::new(LocalTop::new(shape, top.is_by_clock())));
    }
    let Some(window) = &top.window else { return Ok(Box::new(Top::new(shape, top.ttl_ms))) };
    let late = LateRows::new(spec, SideOutput::LATE, &spec.input)?;
    Ok(Box::new(WindowTop::new(shape, &window.time().cloned().unwrap_or_default(), late)))
}

/// The best rows of each key, as rows come.
///
/// Shape of the output: `_op`, the input's columns, the place where one is asked for; append, without `_op`, where a row that is in
/// stays in. At most one change of a place (of a row, where there are no places) a key and batch.
struct Top {
    shape: Shape,
    best: Best,
    sweep: Option<Sweep>,
    saving: Saving,
    changes: Changes,
    /// Rows that wait until those of their keys come in.
    waiting: Option<RecordBatch>,
    /// What is behind the rows, where something is.
    store: Option<KeyedRowStore>,
    /// Its state was opened.
    is_before_store: bool,
    running: Option<(OperatorContext, HeapShare)>,
}

impl Top {
    fn new(shape: Shape, ttl_ms: Option<i64>) -> Self {
        let (best, sweep) = (Best::new(&shape), ttl_ms.map(Sweep::new));
        let (saving, changes) = (Saving::default(), Changes::default());
        Self { shape, best, sweep, saving, changes, waiting: None, store: None, is_before_store: false, running: None }
    }

    /// The store and the rows in front of it, once its state is open.
    fn before_store(&mut self) -> Option<(&mut KeyedRowStore, BestOf<'_>)> {
        let Self { shape, best, sweep, store, is_before_store, .. } = self;
        let store = store.as_mut().filter(|_| *is_before_store)?;
        Some((store, BestOf { shape, best, sweep: sweep.as_ref() }))
    }

    /// Opens the state of the store, if there is one and it is not open; `now_ms` where the time is known, since when what has no
    /// stamp stands.
    fn stand_before_store(&mut self, now_ms: Option<i64>) -> Result<(), EngineError> {
        if let Some(store) = self.store.as_mut().filter(|_| !self.is_before_store) {
            self.best.stand_before(store, &self.shape, now_ms.unwrap_or(STAMP_UNKNOWN))?;
            self.is_before_store = true;
        }
        Ok(())
    }

    /// Brings in the rows of these keys that only the store has; answers of how many of the first of them they are there.
    fn load(&mut self, keys: &[ArrayRef], rows: usize) -> Result<usize, EngineError> {
        self.before_store().map_or(Ok(rows), |(store, mut best)| store.load(&mut best, keys, rows))
    }

    /// Takes rows that wait in, as many as there is memory for with the best ones of their keys; whether there were any.
    fn take_waiting(&mut self) -> Result<bool, EngineError> {
        let Some(batch) = self.waiting.take() else { return Ok(false) };
        let keys = self.shape.keys(batch.columns());
        let (rows, ready) = (batch.num_rows(), self.load(&keys, batch.num_rows())?);
        self.waiting = (ready < rows).then(|| batch.slice(ready, rows - ready));
        self.take_in(&if ready < rows { batch.slice(0, ready) } else { batch })?;
        Ok(true)
    }

    /// Takes rows in, of whose keys everything is in memory.
    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let keys = self.shape.keys(batch.columns());
        let now = self.sweep.as_ref().map(|sweep| vec![sweep.now_ms(); batch.num_rows()]);
        let since = now.map(|now| Arc::new(TimestampMillisecondArray::from(now)) as ArrayRef);
        let stamps = Stamps { arrivals: self.best.arrive(batch.num_rows()), since };
        let candidates = self.best.candidates(&self.shape, &keys, batch.columns(), &stamps)?;
        self.note(candidates.as_ref());
        let Some(Candidates { rows, keys, numbers, orders }) = candidates else { return Ok(()) };
        let mut kept = Vec::new();
        for (at, (row, number)) in rows.into_iter().zip(numbers).enumerate() {
            if !self.shape.is_append {
                self.changes.touch(keys[at], number, &self.best.lists);
            }
            self.best.enter(&self.shape, keys[at], number, orders.value(at));
            if self.shape.is_append && self.best.heap.has(number) {
                kept.push(row);
            }
        }
        if !kept.is_empty() {
            self.changes.rows.push(self.shape.rows(batch, &kept)?);
        }
        Ok(())
    }

    /// Notes which keys are used, and which of them may change.
    fn note(&mut self, candidates: Option<&Candidates>) {
        if let Some(store) = &mut self.store {
            store.note_used(&self.best.ids, self.best.keys());
            candidates.iter().for_each(|candidates| store.note_changed(&candidates.keys, self.best.keys()));
        }
    }

    /// Lets the rows go whose time to live is over, of the next blocks in turn. Answers when to be called again.
    fn expire(&mut self, time_ms: i64) -> Option<i64> {
        let sweep = self.sweep.as_mut()?;
        let over = sweep.over(time_ms, &self.best.heap);
        over.into_iter().for_each(|row| self.best.expire(row));
        Some(sweep.next_tick())
    }

    /// Gives back what rows that are gone held, and lets some go where memory is short.
    ///
    /// Contract: no change is on its way out.
    fn tidy(&mut self) -> Result<(), EngineError> {
        self.best.tidy(&self.shape, self.store.as_mut())?;
        if let Some((store, mut best)) = self.before_store() {
            store.make_room(&mut best)?;
        }
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        count(&self.shape, &[&self.best], self.store.as_ref(), &mut self.running, "set a `ttl`")
    }
}

/// Counts what is held; what stands before a store has a share of memory of its own.
///
/// Errors: `OverBudget` with this remedy.
fn count(
    shape: &Shape,
    best: &[&Best],
    store: Option<&KeyedRowStore>,
    running: &mut Option<(OperatorContext, HeapShare)>,
    remedy: &'static str,
) -> Result<(), EngineError> {
    let bytes = best.iter().map(|best| best.memory_bytes()).sum::<usize>();
    let rows: usize = best.iter().map(|best| best.heap.len()).sum();
    let (context, share) = running.as_mut().expect("an operator is opened first");
    context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
    context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
    match store {
        Some(store) => context.metrics.set_store(store.metrics()),
        None => charge(&shape.uid, share, &[(&shape.state.name, bytes)], remedy)?,
    }
    Ok(())
}

impl Operator for Top {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        if let Some(stores) = &context.cold {
            self.store = Some(KeyedRowStore::open(&self.shape.uid, &self.shape.clause, stores, context.key_groups)?);
        }
        let restored = self.shape.restored(context.key_groups, restored)?;
        if !self.keeps_time() || !restored.is_empty() {
            self.stand_before_store(None)?;
        }
        for rows in restored {
            self.best.note_arrivals(&rows.stamps.arrivals);
            let keys = self.shape.keys(&rows.columns);
            while self.load(&keys, rows.stamps.arrivals.len())? < rows.stamps.arrivals.len() {}
            let candidates = self.best.candidates(&self.shape, &keys, &rows.columns, &rows.stamps)?;
            self.note(candidates.as_ref());
            let Some(Candidates { keys, numbers, orders, .. }) = candidates else { continue };
            for (at, (key, number)) in keys.into_iter().zip(numbers).enumerate() {
                self.best.enter(&self.shape, key, number, orders.value(at));
            }
        }
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.before_store().map_or(Ok(true), |(store, best)| store.is_ready(&best))
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.stand_before_store(None)?;
        self.waiting = Some(batch);
        self.take_waiting().map(|_| ())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        loop {
            if let Some(rows) = self.changes.rows.pop(rows_max) {
                return Ok(Some(rows));
            }
            if let Some(batch) = self.changes.next(&self.shape, &self.best.heap, &self.best.lists, rows_max)? {
                return Ok(Some(batch));
            }
            self.tidy()?;
            if !self.take_waiting()? {
                return Ok(None);
            }
        }
    }

    fn keeps_time(&self) -> bool {
        self.sweep.is_some()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.stand_before_store(Some(time_ms))?;
        let next = self.expire(time_ms);
        let until_ms = self.sweep.as_ref().and_then(Sweep::expired_until);
        if let (Some((store, mut best)), Some(until_ms)) = (self.before_store(), until_ms) {
            store.expire(&mut best, until_ms);
        }
        self.tidy()?;
        Ok(next)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        self.stand_before_store(None)?;
        if let Some((store, mut best)) = self.before_store() {
            return store.snapshot(&mut best, checkpoint);
        }
        let reader = self.saving.begin(checkpoint, &self.best.heap, None, &self.shape.pieces, &self.shape.saved);
        self.saving.advance();
        Ok(vec![StatePart { meta: self.shape.state.clone(), contents: reader.into() }])
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        if let Some((store, mut best)) = self.before_store() {
            return store.background(&mut best);
        }
        Ok(self.saving.advance())
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

#[cfg(test)]
mod tests;
