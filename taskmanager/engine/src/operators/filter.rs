//! Keeps the rows for which a predicate is true; null is false.
//!
//! Of a full changelog either row of an update may pass alone: it is then the delete, or the insert, of its row.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::record_batch::RecordBatch;
use levada_common::plan::OperatorSpec;
use levada_common::types::LogicalType;

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::{BadRecords, Marked};
use crate::operators::updates::part_updates;

/// `where` and `having`.
struct Filter {
    predicate: [Arc<dyn Expression>; 1],
    parts_updates: bool,
    bad: BadRecords,
    pending: Option<RecordBatch>,
}

/// The filter of `predicate`.
///
/// Errors: `Invariant` where the predicate does not compile.
pub(crate) fn build(
    spec: &OperatorSpec,
    predicate: &str,
    parts_updates: bool,
    compiler: &dyn ExpressionCompiler,
) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    let compiled = bad.compile(compiler, predicate, &spec.input, &LogicalType::Boolean)?;
    Ok(Box::new(Filter { predicate: [compiled], parts_updates, bad, pending: None }))
}

impl Filter {
    /// Takes changes, one row of which may pass without the other.
    fn part(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        let Marked { columns, good, .. } = self.bad.evaluate_marked(batch.clone(), &self.predicate)?;
        let mask = of_all(columns[0].as_boolean(), good);
        if mask.true_count() > 0 {
            let passes = |row: usize| mask.is_valid(row) && mask.value(row);
            let parted = part_updates(&batch, |row| passes(row) && passes(row + 1));
            let kept = parted.and_then(|batch| filter_record_batch(&batch, &mask));
            self.pending = Some(kept.map_err(|error| self.bad.kernel(error))?);
        }
        Ok(())
    }
}

/// A mask of the good rows as one of all, of which the others do not pass.
fn of_all(mask: &BooleanArray, good: Option<Vec<bool>>) -> BooleanArray {
    let Some(good) = good else { return mask.clone() };
    let mut values = mask.iter();
    good.into_iter().map(|good| if good { values.next().flatten() } else { None }).collect()
}

impl Operator for Filter {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.bad.open(&context.metrics);
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        if self.parts_updates {
            return self.part(batch);
        }
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
