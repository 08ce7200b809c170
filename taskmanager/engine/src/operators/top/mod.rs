//! The best rows of each key by an order, kept up to date as rows come: running top-N, and deduplication, which is the best one.
//!
//! Each key has a list of its rows, the worst one first, so that a row that is no better than the worst of a full list is turned away
//! by one comparison. What a batch changes goes out key by key, once a batch. Must never know changelogs on its input.

mod changes;
mod shape;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{OperatorSpec, TopSpec};
use levada_state::key_index::KeyIndex;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::rows::{NO_ROW, RowHeap, RowLists, Saving, Sweep};
use changes::Changes;
use shape::Shape;

/// The operator of this top-N.
///
/// Errors: `Invariant` where the plan names a column that there is not, or orders by one that has no order.
pub(super) fn build(spec: &OperatorSpec, top: &TopSpec) -> Result<Box<dyn Operator>, EngineError> {
    Ok(Box::new(Top::new(Shape::new(spec, top)?, top.ttl_ms)))
}

/// The best rows of each key.
///
/// Shape of the output: `_op`, the input's columns, the place where one is asked for; append, without `_op`, where a row that is in
/// stays in. At most one change of a place (of a row, where there are no places) a key and batch.
struct Top {
    shape: Shape,
    index: KeyIndex,
    heap: RowHeap,
    /// Of each key its rows, the worst first.
    lists: RowLists,
    sweep: Option<Sweep>,
    saving: Saving,
    changes: Changes,
    /// Rows that have arrived.
    arrivals: i64,
    /// Keys that may have no row any more.
    emptied: Vec<u32>,
    ids: Vec<u32>,
    running: Option<(OperatorContext, HeapShare)>,
}

impl Top {
    fn new(shape: Shape, ttl_ms: Option<i64>) -> Self {
        let index = KeyIndex::new(&shape.key_types);
        let (heap, lists, saving) = (RowHeap::default(), RowLists::default(), Saving::default());
        let (sweep, changes) = (ttl_ms.map(Sweep::new), Changes::default());
        let (emptied, ids) = (Vec::new(), Vec::new());
        Self { shape, index, heap, lists, sweep, saving, changes, arrivals: 0, emptied, ids, running: None }
    }

    /// The keys of rows, made where they are new.
    fn intern(&mut self, keys: &[ArrayRef], rows: usize) {
        self.ids.clear();
        self.index.intern(keys, rows, &mut self.ids);
        self.index.drain_reused(&mut Vec::new());
        self.lists.resize(self.index.len(), self.heap.numbers());
    }

    /// What a row of the heap is ordered by.
    fn order_of(&self, row: u32) -> &[u8] {
        let (columns, place) = self.heap.at(row);
        columns[self.shape.order_place].as_binary::<i32>().value(place)
    }

    /// Whether a row would be among the key's best.
    fn may_enter(&self, key: u32, order: &[u8]) -> bool {
        self.lists.len(key) < self.shape.limit || order < self.order_of(self.lists.first(key))
    }

    /// Puts a row of the heap, of this order, among the key's best, or takes it out again.
    fn enter(&mut self, key: u32, row: u32, order: &[u8]) {
        if !self.may_enter(key, order) {
            return self.heap.remove(row);
        }
        let (mut behind, mut at) = (NO_ROW, self.lists.first(key));
        while at != NO_ROW && order < self.order_of(at) {
            (behind, at) = (at, self.lists.after(at));
        }
        self.lists.insert(key, behind, row);
        if self.lists.len(key) > self.shape.limit {
            let worst = self.lists.first(key);
            self.lists.remove(worst);
            self.heap.remove(worst);
        }
    }

    /// The numbers of rows that were put into the heap: what is kept of them, their order, when they arrived and since when they
    /// stand.
    fn push(&mut self, mut columns: Vec<ArrayRef>, orders: &BinaryArray, stamps: Vec<ArrayRef>) -> Result<Vec<u32>, ArrowError> {
        columns.push(Arc::new(orders.clone()));
        columns.extend(stamps);
        let mut numbers = Vec::with_capacity(orders.len());
        self.heap.push(&columns, &mut numbers)?;
        self.lists.resize(0, self.heap.numbers());
        Ok(numbers)
    }

    /// Lets the rows go whose time to live is over, of the next blocks in turn. Answers when to be called again.
    fn expire(&mut self, time_ms: i64) -> Option<i64> {
        let sweep = self.sweep.as_mut()?;
        let over = sweep.over(time_ms, &self.heap);
        let next = sweep.next_tick();
        for row in over {
            self.emptied.push(self.lists.key(row));
            self.lists.remove(row);
            self.heap.remove(row);
        }
        Some(next)
    }

