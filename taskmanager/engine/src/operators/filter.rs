//! Keeps the rows for which a predicate is true; null is false.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::filter_record_batch;
use arrow::record_batch::RecordBatch;
use levada_common::plan::OperatorSpec;
use levada_common::types::LogicalType;

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::BadRecords;

/// `where` and `having`.
struct Filter {
    predicate: [Arc<dyn Expression>; 1],
    bad: BadRecords,
    pending: Option<RecordBatch>,
}

/// The filter of `predicate`.
///
/// Errors: `Invariant` where the predicate does not compile.
pub(crate) fn build(
    spec: &OperatorSpec,
    predicate: &str,
    compiler: &dyn ExpressionCompiler,
) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    let compiled = compiler
        .compile(predicate, &spec.input, &LogicalType::Boolean)
        .map_err(|reason| bad.broken(format!("\"{predicate}\" does not compile: {reason}")))?;
    Ok(Box::new(Filter { predicate: [compiled], bad, pending: None }))
}

impl Operator for Filter {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.bad.open(&context.metrics);
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (batch, columns) = self.bad.evaluate(batch, &self.predicate)?;
        let mask = columns[0].as_boolean();
        let kept = mask.true_count();
        if kept == batch.num_rows() {
            self.pending = Some(batch);
        } else if kept > 0 {
            self.pending = Some(filter_record_batch(&batch, mask).map_err(|error| self.bad.kernel(error))?);
        }
        self.pending.take_if(|batch| batch.num_rows() == 0);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.take())
    }

    fn has_output(&self) -> bool {
        self.pending.is_some()
    }
}

#[cfg(test)]
mod tests;
