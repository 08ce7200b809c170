//! Reads event times: integers of a unit and texts become TIMESTAMP, and what is no time is a bad record.
//!
//! Invariant: every row that is given has a time between `EVENT_TIME_MIN_MS` and `EVENT_TIME_MAX_MS`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef, TimeUnit as ArrowUnit, UInt64Type};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{OperatorSpec, TimeFormat, TimeUnit, WatermarkSpec};
use levada_common::time::calendar::parse_local_time;
use levada_common::time::zone::Zone;
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS, is_event_time};

use crate::error::EngineError;
use crate::operators::bad_records::BadRecords;
use crate::operators::event_time::event_times;
use crate::operators::window::zone;

/// How a column's values are read.
enum Format {
    Time,
    Integer(TimeUnit),
    Text(Option<Zone>),
}

/// The event-time column of a stream, and how it is read.
pub(super) struct TimeReader {
    column: usize,
    format: Format,
    /// Schema of what is given.
    schema: SchemaRef,
}

impl TimeReader {
    /// The reader of `watermark`.
    ///
    /// Errors: `Invariant` where the input has no such column, or it is of a type that is not read so.
    pub(super) fn new(spec: &OperatorSpec, watermark: &WatermarkSpec, bad: &BadRecords) -> Result<Self, EngineError> {
        let name = &watermark.column;
        let Some(column) = spec.input.batch_index(name) else {
            return Err(bad.broken(format!("column \"{name}\" not found; columns: {}", spec.input.names())));
        };
        let input = spec.input.to_arrow();
        let ty = input.field(column).data_type();
        let format = match (&watermark.format, ty) {
            (TimeFormat::Time, DataType::Int64 | DataType::Timestamp(ArrowUnit::Millisecond, None)) => Format::Time,
            (TimeFormat::Integer(unit), DataType::Int32 | DataType::Int64 | DataType::UInt64) => Format::Integer(*unit),
            (TimeFormat::Text { zone: name }, DataType::Utf8) => {
                Format::Text(zone(name.as_deref()).map_err(|reason| bad.broken(reason))?)
            }
            (format, ty) => {
                return Err(bad.broken(format!("event-time column \"{name}\" is {ty}, which is not read as {format:?}")));
            }
        };
        Ok(Self { column, format, schema: spec.output.to_arrow() })
    }

