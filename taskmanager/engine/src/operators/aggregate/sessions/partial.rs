//! The first half of a two-phase aggregation in sessions: each batch as parts of sessions, so that fewer rows cross the exchange.
//!
//! Keeps nothing. Lateness is not its to judge: a row whose session would be over by its own watermark goes on as a part by itself.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{AggregateSpec, OperatorSpec};
use levada_common::time::Watermark;
use levada_state::rows::Rows;

use super::super::restore::no_state;
use super::super::shape::Shape;
use super::collapse::Collapse;
use super::rows::SessionRows;
use super::source::Source;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;

/// A partial aggregation in sessions.
///
/// Shape of the output: keys, `window_start` and `window_end` of a part of a session, states.
#[derive(Debug)]
pub(in super::super) struct Partial {
    shape: Arc<Shape>,
    source: Source,
    collapse: Collapse,
    pending: Pending,
    watermark: i64,
    /// For how long after their session rows are taken in.
    lateness_ms: i64,
    rows_max: usize,
}

impl Partial {
    pub(in super::super) fn new(shape: Arc<Shape>, spec: &OperatorSpec, aggregate: &AggregateSpec) -> Result<Self, EngineError> {
        Ok(Self {
            source: Source::new(spec, aggregate).map_err(|message| shape.invariant(message))?,
            collapse: Collapse::new(&shape),
            shape,
            pending: Pending::default(),
            watermark: i64::MIN,
            lateness_ms: aggregate.firing.map_or(0, |firing| firing.lateness_ms),
            rows_max: 1,
        })
    }

    fn part_columns(&self) -> Vec<ArrayRef> {
        let parts = self.collapse.parts();
        let starts = TimestampMillisecondArray::from_iter_values(parts.iter().map(|part| part.start));
        let ends = TimestampMillisecondArray::from_iter_values(parts.iter().map(|part| part.end));
        let bounds: [ArrayRef; 2] = [Arc::new(starts), Arc::new(ends)];
        self.collapse.part_keys().into_iter().chain(bounds).chain(self.collapse.states(Rows::first(parts.len()))).collect()
    }
}

impl Operator for Partial {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        no_state(&self.shape, &restored)?;
        self.source.open(&context.metrics);
        self.rows_max = context.batch_rows_max;
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (batch, bounds) = self.source.read(batch, None)?;
        let rows = SessionRows::new(&self.shape, &batch, bounds);
        for (at, is_over) in rows.runs(self.watermark.saturating_sub(self.lateness_ms)) {
            let rows = rows.slice(at);
            match is_over {
                true => self.collapse.take_each(&self.shape, &rows)?,
                false => self.collapse.take(&self.shape, &rows)?,
            }
            self.pending.push(self.shape.output(self.part_columns())?);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.pop(self.rows_max))
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.watermark = watermark.0;
        Ok(Some(watermark))
    }
}
