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

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::greatest_common_divisor;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use chunks::Chunks;

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
    running: Option<(OperatorContext, HeapShare)>,
}

impl Counts {
    pub(super) fn new(shape: Arc<Shape>, lengths: Lengths) -> Self {
        Self { chunks: Chunks::new(&shape, lengths), shape, running: None }
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let bytes = self.chunks.memory_bytes();
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(self.chunks.entries() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        charge(&self.shape.uid, share, &[(self.shape.state_name(), bytes)], self.shape.remedy)
    }
}

impl Operator for Counts {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.chunks.restore(&self.shape, context.key_groups, restored)?;
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.chunks.take(&self.shape, &batch)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let columns = self.chunks.next_windows(&self.shape, context.batch_rows_max)?;
        self.count()?;
        columns.map(|columns| self.shape.output(columns)).transpose()
    }

    fn has_output(&self) -> bool {
        self.chunks.has_windows()
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(if finished { Vec::new() } else { self.chunks.snapshot(&self.shape, checkpoint) })
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.chunks.save_next(&self.shape))
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.chunks.abandon(checkpoint);
        }
        Ok(())
    }
}
