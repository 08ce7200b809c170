//! The regular join: a row meets every row of its key that stands on the other side, whenever that came.
//!
//! It takes rows or changes and gives changes (rows, where nothing can be taken back). A batch is put into its side's heap and then
//! gone through change by change; what each sets off goes out through a cursor over the other side's rows of the key.

mod changes;
mod emission;
mod side;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int8Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::JoinSide;
use levada_common::types::RowKind;
use levada_state::key_index::KeyIndex;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use super::state;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::rows::{NO_ROW, Part};
use crate::operators::waiting::{self, Restored, RestoredRows};
use changes::Changes;
use emission::Emission;
use side::Standing;

/// A join of the rows that stand.
///
/// Shape of the output: as planned, `_op` first on a changelog. A change of a row gives a change for each row of its key on the other
/// side. A null-padded row is taken back when the first row of the other side comes, and comes again when the last one goes. Rows
/// whose time to live is over are forgotten without a word.
pub(super) struct RegularJoin {
    shape: Arc<Shape>,
    /// The keys of both sides.
    index: KeyIndex,
    sides: [Standing; 2],
    changes: Option<Changes>,
    emission: Emission,
    running: Option<(OperatorContext, HeapShare)>,
}

impl RegularJoin {
    pub(super) fn new(shape: Arc<Shape>, ttl_ms: Option<i64>) -> Self {
        let index = KeyIndex::new(&shape.sides[0].key_types);
        let sides = [0, 1].map(|side: usize| Standing::new(&shape.sides[side], ttl_ms));
        Self { shape, index, sides, changes: None, emission: Emission::default(), running: None }
    }

    /// The keys of rows, made where they are new; `columns` are those of the keys.
    fn intern(&mut self, columns: &[ArrayRef], rows: usize) -> Vec<u32> {
        let mut keys = Vec::with_capacity(rows);
        self.index.intern(columns, rows, &mut keys);
        self.index.drain_reused(&mut Vec::new());
        for side in &mut self.sides {
            side.lists.resize(self.index.len(), side.heap.numbers());
        }
        keys
    }

    /// Applies the next change and queues what it sets off; whether there was one.
    fn change(&mut self) -> bool {
        let Some(changes) = &mut self.changes else { return false };
        let (side, own) = (changes.side, changes.side as usize);
        let Some(change) = changes.next(&mut self.sides[own]) else { return false };
        let first = if change.meets { self.sides[1 - own].lists.first(change.key) } else { NO_ROW };
        self.emission.queue(self.shape.kind, side, &change, first, &mut self.sides[own].alone);
        true
    }

    /// Gives back what rows that are gone held, and keys without rows.
    fn tidy(&mut self) -> Result<(), EngineError> {
        let mut emptied = Vec::new();
        for side in &mut self.sides {
            side.tidy().map_err(|source| self.shape.kernel(source))?;
            emptied.append(&mut side.take_emptied());
        }
        emptied.sort_unstable();
        emptied.dedup();
        for key in emptied {
            if self.sides.iter().all(|side| side.lists.len(key) == 0) {
                self.index.remove(key);
            }
        }
        self.count()
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let bytes = [0, 1].map(|side: usize| self.sides[side].memory_bytes() + self.index.memory_bytes() / 2);
        let rows: usize = self.sides.iter().map(|side| side.heap.len()).sum();
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store((bytes[0] + bytes[1]) as u64, Ordering::Relaxed);
        state::charge(&self.shape, share, bytes)
    }

    /// Puts restored rows back.
    fn restore(&mut self, restored: Restored) -> Result<(), EngineError> {
        for RestoredRows { side: at, batch, since, marks, .. } in restored.rows {
            let side = &self.shape.sides[at];
            let (keys, uniques) = (side.keys(batch.columns()), side.unique_keys(batch.columns()));
            let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(since).collect();
            let (mut numbers, mut unique_ids) = (Vec::new(), Vec::new());
            self.sides[at].restore(&columns, &mut numbers).map_err(|source| self.shape.kernel(source))?;
            if let Some(uniques) = uniques {
                self.sides[at].uniques(&uniques, batch.num_rows(), &mut unique_ids);
            }
            let keys = self.intern(&keys, batch.num_rows());
            for (row, number) in numbers.into_iter().enumerate() {
                let unique = unique_ids.get(row).copied();
                self.sides[at].stand(keys[row], true, unique, NO_ROW, number);
                if marks.as_ref().is_some_and(|marks| marks.value(row)) {
                    self.sides[at].alone.set(number);
                }
            }
        }
        Ok(())
    }
}

