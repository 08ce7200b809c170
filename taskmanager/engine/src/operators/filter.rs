//! Keeps the rows for which a predicate is true; null is false.
//!
//! Of a full changelog either row of an update may pass alone: what stood is then gone, or what comes is new, and so it is said. An
//! update whose rows are in two batches is parted in any case, which changes nothing but words.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int8Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int8Type;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::plan::OperatorSpec;
use levada_common::types::{LogicalType, RowKind};

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::BadRecords;

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
            let batch =
                if self.parts_updates { part_updates(batch, mask).map_err(|error| self.bad.kernel(error))? } else { batch };
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

/// A changelog in which each row of an update that passes without the other says so: `-U` is `-D`, and `+U` is `+I`.
fn part_updates(batch: RecordBatch, passes: &BooleanArray) -> Result<RecordBatch, ArrowError> {
    let ops = batch.column(0).as_primitive::<Int8Type>().values();
    let is = |row: usize, kind: RowKind| ops.get(row) == Some(&(kind as i8));
    let passes = |row: usize| passes.is_valid(row) && passes.value(row);
    let parted = |row: usize| {
        if is(row, RowKind::UpdateBefore) && !(is(row + 1, RowKind::UpdateAfter) && passes(row + 1)) {
            return RowKind::Delete as i8;
        }
        let before = row.wrapping_sub(1);
        if is(row, RowKind::UpdateAfter) && !(is(before, RowKind::UpdateBefore) && passes(before)) {
            return RowKind::Insert as i8;
        }
        ops[row]
    };
    let parted: ArrayRef = Arc::new(Int8Array::from_iter_values((0..ops.len()).map(parted)));
    let columns = std::iter::once(parted).chain(batch.columns()[1..].iter().cloned());
    RecordBatch::try_new(batch.schema(), columns.collect())
}

#[cfg(test)]
mod tests;
