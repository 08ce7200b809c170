//! Aggregates in windows of so many rows of a group: no time, only the order in which rows arrive. Those that do not overlap and tell
//! no values apart are `whole`.
//!
//! Rows are taken in once, into chunks of as many rows as size and slide have as their greatest common divisor; a window is its chunks,
//! merged when it is full. A batch is collapsed to parts of chunks first. What is left of a group at the end of the data fills no
//! window and is dropped. Must never know time.

mod chunks;
mod whole;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::greatest_common_divisor;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::rows::KeyedRowStore;
use chunks::{Chunks, ChunksOf};

pub(super) use whole::WholeCounts;

/// How many rows windows have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// Rows of a chunk.
    chunk_rows: u32,
    /// Chunks of a window.
    window_chunks: u32,
    /// Chunks from the start of one window to the start of the next, at most those of a window.
    slide_chunks: u32,
}

impl Lengths {
    /// Of windows of `size` rows, one after every `slide`, both at least 1.
    pub(super) fn new(size: u32, slide: u32) -> Self {
        let (size, slide) = (size.max(1), slide.max(1));
        // At most the size.
        let chunk_rows = greatest_common_divisor(size.into(), slide.into()) as u32;
        let window_chunks = size / chunk_rows;
        Self { chunk_rows, window_chunks, slide_chunks: (slide / chunk_rows).min(window_chunks) }
    }
}

/// An aggregation in windows of rows.
///
/// Shape of the output: keys, aggregates; append. The windows of a group come in order, each when its last row has arrived.
#[derive(Debug)]
pub(super) struct Counts {
    shape: Arc<Shape>,
    chunks: Chunks,
    /// Rows that wait until the chunks of their keys come in.
    waiting: Option<RecordBatch>,
    /// What is behind the chunks, where something is.
    store: Option<KeyedRowStore>,
    running: Option<(OperatorContext, HeapShare)>,
}

impl Counts {
    pub(super) fn new(shape: Arc<Shape>, lengths: Lengths) -> Self {
        Self { chunks: Chunks::new(&shape, lengths), shape, waiting: None, store: None, running: None }
    }

    /// Brings in the chunks of these keys that only the store has; answers of how many of the first of them they are there.
    fn load(&mut self, keys: &[ArrayRef], rows: usize) -> Result<usize, EngineError> {
        let Self { shape, chunks, store, .. } = self;
        store.as_mut().map_or(Ok(rows), |store| store.load(&mut ChunksOf { shape, chunks }, keys, rows))
    }

    /// Takes rows that wait in, as many as there is memory for with the chunks of their keys; whether there were any.
    fn take_waiting(&mut self) -> Result<bool, EngineError> {
        let Some(batch) = self.waiting.take() else { return Ok(false) };
        let (keys, rows) = (self.shape.keys(&batch), batch.num_rows());
        let ready = self.load(&keys, rows)?;
        self.waiting = (ready < rows).then(|| batch.slice(ready, rows - ready));
        let batch = if ready < rows { batch.slice(0, ready) } else { batch };
        self.chunks.take(&self.shape, &batch, self.store.as_mut())?;
        Ok(true)
    }

    /// Lets keys go where memory is short.
    ///
    /// Contract: no window is on its way out.
    fn make_room(&mut self) -> Result<(), EngineError> {
        let Self { shape, chunks, store, .. } = self;
        let Some(store) = store else { return Ok(()) };
        chunks.measure();
        store.make_room(&mut ChunksOf { shape, chunks })
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let bytes = self.chunks.memory_bytes();
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(self.chunks.entries() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        match &self.store {
            Some(store) => {
                context.metrics.set_store(store.metrics());
                Ok(())
            }
            None => charge(&self.shape.uid, share, &[(self.shape.state_name(), bytes)], self.shape.remedy),
        }
    }
}

impl Operator for Counts {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        if let Some(stores) = &context.cold {
            let mut store = KeyedRowStore::open(&self.shape.uid, self.shape.clause(), stores, context.key_groups)?;
            self.chunks.stand_before(&self.shape, &mut store)?;
            self.store = Some(store);
        }
        self.chunks.restore(&self.shape, context.key_groups, restored)?;
        if let Self { shape, chunks, store: Some(store), .. } = self {
            chunks.all_changed(store);
            let chunks = &mut ChunksOf { shape, chunks };
            store.settle(chunks)?;
            // A database of other windows is refused now, not when rows come.
            store.warm(chunks)?;
        }
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        let Self { shape, chunks, store, .. } = self;
        store.as_mut().map_or(Ok(true), |store| store.is_ready(&ChunksOf { shape, chunks }))
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.waiting = Some(batch);
        self.take_waiting()?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        loop {
            let columns = self.chunks.next_windows(&self.shape, rows_max, self.store.as_mut())?;
            if let Some(columns) = columns {
                self.count()?;
                return self.shape.output(columns).map(Some);
            }
            self.make_room()?;
            if !self.take_waiting()? {
                self.count()?;
                return Ok(None);
            }
        }
    }

    fn has_output(&self) -> bool {
        self.chunks.has_windows() || self.waiting.is_some()
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        let Self { shape, chunks, store, .. } = self;
        match store {
            _ if finished => Ok(Vec::new()),
            Some(store) => store.snapshot(&mut ChunksOf { shape, chunks }, checkpoint),
            None => Ok(chunks.snapshot(shape, checkpoint)),
        }
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let Self { shape, chunks, store, .. } = self;
        match store {
            Some(store) => Ok(store.background(&mut ChunksOf { shape, chunks })? | chunks.bury()),
            None => Ok(chunks.save_next(shape)),
        }
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        match &mut self.store {
            _ if completed => {}
            Some(store) => store.abandon(checkpoint),
            None => self.chunks.abandon(checkpoint),
        }
        Ok(())
    }
}
