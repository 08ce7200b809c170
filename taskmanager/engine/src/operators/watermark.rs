//! Checks event times and makes watermarks of them.
//!
//! Invariant: a row that passes has a time between `EVENT_TIME_MIN_MS` and `EVENT_TIME_MAX_MS`, so no arithmetic on it can
//! overflow; watermarks grow. Has no clock: whether the source is quiet is told by the task.

use arrow::array::Array;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{OperatorSpec, WatermarkSpec};
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS, Watermark, is_event_time};

use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::BadRecords;
use crate::operators::event_time::event_times;

/// `watermark` of a source: largest time seen − disorder − 1 ms, said again once it grew by the step.
struct WatermarkMaker {
    /// Place of the event-time column in a batch.
    column: usize,
    disorder_ms: i64,
    step_ms: i64,
    largest_ms: Option<i64>,
    /// The newest watermark given.
    given: Option<i64>,
    bad: BadRecords,
    pending: Option<RecordBatch>,
}

/// The watermark operator of `watermark`.
///
/// Errors: `Invariant` where the input has no such column or it is neither INT64 nor TIMESTAMP.
pub(crate) fn build(spec: &OperatorSpec, watermark: &WatermarkSpec) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    let Some(column) = spec.input.batch_index(&watermark.column) else {
        return Err(bad.broken(format!("column \"{}\" not found; columns: {}", watermark.column, spec.input.names())));
    };
    let schema = spec.input.to_arrow();
    let ty = schema.field(column).data_type();
    if !matches!(ty, DataType::Int64 | DataType::Timestamp(TimeUnit::Millisecond, None)) {
        return Err(bad.broken(format!("event-time column \"{}\" is {ty}, not INT64 or TIMESTAMP", watermark.column)));
    }
    Ok(Box::new(WatermarkMaker {
        column,
        disorder_ms: watermark.disorder_ms,
        step_ms: watermark.step_ms,
        largest_ms: None,
        given: None,
        bad,
        pending: None,
    }))
}

/// The event times of a batch's column, whose type was checked when the operator was built.
fn times(column: &dyn Array) -> &[i64] {
    event_times(column).expect("the column is INT64 or TIMESTAMP")
}

impl WatermarkMaker {
    /// The batch without its rows that have no time, or a time that none can have.
    fn without_bad(&self, batch: &RecordBatch) -> Result<RecordBatch, EngineError> {
        let column = batch.column(self.column);
        let mut good = vec![true; batch.num_rows()];
        for (row, time) in times(column).iter().enumerate() {
            let reason = if column.is_null(row) {
                "the event time is null".to_string()
            } else if !is_event_time(*time) {
                format!("event time {time} is outside {EVENT_TIME_MIN_MS} to {EVENT_TIME_MAX_MS} ms (years -9999 to 9999)")
            } else {
                continue;
            };
            good[row] = false;
            self.bad.report(batch, row, &reason)?;
        }
        self.bad.keep(batch, good)
    }
}

/// The least and the greatest of `times`; nothing is less than its least where it is empty.
fn range(times: &[i64]) -> (i64, i64) {
    times.iter().fold((i64::MAX, i64::MIN), |(least, greatest), time| (least.min(*time), greatest.max(*time)))
}

impl Operator for WatermarkMaker {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.bad.open(&context.metrics);
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let column = batch.column(self.column);
        let (least, mut greatest) = range(times(column));
        let batch = if column.null_count() == 0 && is_event_time(least) && is_event_time(greatest) {
            batch
        } else {
            let good = self.without_bad(&batch)?;
            (_, greatest) = range(times(good.column(self.column)));
            good
        };
        if batch.num_rows() > 0 {
            self.largest_ms = self.largest_ms.max(Some(greatest));
            self.pending = Some(batch);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.take())
    }

    fn has_output(&self) -> bool {
        self.pending.is_some()
    }

    /// Only the end of time passes: before it this operator makes time.
    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        Ok((watermark == Watermark::MAX).then_some(watermark))
    }

    fn due_watermark(&mut self, quiet: bool) -> Option<Watermark> {
        let reached = self.largest_ms?.saturating_sub(self.disorder_ms).saturating_sub(1);
        let due = match self.given {
            None => true,
            Some(given) if quiet => reached > given,
            Some(given) => reached > given && reached.saturating_sub(given) >= self.step_ms,
        };
        due.then(|| {
            self.given = Some(reached);
            Watermark(reached)
        })
    }
}

#[cfg(test)]
mod tests;
