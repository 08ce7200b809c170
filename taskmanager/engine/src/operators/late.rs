//! Rows that came too late for their window or join: counted, and given to an output of their own where something reads it.
//!
//! Must never know what is late. Invariant: an output that nobody reads holds no row.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::plan::OperatorSpec;
use levada_common::types::StreamSchema;

use super::pending::Pending;
use super::window::Split;
use crate::error::EngineError;
use crate::metrics::NodeMetrics;
use crate::operator::OperatorContext;

/// The late rows of one input.
#[derive(Debug)]
pub(super) struct LateRows {
    output: Option<LateOutput>,
    metrics: Option<Arc<NodeMetrics>>,
    rows_max: usize,
}

/// Where they go.
#[derive(Debug)]
struct LateOutput {
    /// Its place among the operator's sides.
    side: usize,
    /// Places of its columns in a batch of the input.
    places: Vec<usize>,
    schema: SchemaRef,
    pending: Pending,
}

impl LateRows {
    /// Of an operator, for the output of this name and the input that has this schema.
    ///
    /// Errors: `Invariant` where the output has a column that the input does not have.
    pub(super) fn new(spec: &OperatorSpec, name: &str, input: &StreamSchema) -> Result<Self, EngineError> {
        let place = |column: &str| {
            let message = || format!("no column \"{column}\" for its output \"{name}\"");
            input.batch_index(column).ok_or_else(|| EngineError::Invariant { uid: spec.uid.clone(), message: message() })
        };
        let output = match spec.sides.iter().position(|side| side.name == name) {
            None => None,
            Some(side) => {
                let schema = &spec.sides[side].schema;
                let places = schema.columns.iter().map(|column| place(&column.name)).collect::<Result<Vec<_>, _>>()?;
                Some(LateOutput { side, places, schema: schema.to_arrow(), pending: Pending::default() })
            }
        };
        Ok(Self { output, metrics: None, rows_max: 1 })
    }

    /// The operator is opened: rows are counted here.
    pub(super) fn open(&mut self, context: &OperatorContext) {
        self.metrics = Some(Arc::clone(&context.metrics));
        self.rows_max = context.batch_rows_max;
    }

    /// Takes the rows of `batch` that are in `split`.
    pub(super) fn take(&mut self, batch: &RecordBatch, split: &Split) -> Result<(), ArrowError> {
        self.count(split.rows(batch.num_rows()));
        let Some(output) = &mut self.output else { return Ok(()) };
        let columns: Vec<_> = output.places.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let rows = RecordBatch::try_new(Arc::clone(&output.schema), split.columns(&columns)?)?;
        output.pending.push(rows);
        Ok(())
    }

    /// Takes the rows of `batch` that are not in time.
    pub(super) fn take_others(&mut self, batch: &RecordBatch, in_time: &BooleanArray) -> Result<(), ArrowError> {
        self.count(batch.num_rows() - in_time.true_count());
        let Some(output) = &mut self.output else { return Ok(()) };
        let columns = output.places.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let rows = RecordBatch::try_new(Arc::clone(&output.schema), columns)?;
        output.pending.push(filter_record_batch(&rows, &arrow::compute::not(in_time)?)?);
        Ok(())
    }

    /// The next of them, for `Operator::poll_side`.
    pub(super) fn poll(&mut self) -> Option<(usize, RecordBatch)> {
        let output = self.output.as_mut()?;
        Some((output.side, output.pending.pop(self.rows_max)?))
    }

    /// Whether some wait to be polled.
    pub(super) fn has_some(&self) -> bool {
        self.output.as_ref().is_some_and(|output| !output.pending.is_empty())
    }

    fn count(&self, rows: usize) {
        let metrics = self.metrics.as_ref().expect("an operator is opened first");
        metrics.late_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}
