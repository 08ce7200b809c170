//! The regular join: a row meets every row of its key that stands on the other side, whenever that came.
//!
//! It takes rows or changes and gives changes (rows, where nothing can be taken back). A batch is put into its side's heap and then
//! gone through change by change; what each sets off goes out through a cursor over the other side's rows of the key.

mod changes;
mod emission;
mod side;
mod sides;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int8Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::JoinSide;
use levada_common::types::RowKind;
use levada_state::keyed::HeapShare;
use levada_state::row_codec::STAMP_UNKNOWN;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use super::state;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::rows::{KeyedRowStore, NO_ROW, Part};
use crate::operators::waiting::{self, RestoredRows};
use changes::Changes;
use emission::Emission;
use side::Standing;
use sides::Sides;

/// A join of the rows that stand.
///
/// Shape of the output: as planned, `_op` first on a changelog. A change of a row gives a change for each row of its key on the other
/// side. A null-padded row is taken back when the first row of the other side comes, and comes again when the last one goes. Rows
/// whose time to live is over are forgotten without a word.
pub(super) struct RegularJoin {
    shape: Arc<Shape>,
    rows: Sides,
    /// Rows of an input that wait until those of their keys come in.
    waiting: Option<(usize, RecordBatch)>,
    changes: Option<Changes>,
    emission: Emission,
    /// What is behind the rows, where something is.
    store: Option<KeyedRowStore>,
    /// Its states were opened.
    is_before_store: bool,
    running: Option<(OperatorContext, HeapShare)>,
}

impl RegularJoin {
    pub(super) fn new(shape: Arc<Shape>, ttl_ms: Option<i64>) -> Self {
        let (rows, emission) = (Sides::new(&shape, ttl_ms), Emission::default());
        Self { shape, rows, waiting: None, changes: None, emission, store: None, is_before_store: false, running: None }
    }

    /// Opens the states of the store, if there is one and they are not open; `now_ms` where the time is known, since when what has no
    /// stamp stands.
    fn stand_before_store(&mut self, now_ms: Option<i64>) -> Result<(), EngineError> {
        let Some(store) = self.store.as_mut().filter(|_| !self.is_before_store) else { return Ok(()) };
        for (standing, side) in self.rows.sides.iter_mut().zip(&self.shape.sides) {
            standing.stand_before(store, side, now_ms.unwrap_or(STAMP_UNKNOWN))?;
        }
        self.is_before_store = true;
        Ok(())
    }

    /// Brings in the rows of these keys that only the store has; answers of how many of the first of them they are there.
    fn load(&mut self, keys: &[ArrayRef], rows: usize) -> Result<usize, EngineError> {
        self.store.as_mut().map_or(Ok(rows), |store| store.load(&mut self.rows, keys, rows))
    }

    /// Takes rows that wait in, as many as there is memory for with what stands of their keys; whether there were any.
    fn take_waiting(&mut self) -> Result<bool, EngineError> {
        let Some((input, batch)) = self.waiting.take() else { return Ok(false) };
        let side = &self.shape.sides[input];
        let (_, columns) = side.split(&batch);
        let keys = side.keys(&columns);
        let (rows, ready) = (batch.num_rows(), self.load(&keys, batch.num_rows())?);
        self.waiting = (ready < rows).then(|| (input, batch.slice(ready, rows - ready)));
        self.take_in(input, if ready < rows { batch.slice(0, ready) } else { batch })?;
        Ok(true)
    }

    /// The keys of rows that change them.
    fn intern(&mut self, columns: &[ArrayRef], rows: usize) -> Vec<u32> {
        let keys = self.rows.intern(columns, rows);
        if let Some(store) = &mut self.store {
            store.note_used(&keys, self.rows.keys());
            store.note_changed(&keys, self.rows.keys());
        }
        keys
    }

