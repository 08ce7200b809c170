//! A sink that drops what it is given.

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};

/// Takes everything and keeps nothing.
pub struct BlackholeSink;

/// Makes a sink.
pub fn create(_spec: &SinkSpec) -> Result<Box<dyn Sink>, EngineError> {
    Ok(Box::new(BlackholeSink))
}

impl Sink for BlackholeSink {
    fn open(&mut self, _context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        Ok(())
    }

    fn write(&mut self, _batch: &RecordBatch) -> Result<(), EngineError> {
        Ok(())
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        Ok(Prepared::default())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}
