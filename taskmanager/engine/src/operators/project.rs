//! Computes columns; may unroll one that is a list into a row per element.
//!
//! Invariant: unrolled rows are made only when they are polled, at most `batch_rows_max` at a time, so a batch of long lists
//! costs no more memory than the lists.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::plan::OperatorSpec;
use levada_common::types::LogicalType;

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::BadRecords;

/// `select`.
struct Project {
    expressions: Vec<Arc<dyn Expression>>,
    /// The input carries `_op`, which stays the first column.
    changelog: bool,
    /// Place of the list among the output's arrays.
    unnest: Option<usize>,
    schema: SchemaRef,
    batch_rows_max: usize,
    bad: BadRecords,
    pending: Pending,
}

/// Output that waits to be polled.
enum Pending {
    Nothing,
    Whole(RecordBatch),
    Unrolling(Unrolling),
}

/// A cursor over the elements of a column of lists.
struct Unrolling {
    /// The output's columns, the list among them not yet unrolled.
    columns: Vec<ArrayRef>,
    list: ListArray,
    /// The row whose elements come next.
    row: usize,
    /// Its elements given already.
    given: usize,
}

/// The projection to `columns` (name and SQL), of which `unnest` is a list to be unrolled.
///
/// Errors: `Invariant` where an expression does not compile or the output has another number of columns.
pub(crate) fn build(
    spec: &OperatorSpec,
    columns: &[(String, String)],
    unnest: Option<usize>,
    compiler: &dyn ExpressionCompiler,
) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    if columns.len() != spec.output.columns.len() || unnest.is_some_and(|at| at >= columns.len()) {
        let (found, expected) = (columns.len(), spec.output.columns.len());
        return Err(bad.broken(format!("{found} expressions for {expected} columns, unnest {unnest:?}")));
    }
    let mut expressions = Vec::with_capacity(columns.len());
    for (at, ((_, sql), column)) in columns.iter().zip(&spec.output.columns).enumerate() {
        let result = match unnest {
            Some(list) if list == at => LogicalType::List(Box::new(column.ty.clone())),
            _ => column.ty.clone(),
        };
        expressions.push(bad.compile(compiler, sql, &spec.input, &result)?);
    }
    let changelog = spec.output.changelog;
    Ok(Box::new(Project {
        expressions,
        changelog,
        unnest: unnest.map(|at| at + usize::from(changelog)),
        schema: spec.output.to_arrow(),
        batch_rows_max: 1,
        bad,
        pending: Pending::Nothing,
    }))
}

impl Operator for Project {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.batch_rows_max = context.batch_rows_max;
        self.bad.open(&context.metrics);
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (batch, mut columns) = self.bad.evaluate(batch, &self.expressions)?;
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        if self.changelog {
            columns.insert(0, batch.column(0).clone());
        }
        self.pending = match self.unnest {
            None => Pending::Whole(self.output(columns, rows)?),
            Some(at) => match columns[at].as_list_opt::<i32>() {
                Some(list) => Pending::Unrolling(Unrolling { list: list.clone(), columns, row: 0, given: 0 }),
                None => return Err(self.bad.broken(format!("unnest of {}, which is no list", columns[at].data_type()))),
            },
        };
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => Ok(None),
            Pending::Whole(batch) => Ok(Some(batch)),
            Pending::Unrolling(mut unrolling) => {
                let at = self.unnest.expect("only an unnest unrolls");
                let Some(columns) = unrolling.next(at, self.batch_rows_max).map_err(|error| self.bad.kernel(error))? else {
                    return Ok(None);
                };
                let rows = columns[at].len();
                let batch = self.output(columns, rows)?;
                self.pending = Pending::Unrolling(unrolling);
                Ok(Some(batch))
            }
        }
    }

    fn has_output(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }
}

impl Project {
    fn output(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, EngineError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(|error| self.bad.kernel(error))
    }
}

impl Unrolling {
    /// The columns of the next rows, `at` being the list's; `None` when no element is left.
    fn next(&mut self, at: usize, rows_max: usize) -> Result<Option<Vec<ArrayRef>>, arrow::error::ArrowError> {
        let offsets = self.list.offsets();
        let repeat = self.columns.len() > 1;
        let (mut rows, mut elements) = (Vec::new(), Vec::new());
        let (mut from, mut count, mut contiguous) = (0, 0, true);
        while count < rows_max && self.row < self.list.len() {
            let start = offsets[self.row] as usize + self.given;
            let left = if self.list.is_null(self.row) { 0 } else { offsets[self.row + 1] as usize - start };
            let taken = left.min(rows_max - count);
            if taken > 0 {
                if count == 0 {
                    from = start;
                } else if contiguous && from + count != start {
                    // A null list may hide elements: from here on the values have a gap.
                    contiguous = false;
                    elements.extend(from as u32..(from + count) as u32);
                }
                if !contiguous {
                    elements.extend(start as u32..(start + taken) as u32);
                }
                if repeat {
                    rows.resize(rows.len() + taken, self.row as u32);
                }
                count += taken;
            }
            self.given += taken;
            if taken == left {
                (self.row, self.given) = (self.row + 1, 0);
            }
        }
        if count == 0 {
            return Ok(None);
        }
        let values = match contiguous {
            true => self.list.values().slice(from, count),
            false => take(self.list.values(), &UInt32Array::from(elements), None)?,
        };
        let rows = UInt32Array::from(rows);
        let column = |(place, column): (usize, &ArrayRef)| match place == at {
            true => Ok(Arc::clone(&values)),
            false => take(column, &rows, None),
        };
        self.columns.iter().enumerate().map(column).collect::<Result<Vec<_>, _>>().map(Some)
    }
}

#[cfg(test)]
mod tests;