    /// Puts rows, of whose keys everything is in memory, into the heap of their side; what they change comes next.
    fn take_in(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
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
        let own = &mut self.rows.sides[input];
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

    /// Applies the next change and queues what it sets off; whether there was one.
    fn change(&mut self) -> bool {
        let Some(changes) = &mut self.changes else { return false };
        let (side, own) = (changes.side, changes.side as usize);
        let sides = &mut self.rows.sides;
        let Some(change) = changes.next(&mut sides[own]) else { return false };
        let first = if change.meets { sides[1 - own].lists.first(change.key) } else { NO_ROW };
        self.emission.queue(self.shape.kind, side, &change, first, &mut sides[own]);
        true
    }

    /// Gives back what rows that are gone held, and keys without rows; lets some go where memory is short.
    fn tidy(&mut self) -> Result<(), EngineError> {
        self.rows.tidy(self.store.as_mut())?;
        if let Some(store) = self.store.as_mut().filter(|_| self.is_before_store) {
            store.make_room(&mut self.rows)?;
        }
        self.count()
    }

    /// Counts what is held; what stands before a store has a share of memory of its own.
    fn count(&mut self) -> Result<(), EngineError> {
        let (bytes, rows) = (self.rows.bytes(), self.rows.rows());
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store((bytes[0] + bytes[1]) as u64, Ordering::Relaxed);
        match &self.store {
            Some(store) => context.metrics.set_store(store.metrics()),
            None => state::charge(&self.shape, share, bytes)?,
        }
        Ok(())
    }

    /// Puts restored rows back.
    fn restore(&mut self, restored: Vec<RestoredRows>) -> Result<(), EngineError> {
        if !restored.is_empty() {
            self.stand_before_store(None)?;
        }
        for RestoredRows { side: at, batch, since, marks, .. } in restored {
            let (shape, rows) = (Arc::clone(&self.shape), batch.num_rows());
            let side = &shape.sides[at];
            let (key_columns, unique_columns) = (side.keys(batch.columns()), side.unique_keys(batch.columns()));
            while self.load(&key_columns, rows)? < rows {}
            let (mut numbers, mut uniques) = (Vec::new(), Vec::new());
            let own = &mut self.rows.sides[at];
            own.restore(batch.columns().to_vec(), since, &mut numbers).map_err(|source| shape.kernel(source))?;
            if let Some(columns) = unique_columns {
                own.uniques(&columns, rows, &mut uniques);
            }
            let keys = self.intern(&key_columns, rows);
            self.rows.sides[at].stand_all(&keys, &uniques, &numbers, marks.as_ref());
        }
        Ok(())
    }
}

impl Operator for RegularJoin {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.shape);
        if let Some(stores) = &context.cold {
            self.store = Some(KeyedRowStore::open(&shape.uid, &shape.clause, stores, context.key_groups)?);
        }
        if !self.keeps_time() {
            self.stand_before_store(None)?;
        }
        self.restore(waiting::read(&shape.uid, &shape.sides, context.key_groups, restored)?)?;
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.store.as_mut().map_or(Ok(true), |store| store.is_ready(&self.rows))
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.stand_before_store(None)?;
        self.waiting = Some((input, batch));
        self.take_waiting().map(|_| ())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        loop {
            self.emission.fill(&mut self.rows.sides, rows_max);
            if self.emission.ops.len() == rows_max {
                break;
            }
            if self.change() || !self.emission.is_idle() {
                continue;
            }
            if !self.emission.ops.is_empty() {
                break;
            }
            // Nothing refers to rows any more.
            if self.changes.take().is_some() {
                self.tidy()?;
            }
            if !self.take_waiting()? {
                return Ok(None);
            }
        }
        let [left, right] = [0, 1].map(|side: usize| Part::in_heap(&self.rows.sides[side].heap, &self.emission.rows[side]));
        let batch = self.shape.changes(&self.emission.ops, [&left, &right])?;
        self.emission.clear();
        Ok(Some(batch))
    }

    fn keeps_time(&self) -> bool {
        self.rows.sides.iter().any(Standing::expires)
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.stand_before_store(Some(time_ms))?;
        let [left, right] = &mut self.rows.sides;
        let next = [left.expire(time_ms), right.expire(time_ms)].into_iter().flatten().min();
        if let (Some(store), Some(until_ms)) = (&mut self.store, self.rows.sides[0].expired_until()) {
            store.expire(&mut self.rows, until_ms);
        }
        self.tidy()?;
        Ok(next)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        self.stand_before_store(None)?;
        if let Some(store) = &mut self.store {
            return store.snapshot(&mut self.rows, checkpoint);
        }
        let sides = self.rows.sides.iter_mut().zip(&self.shape.sides);
        Ok(sides.map(|(standing, side)| standing.snapshot(checkpoint, side)).collect())
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        if let Some(store) = self.store.as_mut().filter(|_| self.is_before_store) {
            return store.background(&mut self.rows);
        }
        let [left, right] = &mut self.rows.sides;
        Ok(left.save_next() | right.save_next())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if let Some(store) = self.store.as_mut().filter(|_| !completed) {
            store.abandon(checkpoint);
        } else if !completed {
            self.rows.sides.iter_mut().for_each(|side| side.abandon(checkpoint));
        }
        Ok(())
    }
}