impl Operator for RegularJoin {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.shape);
        self.restore(waiting::read(&shape.uid, &shape.sides, context.key_groups, restored)?)?;
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.shape);
        let (side, rows) = (&shape.sides[input], batch.num_rows());
        let (ops, columns) = side.split(&batch);
        let ops = ops.map(|ops| ops.as_primitive::<Int8Type>().values().to_vec());
        let key_columns = side.keys(&columns);
        let mut meets: Option<Vec<bool>> = None;
        for nulls in key_columns.iter().filter(|key| key.null_count() > 0).filter_map(|key| key.nulls()) {
            let meets = meets.get_or_insert_with(|| vec![true; rows]);
            meets.iter_mut().zip(nulls).for_each(|(meets, valid)| *meets &= valid);
        }
        // Only rows that come are kept; of those that go, the one that stands is known.
        let comes = |op: &i8| *op == RowKind::Insert as i8 || *op == RowKind::UpdateAfter as i8;
        let coming: Option<Vec<u32>> = ops
            .as_ref()
            .filter(|ops| !ops.iter().all(comes))
            .map(|ops| ops.iter().enumerate().filter(|(_, op)| comes(op)).map(|(row, _)| row as u32).collect());
        let mut numbers = Vec::with_capacity(rows);
        let own = &mut self.sides[input];
        match coming {
            None => own.push(columns.clone(), &mut numbers).map_err(|source| shape.kernel(source))?,
            Some(coming) => {
                let (places, mut pushed) = (UInt32Array::from(coming), Vec::new());
                if !places.is_empty() {
                    let taken = columns.iter().map(|column| take(column, &places, None)).collect::<Result<Vec<_>, _>>();
                    own.push(taken.map_err(|source| shape.kernel(source))?, &mut pushed)
                        .map_err(|source| shape.kernel(source))?;
                }
                numbers.resize(rows, NO_ROW);
                places.values().iter().zip(pushed).for_each(|(row, number)| numbers[*row as usize] = number);
            }
        }
        let mut uniques = Vec::new();
        if let Some(unique) = side.unique_keys(&columns) {
            own.uniques(&unique, rows, &mut uniques);
        }
        let keys = self.intern(&key_columns, rows);
        let side = JoinSide::ALL[input];
        self.changes = Some(Changes { side, ops, keys, meets, uniques, numbers, next: 0 });
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        loop {
            self.emission.fill(&mut self.sides, rows_max);
            if self.emission.ops.len() == rows_max || !self.change() && self.emission.is_idle() {
                break;
            }
        }
        if !self.emission.ops.is_empty() {
            let [left, right] = [0, 1].map(|side: usize| Part::in_heap(&self.sides[side].heap, &self.emission.rows[side]));
            let batch = self.shape.changes(&self.emission.ops, [&left, &right])?;
            self.emission.clear();
            return Ok(Some(batch));
        }
        if self.changes.take().is_some() {
            self.tidy()?;
        }
        Ok(None)
    }

    fn keeps_time(&self) -> bool {
        self.sides.iter().any(Standing::expires)
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        let [left, right] = &mut self.sides;
        let next = [left.expire(time_ms), right.expire(time_ms)].into_iter().flatten().min();
        self.tidy()?;
        Ok(next)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let sides = self.sides.iter_mut().zip(&self.shape.sides);
        Ok(sides.map(|(standing, side)| standing.snapshot(checkpoint, side)).collect())
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let [left, right] = &mut self.sides;
        Ok(left.save_next() | right.save_next())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.sides.iter_mut().for_each(|side| side.abandon(checkpoint));
        }
        Ok(())
    }
}
