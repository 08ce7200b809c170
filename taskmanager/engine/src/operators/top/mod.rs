//! The best rows of each key by an order: kept up to date as rows come (running top-N, and deduplication, which is the best one), or
//! given when their window fires.
//!
//! What a batch changes goes out key by key, once a batch. Must never know changelogs on its input.

mod best;
mod changes;
mod shape;
mod window;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, Int64Array, TimestampMillisecondArray};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{OperatorSpec, SideOutput, TopSpec};
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::late::LateRows;
use crate::operators::rows::{Saving, Sweep};
use best::{Best, Candidates};
use changes::Changes;
use shape::Shape;
use window::WindowTop;

/// The operator of this top-N.
///
/// Errors: `Invariant` where the plan names a column that there is not, or orders by one that has no order.
pub(super) fn build(spec: &OperatorSpec, top: &TopSpec) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Shape::new(spec, top)?;
    Ok(match shape.windows.is_some() {
        false => Box::new(Top::new(shape, top.ttl_ms)),
        true => Box::new(WindowTop::new(shape, LateRows::new(spec, SideOutput::LATE, &spec.input)?)),
    })
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
    /// Rows that have arrived.
    arrivals: i64,
    running: Option<(OperatorContext, HeapShare)>,
}

impl Top {
    fn new(shape: Shape, ttl_ms: Option<i64>) -> Self {
        let (best, sweep) = (Best::new(&shape), ttl_ms.map(Sweep::new));
        let (saving, changes) = (Saving::default(), Changes::default());
        Self { shape, best, sweep, saving, changes, arrivals: 0, running: None }
    }

    /// Lets the rows go whose time to live is over, of the next blocks in turn. Answers when to be called again.
    fn expire(&mut self, time_ms: i64) -> Option<i64> {
        let sweep = self.sweep.as_mut()?;
        let over = sweep.over(time_ms, &self.best.heap);
        over.into_iter().for_each(|row| self.best.remove(row));
        Some(sweep.next_tick())
    }

    /// Gives back what rows that are gone held.
    ///
    /// Contract: no change is on its way out.
    fn tidy(&mut self) -> Result<(), EngineError> {
        self.best.tidy(&self.shape)?;
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        count(&self.shape, &self.best, &mut self.running, "set a `ttl`")
    }
}

/// The numbers under which further rows arrive.
fn arrivals(so_far: &mut i64, rows: usize) -> ArrayRef {
    let arrivals = *so_far..*so_far + rows as i64;
    *so_far = arrivals.end;
    Arc::new(Int64Array::from_iter_values(arrivals))
}

/// Counts what is held.
///
/// Errors: `OverBudget` with this remedy.
fn count(
    shape: &Shape,
    best: &Best,
    running: &mut Option<(OperatorContext, HeapShare)>,
    remedy: &'static str,
) -> Result<(), EngineError> {
    let bytes = best.memory_bytes();
    let (context, share) = running.as_mut().expect("an operator is opened first");
    context.metrics.state_keys.store(best.heap.len() as u64, Ordering::Relaxed);
    context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
    charge(&shape.uid, share, &[(&shape.state.name, bytes)], remedy)
}

impl Operator for Top {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        for rows in self.shape.restored(context.key_groups, &restored)? {
            let saved = rows.stamps[0].as_primitive::<Int64Type>();
            self.arrivals = self.arrivals.max(saved.values().iter().max().map_or(0, |last| last + 1));
            let keys = self.shape.keys(&rows.columns);
            let candidates = self.best.candidates(&self.shape, &keys, &rows.columns, &rows.stamps)?;
            let Some(Candidates { keys, numbers, orders, .. }) = candidates else { continue };
            for (at, (key, number)) in keys.into_iter().zip(numbers).enumerate() {
                self.best.enter(&self.shape, key, number, orders.value(at));
            }
        }
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let now = self.sweep.as_ref().map(|sweep| vec![sweep.now_ms(); batch.num_rows()]);
        let now = now.map(|now| Arc::new(TimestampMillisecondArray::from(now)) as ArrayRef);
        let stamps: Vec<ArrayRef> = std::iter::once(arrivals(&mut self.arrivals, batch.num_rows())).chain(now).collect();
        let keys = self.shape.keys(batch.columns());
        let candidates = self.best.candidates(&self.shape, &keys, batch.columns(), &stamps)?;
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
            self.changes.rows.push(self.shape.rows(&batch, &kept)?);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        if let Some(rows) = self.changes.rows.pop(rows_max) {
            return Ok(Some(rows));
        }
        if let Some(batch) = self.changes.next(&self.shape, &self.best.heap, &self.best.lists, rows_max)? {
            return Ok(Some(batch));
        }
        self.tidy()?;
        Ok(None)
    }

    fn keeps_time(&self) -> bool {
        self.sweep.is_some()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        let next = self.expire(time_ms);
        self.tidy()?;
        Ok(next)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let reader = self.saving.begin(checkpoint, &self.best.heap, None, &self.shape.pieces, &self.shape.saved);
        self.saving.advance();
        Ok(vec![StatePart { meta: self.shape.state.clone(), contents: reader.into() }])
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.saving.advance())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.saving.abandon(checkpoint);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
