//! How far time has come with a batch: the watermark that its rows allow.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::plan::WatermarkRule;
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS, is_event_time};
use levada_common::types::{LogicalType, StreamSchema};

use super::reader::TimeReader;
use crate::error::EngineError;
use crate::expr::{Expression, ExpressionCompiler};
use crate::operators::bad_records::BadRecords;

/// A `WatermarkRule`, ready to run.
pub(super) enum Rule {
    /// The greatest time − the disorder − 1 ms.
    Disorder(i64),
    /// The greatest value of an expression.
    Expression(Marks),
}

/// The expression that says of each row how far time has come.
pub(super) struct Marks([Arc<dyn Expression>; 1]);

impl Rule {
    /// The rule over rows of `schema`.
    ///
    /// Errors: `Invariant` where an expression does not compile.
    pub(super) fn new(
        rule: &WatermarkRule,
        schema: &StreamSchema,
        compiler: &dyn ExpressionCompiler,
        bad: &BadRecords,
    ) -> Result<Self, EngineError> {
        match rule {
            WatermarkRule::Disorder { ms } => Ok(Self::Disorder(*ms)),
            WatermarkRule::Expression { sql } => {
                Ok(Self::Expression(Marks([bad.compile(compiler, sql, schema, &LogicalType::Timestamp)?])))
            }
        }
    }
}

impl Marks {
    /// The batch without the rows for which there is no watermark to be had, and how far time has come with the others, as far
    /// as they are not later than `latest_ms`; `None` where no row says so.
    pub(super) fn reached(
        &self,
        batch: RecordBatch,
        reader: &TimeReader,
        latest_ms: i64,
        bad: &BadRecords,
    ) -> Result<(RecordBatch, Option<i64>), EngineError> {
        let (batch, columns) = bad.evaluate(batch, &self.0)?;
        let marks = columns[0].as_primitive::<TimestampMillisecondType>();
        let mut good = vec![true; batch.num_rows()];
        let mut greatest = None;
        for (row, time) in reader.times(&batch).iter().enumerate().filter(|(row, _)| marks.is_valid(*row)) {
            let mark = marks.value(row);
            if !is_event_time(mark) {
                good[row] = false;
                let range = format!("{EVENT_TIME_MIN_MS} to {EVENT_TIME_MAX_MS} ms (years -9999 to 9999)");
                bad.report(&batch, row, &format!("the watermark {mark} is outside {range}"))?;
            } else if *time <= latest_ms && mark <= latest_ms {
                greatest = greatest.max(Some(mark));
            }
        }
        let batch = if good.contains(&false) { bad.keep(&batch, good)? } else { batch };
        Ok((batch, greatest))
    }
}
