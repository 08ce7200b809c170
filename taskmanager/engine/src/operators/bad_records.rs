//! Rows that cannot be computed: found by halving the batch, then dropped and counted, or the end of the task.
//!
//! A row is bad where it cannot be computed by itself: beside others what guards it may not hold (`n <> 0 and 10 / n > 1` is computed
//! of whole columns), so what parts of a failed batch come to is put together, never computed of all of its good rows again.
//! Invariant: each bad row is counted once, however many expressions fail on it; the other rows keep their order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::{concat, filter_record_batch};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use levada_common::ids::Uid;
use levada_common::plan::{BadRecordPolicy, OperatorSpec};
use levada_common::types::{LogicalType, StreamSchema};

use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::metrics::NodeMetrics;

/// Longest text of a row's values in a message, in bytes.
const ROW_TEXT_BYTES_MAX: usize = 200;

/// Longest text of one value in a message, in bytes.
const VALUE_TEXT_BYTES_MAX: usize = 60;

/// One operator's policy for bad rows, and its place in messages.
#[derive(Debug)]
pub(crate) struct BadRecords {
    uid: Uid,
    clause: String,
    policy: BadRecordPolicy,
    metrics: Option<Arc<NodeMetrics>>,
}

/// Rows for which everything could be computed.
pub(crate) struct Marked {
    /// They alone, perhaps none.
    pub(crate) rows: RecordBatch,
    /// A column of their length for each expression.
    pub(crate) columns: Vec<ArrayRef>,
    /// Which of the rows there were are among them, where some are not.
    pub(crate) good: Option<Vec<bool>>,
}

impl BadRecords {
    /// Of the operator of `spec`.
    pub(crate) fn new(spec: &OperatorSpec) -> Self {
        Self { uid: spec.uid.clone(), clause: spec.clause.clone(), policy: spec.bad_records, metrics: None }
    }

    /// The operator is opened: bad rows are counted here.
    pub(crate) fn open(&mut self, metrics: &Arc<NodeMetrics>) {
        self.metrics = Some(Arc::clone(metrics));
    }

    /// One bad row: counted, or the error that fails the task, as the policy says.
    pub(crate) fn report(&self, batch: &RecordBatch, row: usize, reason: &str) -> Result<(), EngineError> {
        let position = row_text(batch, row);
        match self.policy {
            BadRecordPolicy::Drop => {
                if let Some(metrics) = &self.metrics {
                    metrics.bad_record(&position, reason);
                }
                Ok(())
            }
            BadRecordPolicy::Fail => Err(EngineError::BadRecord {
                uid: self.uid.clone(),
                clause: self.clause.clone(),
                position,
                reason: reason.into(),
            }),
        }
    }

    /// An expression of this operator over its input.
    ///
    /// Errors: `Invariant` where it does not compile.
    pub(crate) fn compile(
        &self,
        compiler: &dyn ExpressionCompiler,
        sql: &str,
        input: &StreamSchema,
        result: &LogicalType,
    ) -> Result<Arc<dyn Expression>, EngineError> {
        let compiled = compiler.compile(sql, input, result);
        compiled.map_err(|reason| self.broken(format!("\"{sql}\" does not compile: {reason}")))
    }

    /// Evaluates over every row for which all of `expressions` can be computed.
    ///
    /// Shape: the batch without its bad rows, perhaps empty, and a column of its length for each expression.
    pub(crate) fn evaluate(
        &self,
        batch: RecordBatch,
        expressions: &[Arc<dyn Expression>],
    ) -> Result<(RecordBatch, Vec<ArrayRef>), EngineError> {
        let Marked { rows: batch, columns, .. } = self.evaluate_marked(batch, expressions)?;
        Ok((batch, columns))
    }