    /// The event times of a batch that was given.
    pub(super) fn times<'b>(&self, batch: &'b RecordBatch) -> &'b [i64] {
        event_times(batch.column(self.column)).expect("the column is INT64 or TIMESTAMP")
    }

    /// The batch with event times, without the rows that have none, and the greatest of the times.
    pub(super) fn read(&self, batch: RecordBatch, bad: &BadRecords) -> Result<(RecordBatch, Option<i64>), EngineError> {
        let column = batch.column(self.column);
        let batch = match &self.format {
            Format::Time => return self.checked(batch, bad),
            Format::Integer(unit) => match column.data_type() {
                DataType::Int32 => self.integers::<Int32Type>(*unit, &batch, bad),
                DataType::UInt64 => self.integers::<UInt64Type>(*unit, &batch, bad),
                _ => self.integers::<Int64Type>(*unit, &batch, bad),
            },
            Format::Text(zone) => self.texts(zone.as_ref(), &batch, bad),
        }?;
        let greatest = self.times(&batch).iter().copied().max();
        Ok((batch, greatest))
    }

    /// Times as they are: usually all of them are.
    fn checked(&self, batch: RecordBatch, bad: &BadRecords) -> Result<(RecordBatch, Option<i64>), EngineError> {
        let (column, times) = (batch.column(self.column), self.times(&batch));
        let (least, greatest) =
            times.iter().fold((i64::MAX, i64::MIN), |(least, greatest), time| (least.min(*time), greatest.max(*time)));
        if column.null_count() == 0 && is_event_time(least) && is_event_time(greatest) {
            return Ok((batch, Some(greatest)));
        }
        let mut good = vec![true; batch.num_rows()];
        for (row, time) in times.iter().enumerate() {
            if column.is_null(row) || !is_event_time(*time) {
                good[row] = false;
                let reason = if column.is_null(row) { NO_TIME.to_string() } else { out_of_range(*time) };
                bad.report(&batch, row, &reason)?;
            }
        }
        let batch = bad.keep(&batch, good)?;
        let greatest = self.times(&batch).iter().copied().max();
        Ok((batch, greatest))
    }

    fn integers<T: ArrowPrimitiveType>(
        &self,
        unit: TimeUnit,
        batch: &RecordBatch,
        bad: &BadRecords,
    ) -> Result<RecordBatch, EngineError>
    where
        T::Native: TryInto<i64> + std::fmt::Display,
    {
        let values: &PrimitiveArray<T> = batch.column(self.column).as_primitive();
        self.converted(batch, bad, |row| {
            let value = values.value(row);
            let ms = value.try_into().ok().and_then(|value| unit.to_ms(value)).filter(|ms| is_event_time(*ms));
            ms.ok_or_else(|| format!("{} (in {})", out_of_range(value), unit.name()))
        })
    }

    fn texts(&self, zone: Option<&Zone>, batch: &RecordBatch, bad: &BadRecords) -> Result<RecordBatch, EngineError> {
        let values: &StringArray = batch.column(self.column).as_string();
        self.converted(batch, bad, |row| {
            let text = values.value(row);
            let local = parse_local_time(text).ok_or_else(|| {
                let shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
                format!("\"{shown}\" is no time as ISO 8601 has it, such as 2026-01-31T12:00:00.000Z")
            })?;
            let ms = match (local.offset_ms, zone) {
                (Some(offset_ms), _) => local.ms.checked_sub(offset_ms),
                (None, None) => Some(local.ms),
                (None, Some(zone)) if is_event_time(local.ms) => {
                    let moment = zone.moment_of(local.ms);
                    Some(moment.ok_or_else(|| {
                        format!("\"{text}\" is a time that no clock of its zone shows: they are put forward past it")
                    })?)
                }
                (None, Some(_)) => None,
            };
            ms.filter(|ms| is_event_time(*ms)).ok_or_else(|| out_of_range(text))
        })
    }

    /// The batch with TIMESTAMP in place of the column, without the rows for which there is no time but a reason.
    fn converted(
        &self,
        batch: &RecordBatch,
        bad: &BadRecords,
        time: impl Fn(usize) -> Result<i64, String>,
    ) -> Result<RecordBatch, EngineError> {
        let column = batch.column(self.column);
        let mut times = Vec::with_capacity(batch.num_rows());
        let mut good: Option<Vec<bool>> = None;
        for row in 0..batch.num_rows() {
            let read = if column.is_null(row) { Err(NO_TIME.to_string()) } else { time(row) };
            match read {
                Ok(ms) => times.push(ms),
                Err(reason) => {
                    times.push(0);
                    bad.report(batch, row, &reason)?;
                    good.get_or_insert_with(|| vec![true; batch.num_rows()])[row] = false;
                }
            }
        }
        let mut columns = batch.columns().to_vec();
        columns[self.column] = Arc::new(TimestampMillisecondArray::from(times)) as ArrayRef;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| bad.kernel(error))?;
        match good {
            Some(good) => bad.keep(&batch, good),
            None => Ok(batch),
        }
    }
}

/// Most characters of a text in a message.
const TEXT_CHARS_MAX: usize = 60;

const NO_TIME: &str = "the event time is null";

fn out_of_range(time: impl std::fmt::Display) -> String {
    format!("event time {time} is outside {EVENT_TIME_MIN_MS} to {EVENT_TIME_MAX_MS} ms (years -9999 to 9999)")
}
