//! Marks the rows with which a value comes to be among those of its group, or ceases to be: what `distinct` is made of.
//!
//! `count(distinct x)` is then a count over the marks, in an aggregation that knows nothing of it. Keeps nothing of windows that are
//! over: their rows go on unmarked, and the aggregation drops and counts them.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::{DistinctSpec, OperatorSpec};
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use super::counted::Counted;
use super::over_changes::comes;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::window::WindowClock;

/// Marks values.
///
/// Shape of the output: as `DistinctSpec` has it; every row of the input goes on, in order.
struct Distinct {
    uid: Uid,
    output: SchemaRef,
    takes_changes: bool,
    columns: Vec<Counted>,
    clock: WindowClock,
    lateness_ms: i64,
    turned: Vec<u32>,
    pending: Option<RecordBatch>,
    context: Option<OperatorContext>,
}

/// The operator that marks the values of `distinct`.
///
/// Errors: `Invariant` where the plan names a column that there is not.
pub(in crate::operators) fn build(spec: &OperatorSpec, distinct: &DistinctSpec) -> Result<Box<dyn Operator>, EngineError> {
    let columns = distinct.counted().iter().map(|counted| Counted::new(spec, counted)).collect::<Result<_, _>>()?;
    Ok(Box::new(Distinct {
        uid: spec.uid.clone(),
        output: spec.output.to_arrow(),
        takes_changes: spec.input.changelog,
        columns,
        clock: WindowClock::new(&distinct.time),
        lateness_ms: distinct.lateness_ms,
        turned: Vec::new(),
        pending: None,
        context: None,
    }))
}

impl Distinct {
    /// The time up to which windows take no row in any more.
    fn closed(&self) -> i64 {
        self.clock.watermark().saturating_sub(self.lateness_ms)
    }

    /// Forgets the windows that are over.
    fn forget(&mut self) -> Result<(), EngineError> {
        let closed = self.closed();
        for column in &mut self.columns {
            column.forget_until(closed)?;
        }
        self.count()
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        self.columns.iter_mut().try_for_each(|column| column.count(context, 0))
    }
}

impl Operator for Distinct {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.clock.restore(&self.uid, context, &mut restored)?;
        for column in &mut self.columns {
            column.open(context, &mut restored)?;
        }
        self.context = Some(context.clone());
        self.forget()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        let mut is_ready = true;
        for column in &mut self.columns {
            is_ready &= column.is_ready()?;
        }
        Ok(is_ready)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let comes = self.takes_changes.then(|| comes(&batch)).flatten();
        let (closed, now) = (self.closed(), self.clock.now());
        let mut columns = batch.columns().to_vec();
        for column in &mut self.columns {
            column.turns((&batch, now), comes.as_deref(), |window| window.has_fired(closed), &mut self.turned)?;
            columns.push(marked(column.values(&batch), &self.turned));
            column.make_room()?;
        }
        let output = RecordBatch::try_new(Arc::clone(&self.output), columns);
        self.pending =
            Some(output.map_err(|error| EngineError::Invariant { uid: self.uid.clone(), message: error.to_string() })?);
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.take())
    }

    fn has_output(&self) -> bool {
        self.pending.is_some()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        if self.clock.advance(watermark) {
            self.forget()?;
        }
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    /// Windows are forgotten when the aggregation behind asks for the time to give their results.
    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        self.forget()?;
        Ok(None)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        self.columns.iter_mut().map(|column| column.snapshot(checkpoint)).collect()
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let mut remains = false;
        for column in &mut self.columns {
            remains |= column.background()?;
        }
        Ok(remains)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.columns.iter_mut().for_each(|column| column.abandon(checkpoint));
        }
        Ok(())
    }
}

/// The column with its values in these rows only.
fn marked(values: &ArrayRef, rows: &[u32]) -> ArrayRef {
    let mut others = vec![true; values.len()];
    rows.iter().for_each(|row| others[*row as usize] = false);
    nullif(values, &BooleanArray::from(others)).expect("a mask is as long as its column")
}
