//! From when to when each row holds a session open.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatch;
use levada_common::human::HumanDuration;
use levada_common::plan::{AggregatePhase, AggregateSpec, OperatorSpec, SessionGap, WindowSpec, WindowTime};
use levada_common::time::is_event_time;
use levada_common::types::StreamSchema;

use crate::error::EngineError;
use crate::metrics::NodeMetrics;
use crate::operators::bad_records::BadRecords;
use crate::operators::window::{WINDOW_END, WINDOW_START, times};

/// Start and end of each row: `[start, end)`, milliseconds.
#[derive(Debug, Clone)]
pub(in crate::operators) struct Bounds {
    pub(in crate::operators) starts: ScalarBuffer<i64>,
    pub(in crate::operators) ends: ScalarBuffer<i64>,
}

/// Where they come from.
#[derive(Debug)]
enum Kind {
    /// A row's time, in this column or when it comes in, and its gap after it.
    Fixed { time: Option<usize>, gap_ms: i64 },
    /// Likewise, the gap from a column.
    PerRow { time: Option<usize>, gap: usize },
    /// Two columns: a row is the part of a session.
    Parts { start: usize, end: usize },
}

/// Reads the bounds of rows.
#[derive(Debug)]
pub(in crate::operators) struct Source {
    kind: Kind,
    bad: BadRecords,
}

impl Source {
    /// Of this aggregation in session windows.
    ///
    /// Errors: what the plan names and the input does not have, as text.
    pub(in crate::operators) fn new(spec: &OperatorSpec, aggregate: &AggregateSpec) -> Result<Self, String> {
        let place = |name: &str| {
            let found = spec.input.batch_index(name);
            found.ok_or_else(|| format!("column \"{name}\" is not among the input's: {}", spec.input.names()))
        };
        let time = || {
            if aggregate.time.processing {
                return Ok(None);
            }
            let time = spec.input.event_time.as_deref();
            place(time.ok_or("a window over a stream without event time")?).map(Some)
        };
        let kind = match (&aggregate.window, aggregate.phase) {
            (_, AggregatePhase::Final) if !aggregate.time.processing => {
                Kind::Parts { start: place(WINDOW_START)?, end: place(WINDOW_END)? }
            }
            (WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } }, _) => {
                Kind::Fixed { time: time()?, gap_ms: (*gap_ms).max(1) }
            }
            (WindowSpec::Session { gap: SessionGap::Column { .. } }, AggregatePhase::Final) => {
                return Err("states of rows have no gaps".into());
            }
            (WindowSpec::Session { gap: SessionGap::Column { name } }, _) => Kind::PerRow { time: time()?, gap: place(name)? },
            (other, _) => return Err(format!("{other:?} has no sessions")),
        };
        Ok(Self { kind, bad: BadRecords::new(spec) })
    }

    /// Of rows of this stream, an input of an operator that is in sessions of this time with this gap.
    ///
    /// Errors: as `new`.
    pub(in crate::operators) fn of_rows(
        spec: &OperatorSpec,
        input: &StreamSchema,
        gap: &SessionGap,
        time: &WindowTime,
    ) -> Result<Self, String> {
        let place = |name: &str| {
            let found = input.batch_index(name);
            found.ok_or_else(|| format!("column \"{name}\" is not among the input's: {}", input.names()))
        };
        let time = match time.processing {
            true => None,
            false => Some(place(input.event_time.as_deref().ok_or("a window over a stream without event time")?)?),
        };
        let kind = match gap {
            SessionGap::Fixed { gap_ms } => Kind::Fixed { time, gap_ms: (*gap_ms).max(1) },
            SessionGap::Column { name } => Kind::PerRow { time, gap: place(name)? },
        };
        Ok(Self { kind, bad: BadRecords::new(spec) })
    }

    /// The operator is opened: bad rows are counted here.
    pub(in crate::operators) fn open(&mut self, metrics: &Arc<NodeMetrics>) {
        self.bad.open(metrics);
    }

    /// The rows that can hold a session open, and from when to when each does; `now` is when they come in, where that is asked.
    ///
    /// Errors: a row without a gap, where the policy is to fail; a row without time, which the watermark operator lets no row be.
    pub(in crate::operators) fn read(&self, batch: RecordBatch, now: Option<i64>) -> Result<(RecordBatch, Bounds), EngineError> {
        match self.kind {
            Kind::Parts { start, end } => {
                let (starts, ends) = (self.times(&batch, start)?, self.times(&batch, end)?);
                Ok((batch, Bounds { starts, ends }))
            }
            Kind::Fixed { time, gap_ms } => {
                let starts = self.starts(&batch, time, now)?;
                let ends = starts.iter().map(|start| start.saturating_add(gap_ms)).collect();
                Ok((batch, Bounds { starts, ends }))
            }
            Kind::PerRow { time, gap } => {
                let gaps = cast(batch.column(gap), &DataType::Int64).map_err(|source| self.bad.kernel(source))?;
                let gaps = gaps.as_primitive::<Int64Type>();
                let is_good = |row: usize| gaps.is_valid(row) && (1..=HumanDuration::MAX_MS as i64).contains(&gaps.value(row));
                if !(0..gaps.len()).all(is_good) {
                    let good = self.without_bad(&batch, gaps.len(), is_good)?;
                    return self.read(good, now);
                }
                let starts = self.starts(&batch, time, now)?;
                let ends = starts.iter().zip(gaps.values()).map(|(start, gap)| start.saturating_add(*gap)).collect();
                Ok((batch, Bounds { starts, ends }))
            }
        }
    }

    fn without_bad(&self, batch: &RecordBatch, rows: usize, is_good: impl Fn(usize) -> bool) -> Result<RecordBatch, EngineError> {
        let good: Vec<bool> = (0..rows).map(is_good).collect();
        for row in (0..rows).filter(|row| !good[*row]) {
            let most = HumanDuration::from_ms(HumanDuration::MAX_MS);
            self.bad.report(batch, row, &format!("the session gap is null or not between 1 ms and {most}"))?;
        }
        self.bad.keep(batch, good)
    }

    fn times(&self, batch: &RecordBatch, column: usize) -> Result<ScalarBuffer<i64>, EngineError> {
        times(batch.column(column)).cloned().map_err(|reason| self.bad.broken(reason))
    }

    fn starts(&self, batch: &RecordBatch, column: Option<usize>, now: Option<i64>) -> Result<ScalarBuffer<i64>, EngineError> {
        let Some(column) = column else {
            let now = now.ok_or_else(|| self.bad.broken("sessions of processing time without a clock".into()))?;
            return Ok(vec![now; batch.num_rows()].into());
        };
        let times = self.times(batch, column)?;
        match times.iter().find(|time| !is_event_time(**time)) {
            None => Ok(times),
            Some(time) => {
                Err(self.bad.broken(format!("a row has event time {time}, which the watermark operator lets no row have")))
            }
        }
    }
}