    /// Gives back what rows that are gone held, and keys without rows.
    ///
    /// Contract: no change is on its way out.
    fn tidy(&mut self) -> Result<(), EngineError> {
        if let Some(moved) = self.heap.tidy().map_err(|source| self.shape.kernel(source))? {
            self.lists.resize(0, self.heap.numbers());
            moved.before.into_iter().zip(moved.now).for_each(|(before, now)| self.lists.renumber(before, now));
        }
        self.emptied.sort_unstable();
        self.emptied.dedup();
        for key in std::mem::take(&mut self.emptied) {
            if self.lists.len(key) == 0 {
                self.index.remove(key);
            }
        }
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let bytes = self.heap.memory_bytes() + self.lists.memory_bytes() + self.index.memory_bytes();
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(self.heap.len() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        charge(&self.shape.uid, share, &[(&self.shape.state.name, bytes)], "set a `ttl`")
    }
}

impl Operator for Top {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        for rows in self.shape.restored(context.key_groups, &restored)? {
            let arrivals = rows.stamps[0].as_primitive::<Int64Type>();
            self.arrivals = self.arrivals.max(arrivals.values().iter().max().map_or(0, |last| last + 1));
            let orders = self.shape.orders(&rows.columns, &rows.stamps[0])?;
            let (keys, count) = (self.shape.keys(&rows.columns), orders.len());
            let stored = self.shape.stored(&rows.columns);
            let numbers = self.push(stored, &orders, rows.stamps).map_err(|source| self.shape.kernel(source))?;
            self.intern(&keys, count);
            for (row, number) in numbers.into_iter().enumerate() {
                self.enter(self.ids[row], number, orders.value(row));
            }
        }
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let arrivals = self.arrivals..self.arrivals + batch.num_rows() as i64;
        self.arrivals = arrivals.end;
        let arrivals: ArrayRef = Arc::new(Int64Array::from_iter_values(arrivals));
        let orders = self.shape.orders(batch.columns(), &arrivals)?;
        self.intern(&self.shape.keys(batch.columns()), batch.num_rows());
        let ids = std::mem::take(&mut self.ids);
        let may_enter = |row: &u32| self.may_enter(ids[*row as usize], orders.value(*row as usize));
        let entering: Vec<u32> = (0..batch.num_rows() as u32).filter(may_enter).collect();
        if !entering.is_empty() {
            let places = UInt32Array::from(entering);
            let kernel = |source| self.shape.kernel(source);
            let taken = |column: &ArrayRef| take(column, &places, None).map_err(kernel);
            let stored = self.shape.stored(batch.columns()).iter().map(taken).collect::<Result<Vec<_>, _>>()?;
            let orders: ArrayRef = Arc::new(orders);
            let orders = take(&orders, &places, None).map_err(kernel)?;
            let orders = orders.as_binary::<i32>();
            let now = self.sweep.as_ref().map(|sweep| vec![sweep.now_ms(); places.len()]);
            let now = now.map(|now| Arc::new(TimestampMillisecondArray::from(now)) as ArrayRef);
            let stamps = std::iter::once(taken(&arrivals)?).chain(now).collect();
            let numbers = self.push(stored, orders, stamps).map_err(|source| self.shape.kernel(source))?;
            let mut kept = Vec::new();
            for (at, (row, number)) in places.values().iter().zip(numbers).enumerate() {
                let key = ids[*row as usize];
                if !self.shape.is_append {
                    self.changes.touch(key, number, &self.lists);
                }
                self.enter(key, number, orders.value(at));
                if self.shape.is_append && self.heap.has(number) {
                    kept.push(*row);
                }
            }
            if !kept.is_empty() {
                self.changes.rows = Some(self.shape.rows(&batch, &kept)?);
            }
        }
        self.ids = ids;
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        if let Some(rows) = self.changes.rows.take() {
            if rows.num_rows() <= rows_max {
                return Ok(Some(rows));
            }
            self.changes.rows = Some(rows.slice(rows_max, rows.num_rows() - rows_max));
            return Ok(Some(rows.slice(0, rows_max)));
        }
        if let Some(batch) = self.changes.next(&self.shape, &self.heap, &self.lists, rows_max)? {
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
        let reader = self.saving.begin(checkpoint, &self.heap, None, &self.shape.pieces, &self.shape.saved);
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
