//! Checks event times and makes watermarks of them.
//!
//! Invariant: a row that passes has a time between `EVENT_TIME_MIN_MS` and `EVENT_TIME_MAX_MS`, so no arithmetic on it can
//! overflow; watermarks grow, and none is ahead of processing time by more than the bound. Has no clock: processing time, and
//! whether the source is quiet, is told by the task.

mod reader;
mod rule;
mod splits;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use levada_common::plan::{FutureBound, FutureRows, OperatorSpec, WatermarkSpec};
use levada_common::time::Watermark;

use crate::element::SplitVoice;
use crate::error::EngineError;
use crate::expr::ExpressionCompiler;
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::bad_records::BadRecords;
use crate::source::SplitId;

use reader::TimeReader;
use rule::Rule;
use splits::Splits;

/// `watermark` of a source: how far time has come, said again once it grew by the step.
struct WatermarkMaker {
    reader: TimeReader,
    rule: Rule,
    step_ms: i64,
    future: Option<FutureBound>,
    /// Processing time, once it was told.
    now_ms: Option<i64>,
    splits: Splits,
    /// How far time has come.
    reached: Option<i64>,
    /// The newest watermark given.
    given: Option<i64>,
    bad: BadRecords,
    metrics: Option<Arc<NodeMetrics>>,
    pending: Option<RecordBatch>,
}

/// The watermark operator of `watermark`.
///
/// Errors: `Invariant` where the input has no such column, its type does not fit or the expression does not compile.
pub(crate) fn build(
    spec: &OperatorSpec,
    watermark: &WatermarkSpec,
    compiler: &dyn ExpressionCompiler,
) -> Result<Box<dyn Operator>, EngineError> {
    let bad = BadRecords::new(spec);
    Ok(Box::new(WatermarkMaker {
        reader: TimeReader::new(spec, watermark, &bad)?,
        rule: Rule::new(&watermark.rule, &spec.output, compiler, &bad)?,
        step_ms: watermark.step_ms,
        future: watermark.future,
        now_ms: None,
        splits: Splits::new(),
        reached: None,
        given: None,
        bad,
        metrics: None,
        pending: None,
    }))
}

impl WatermarkMaker {
    /// The latest time that moves time.
    fn latest_ms(&self) -> i64 {
        match (self.future, self.now_ms) {
            (Some(bound), Some(now_ms)) => now_ms.saturating_add_unsigned(bound.max_ms),
            _ => i64::MAX,
        }
    }

    /// Counts the rows that are later than `latest_ms`, of which there are some; gives the batch without them where they are bad
    /// records.
    fn without_future(&self, batch: RecordBatch, latest_ms: i64) -> Result<RecordBatch, EngineError> {
        let times = self.reader.times(&batch);
        let future = times.iter().filter(|time| **time > latest_ms).count();
        if let Some(metrics) = &self.metrics {
            metrics.future_rows.fetch_add(future as u64, Ordering::Relaxed);
        }
        let Some(FutureBound { max_ms, rows: FutureRows::BadRecord }) = self.future else { return Ok(batch) };
        let mut good = vec![true; batch.num_rows()];
        for (row, time) in times.iter().enumerate().filter(|(_, time)| **time > latest_ms) {
            good[row] = false;
            let reason = format!("event time {time} is more than {max_ms} ms (max_future) ahead of processing time");
            self.bad.report(&batch, row, &reason)?;
        }
        self.bad.keep(&batch, good)
    }
}

impl Operator for WatermarkMaker {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.bad.open(&context.metrics);
        self.metrics = Some(Arc::clone(&context.metrics));
        Ok(())
    }

    fn keeps_time(&self) -> bool {
        self.future.is_some()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.now_ms = Some(time_ms);
        Ok(None)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let latest_ms = self.latest_ms();
        let (mut batch, mut greatest) = self.reader.read(batch, &self.bad)?;
        if greatest > Some(latest_ms) {
            batch = self.without_future(batch, latest_ms)?;
            greatest = self.reader.times(&batch).iter().copied().filter(|time| *time <= latest_ms).max();
        }
        let (batch, reached) = match &self.rule {
            Rule::Disorder(disorder_ms) => {
                (batch, greatest.map(|greatest| greatest.saturating_sub(*disorder_ms).saturating_sub(1)))
            }
            Rule::Expression(expression) => expression.reached(batch, &self.reader, latest_ms, &self.bad)?,
        };
        self.reached = self.reached.max(reached.and_then(|reached| self.splits.reached(reached)));
        self.pending = Some(batch).filter(|batch| batch.num_rows() > 0);
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

    fn hear_split(&mut self, split: SplitId, voice: SplitVoice) {
        self.reached = self.reached.max(self.splits.hear(split, voice));
    }

    fn due_watermark(&mut self, quiet: bool) -> Option<Watermark> {
        let reached = self.reached?;
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