    /// The same, and which rows are among the good ones, where some are not.
    pub(crate) fn evaluate_marked(&self, batch: RecordBatch, expressions: &[Arc<dyn Expression>]) -> Result<Marked, EngineError> {
        let reason = match evaluate_all(&batch, expressions) {
            Ok(columns) => return Ok(Marked { rows: batch, columns, good: None }),
            Err(reason) if batch.num_rows() == 0 => {
                return Err(self.broken(format!("an expression fails on no rows: {reason}")));
            }
            Err(reason) => reason,
        };
        let mut found = Found { good: vec![true; batch.num_rows()], parts: Vec::new() };
        self.halve(&batch, 0..batch.num_rows(), reason, expressions, &mut found)?;
        let Found { good, parts } = found;
        if parts.is_empty() {
            // The columns of no rows.
            let nothing = self.evaluate_marked(batch.slice(0, 0), expressions)?;
            return Ok(Marked { good: Some(good), ..nothing });
        }
        let column = |at: usize| {
            let parts: Vec<&dyn Array> = parts.iter().map(|columns| columns[at].as_ref()).collect();
            concat(&parts).map_err(|error| self.kernel(error))
        };
        let columns = (0..expressions.len()).map(column).collect::<Result<_, _>>()?;
        if good.iter().all(|good| *good) {
            return Ok(Marked { rows: batch, columns, good: None });
        }
        let rows = self.keep(&batch, good.clone())?;
        Ok(Marked { rows, columns, good: Some(good) })
    }

    /// The rows of `batch` that are marked.
    pub(crate) fn keep(&self, batch: &RecordBatch, marks: Vec<bool>) -> Result<RecordBatch, EngineError> {
        filter_record_batch(batch, &BooleanArray::from(marks)).map_err(|error| self.kernel(error))
    }

    /// An Arrow kernel failed in this operator.
    pub(crate) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }

    /// A rule was broken in this operator.
    pub(crate) fn broken(&self, message: String) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message: format!("{}: {message}", self.clause) }
    }

    /// Finds the bad ones among `rows`, which fail together for `reason`, the first one first, and computes the others.
    fn halve(
        &self,
        batch: &RecordBatch,
        rows: std::ops::Range<usize>,
        reason: String,
        expressions: &[Arc<dyn Expression>],
        found: &mut Found,
    ) -> Result<(), EngineError> {
        if rows.len() == 1 {
            found.good[rows.start] = false;
            return self.report(batch, rows.start, &reason);
        }
        let middle = rows.start + rows.len() / 2;
        for half in [rows.start..middle, middle..rows.end] {
            match evaluate_all(&batch.slice(half.start, half.len()), expressions) {
                Ok(columns) => found.parts.push(columns),
                Err(reason) => self.halve(batch, half, reason, expressions, found)?,
            }
        }
        Ok(())
    }
}

/// What halving a batch has found.
struct Found {
    /// Of each row: whether it could be computed.
    good: Vec<bool>,
    /// The columns of stretches of good rows, in their order.
    parts: Vec<Vec<ArrayRef>>,
}

fn evaluate_all(batch: &RecordBatch, expressions: &[Arc<dyn Expression>]) -> Result<Vec<ArrayRef>, String> {
    let mut columns = Vec::with_capacity(expressions.len());
    for expression in expressions {
        let column = expression.evaluate(batch)?;
        assert_eq!(column.len(), batch.num_rows(), "an expression gives a value for each row");
        columns.push(column);
    }
    Ok(columns)
}

/// A row's values for a message: `{auction: 7, name: "x"}`, cut where it is long.
pub(crate) fn row_text(batch: &RecordBatch, row: usize) -> String {
    let options = FormatOptions::new().with_null("null").with_display_error(true);
    let mut text = String::from("{");
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if text.len() > 1 {
            text.push_str(", ");
        }
        if text.len() > ROW_TEXT_BYTES_MAX {
            text.push('…');
            break;
        }
        let mut value = match ArrayFormatter::try_new(column, &options) {
            Ok(formatter) => formatter.value(row).to_string(),
            Err(error) => error.to_string(),
        };
        if value.len() > VALUE_TEXT_BYTES_MAX {
            let end = (0..=VALUE_TEXT_BYTES_MAX).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
            value.truncate(end);
            value.push('…');
        }
        let quote = if field.data_type().is_string() && column.is_valid(row) { "\"" } else { "" };
        text.push_str(&format!("{}: {quote}{value}{quote}", field.name()));
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests;
