//! Gives each row to one of several outputs: to that of the first condition that is true for it, else to the main one.
//!
//! A condition is evaluated once a batch, over the rows that none before it has taken, so that it may rely on those being false. Of a
//! full changelog the two rows of an update may go to different outputs: they are then a delete in one and an insert in the other.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::{filter_record_batch, not, prep_null_mask_filter};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{OperatorSpec, SplitBranch};
use levada_common::types::LogicalType;

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::{BadRecords, Marked};
use crate::operators::updates::part_updates;

/// Where a row goes that no condition could be computed of.
const NOWHERE: u32 = u32::MAX;

/// `split`.
struct Split {
    branches: Vec<Branch>,
    parts_updates: bool,
    bad: BadRecords,
    /// Of each row of the batch: the branch that takes it, or, behind the last one, the main output.
    places: Vec<u32>,
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

/// The split into `branches`; `parts_updates`: the two rows of an update may go to different ones.
///
/// Errors: `Invariant` where a condition does not compile.
pub(crate) fn build(
    spec: &OperatorSpec,
    branches: &[SplitBranch],
    parts_updates: bool,
    compiler: &dyn ExpressionCompiler,
) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    let compile = |sql: &String| Ok([bad.compile(compiler, sql, &spec.input, &LogicalType::Boolean)?]);
    let branch = |branch: &SplitBranch| {
        let side = spec.sides.iter().position(|side| side.name == branch.output);
        Ok(Branch { predicate: branch.predicate.as_ref().map(compile).transpose()?, side })
    };
    let branches = branches.iter().map(branch).collect::<Result<_, EngineError>>()?;
    Ok(Box::new(Split { branches, parts_updates, bad, places: Vec::new(), main: None, sides: vec![None; spec.sides.len()] }))
}

impl Split {
    /// Finds where each row goes.
    fn place(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let main = self.branches.len() as u32;
        self.places.clear();
        self.places.resize(batch.num_rows(), main);
        // What no branch has taken, and where it stands in the batch.
        let (mut rest, mut rows) = (batch.clone(), (0..batch.num_rows() as u32).collect::<Vec<_>>());
        for (at, branch) in self.branches.iter().enumerate() {
            if rest.num_rows() == 0 {
                break;
            }
            let Some(predicate) = &branch.predicate else {
                rows.iter().for_each(|row| self.places[*row as usize] = at as u32);
                break;
            };
            let Marked { rows: good, columns, good: marks } = self.bad.evaluate_marked(rest, predicate)?;
            if let Some(marks) = marks {
                let mut marks = marks.into_iter();
                rows.retain(|row| {
                    let is_good = marks.next() == Some(true);
                    if !is_good {
                        self.places[*row as usize] = NOWHERE;
                    }
                    is_good
                });
            }
            let mask = columns[0].as_boolean();
            let mask = if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
            let mut taken = mask.values().iter();
            rows.retain(|row| {
                let is_taken = taken.next() == Some(true);
                if is_taken {
                    self.places[*row as usize] = at as u32;
                }
                !is_taken
            });
            rest = match rows.len() {
                0 => good.slice(0, 0),
                left if left == good.num_rows() => good,
                // The last condition leaves rows to no other.
                _ if at + 1 == self.branches.len() => break,
                _ => not(&mask).and_then(|others| filter_record_batch(&good, &others)).map_err(|error| self.bad.kernel(error))?,
            };
        }
        Ok(())
    }

    /// The rows that go to this place; `None` where there are none.
    fn rows(&self, batch: &RecordBatch, place: u32) -> Result<Option<RecordBatch>, EngineError> {
        let mask: BooleanArray = self.places.iter().map(|at| Some(*at == place)).collect();
        match mask.true_count() {
            0 => Ok(None),
            rows if rows == batch.num_rows() => Ok(Some(batch.clone())),
            _ => filter_record_batch(batch, &mask).map(Some).map_err(|error| self.bad.kernel(error)),
        }
    }
}

impl Operator for Split {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.bad.open(&context.metrics);
        Ok(())
    }

    fn process(&mut self, _input: usize, mut batch: RecordBatch) -> Result<(), EngineError> {
        self.place(&batch)?;
        if self.parts_updates {
            let parted = part_updates(&batch, |row| self.places[row] == self.places[row + 1]);
            batch = parted.map_err(|error| self.bad.kernel(error))?;
        }
        for (at, branch) in self.branches.iter().enumerate() {
            if let Some(side) = branch.side {
                self.sides[side] = self.rows(&batch, at as u32)?;
            }
        }
        self.main = self.rows(&batch, self.branches.len() as u32)?;
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
