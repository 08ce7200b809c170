//! Gives each row to one of several outputs: to that of the first condition that is true for it, else to the main one.
//!
//! A condition is evaluated once a batch, over the rows that none before it has taken, so that it may rely on those being false.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::{filter_record_batch, not, prep_null_mask_filter};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{OperatorSpec, SplitBranch};
use levada_common::types::LogicalType;

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::BadRecords;

/// `split`.
struct Split {
    branches: Vec<Branch>,
    bad: BadRecords,
    main: Option<RecordBatch>,
    /// By side.
    sides: Vec<Option<RecordBatch>>,
}

/// One of its outputs.
struct Branch {
    /// `None` takes every row that is left.
    predicate: Option<[Arc<dyn Expression>; 1]>,
    /// Its place among the sides; `None` where nothing reads it.
    side: Option<usize>,
}

/// The split into `branches`.
///
/// Errors: `Invariant` where a condition does not compile.
pub(crate) fn build(
    spec: &OperatorSpec,
    branches: &[SplitBranch],
    compiler: &dyn ExpressionCompiler,
) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    let compile = |sql: &String| Ok([bad.compile(compiler, sql, &spec.input, &LogicalType::Boolean)?]);
    let branch = |branch: &SplitBranch| {
        let side = spec.sides.iter().position(|side| side.name == branch.output);
        Ok(Branch { predicate: branch.predicate.as_ref().map(compile).transpose()?, side })
    };
    let branches = branches.iter().map(branch).collect::<Result<_, EngineError>>()?;
    Ok(Box::new(Split { branches, bad, main: None, sides: vec![None; spec.sides.len()] }))
}

impl Split {
    /// The rows for which the mask is true (null is false), none where they are not wanted, and the others.
    fn cut(&self, batch: &RecordBatch, mask: &BooleanArray, is_wanted: bool) -> Result<[RecordBatch; 2], EngineError> {
        let taken = mask.true_count();
        if taken == 0 {
            return Ok([batch.slice(0, 0), batch.clone()]);
        }
        if taken == batch.num_rows() {
            return Ok([batch.clone(), batch.slice(0, 0)]);
        }
        let mask = if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
        let others = not(&mask).and_then(|others| filter_record_batch(batch, &others));
        let taken = if is_wanted { filter_record_batch(batch, &mask) } else { Ok(batch.slice(0, 0)) };
        let kernel = |source| self.bad.kernel(source);
        Ok([taken.map_err(kernel)?, others.map_err(kernel)?])
    }
}

impl Operator for Split {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.bad.open(&context.metrics);
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let mut rest = batch;
        for branch in &self.branches {
            if rest.num_rows() == 0 {
                break;
            }
            let [taken, others] = match &branch.predicate {
                None => [rest.clone(), rest.slice(0, 0)],
                Some(predicate) => {
                    let (good, columns) = self.bad.evaluate(rest, predicate)?;
                    self.cut(&good, columns[0].as_boolean(), branch.side.is_some())?
                }
            };
            if let Some(side) = branch.side {
                self.sides[side] = (taken.num_rows() > 0).then_some(taken);
            }
            rest = others;
        }
        self.main = (rest.num_rows() > 0).then_some(rest);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.main.take())
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        let mut sides = self.sides.iter_mut().enumerate();
        Ok(sides.find_map(|(side, rows)| Some((side, rows.take()?))))
    }

    fn has_output(&self) -> bool {
        self.main.is_some() || self.sides.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests;
