//! Gives each row once for each of its windows, where windows overlap and what is computed of them cannot be made of slices.
//!
//! Windows that are over are left out; a row of which all are goes on in its last one, so that the aggregation counts it as late.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::plan::{AssignSpec, OperatorSpec};
use levada_common::time::Watermark;

use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::{Spread, WindowClock};

/// Assigns windows.
///
/// Shape of the output: as `AssignSpec` has it; a row's windows stand together, in the order of their ends.
struct Assign {
    uid: Uid,
    output: SchemaRef,
    spread: Spread,
    clock: WindowClock,
    lateness_ms: i64,
    pending: Pending,
    rows_max: usize,
}

/// The operator that assigns these windows.
///
/// Errors: `Invariant` where they do not overlap, or there is no event time.
pub(in crate::operators) fn build(spec: &OperatorSpec, assign: &AssignSpec) -> Result<Box<dyn Operator>, EngineError> {
    let broken = |message| EngineError::Invariant { uid: spec.uid.clone(), message };
    Ok(Box::new(Assign {
        uid: spec.uid.clone(),
        output: spec.output.to_arrow(),
        spread: Spread::new(&assign.window, &assign.time, &spec.input).map_err(broken)?,
        clock: WindowClock::new(&assign.time),
        lateness_ms: assign.lateness_ms,
        pending: Pending::default(),
        rows_max: usize::MAX,
    }))
}

impl Assign {
    fn invariant(&self, message: String) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message }
    }
}

impl Operator for Assign {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.uid, context, &mut restored)?;
        self.rows_max = context.batch_rows_max;
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (series, closed) = (self.spread.series(), self.clock.watermark().saturating_sub(self.lateness_ms));
        let spread = self.spread.rows(&batch, self.clock.now(), |slice, windows| {
            windows.extend(series.after(slice, closed));
            if windows.is_empty() {
                windows.push(series.last(slice));
            }
        });
        let columns = spread.and_then(|rows| rows.columns(&batch)).map_err(|reason| self.invariant(reason))?;
        let output = RecordBatch::try_new(Arc::clone(&self.output), columns);
        self.pending.push(output.map_err(|error| self.invariant(error.to_string()))?);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.pop(self.rows_max))
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.clock.advance(watermark);
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        Ok(None)
    }
}
