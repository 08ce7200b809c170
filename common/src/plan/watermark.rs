//! How a source's rows get their event time, and how watermarks are made of it.

use serde::{Deserialize, Serialize};

use super::{OperatorKind, Vertex};
use crate::types::{LogicalType, StreamSchema};

/// How watermarks are made at a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatermarkSpec {
    /// The event-time column.
    pub column: String,
    /// How its values are read.
    pub format: TimeFormat,
    /// How far time has come with a row.
    pub rule: WatermarkRule,
    /// A watermark is sent once it advanced by this much.
    pub step_ms: i64,
    /// Silence after which the source counts as idle; `None` = never.
    pub idleness_ms: Option<u64>,
    /// What becomes of rows from the future; `None`: they are like all others.
    pub future: Option<FutureBound>,
    /// With which other sources it keeps pace.
    pub align: Option<AlignSpec>,
}

impl WatermarkSpec {
    /// How far rows may be ahead of processing time, where nothing is said of it: further than clocks go wrong by themselves.
    pub const MAX_FUTURE_DEFAULT_MS: u64 = 3_600_000;

    /// What the watermark operator gives of `input`: the column is TIMESTAMP where its values were not times already.
    pub fn output(&self, input: &StreamSchema) -> StreamSchema {
        let mut output = StreamSchema { event_time: Some(self.column.clone()), ..input.clone() };
        if self.format != TimeFormat::Time
            && let Some(column) = output.columns.iter_mut().find(|column| column.name == self.column)
        {
            column.ty = LogicalType::Timestamp;
        }
        output
    }
}

impl Vertex {
    /// How watermarks are made here, where they are: behind a source.
    pub fn watermark(&self) -> Option<&WatermarkSpec> {
        self.operators.iter().find_map(|operator| match &operator.kind {
            OperatorKind::Watermark(watermark) => Some(watermark),
            OperatorKind::Filter { .. } | OperatorKind::Project { .. } => None,
            OperatorKind::Assign(_) | OperatorKind::Distinct(_) | OperatorKind::Split { .. } => None,
            OperatorKind::Join(_) | OperatorKind::Top(_) | OperatorKind::Aggregate(_) | OperatorKind::Process(_) => None,
        })
    }
}

/// How the values of an event-time column are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeFormat {
    /// TIMESTAMP, or INT64 of milliseconds: as they are.
    Time,
    /// Whole numbers of this unit since 1970.
    Integer(TimeUnit),
    /// ISO 8601 texts.
    Text {
        /// The zone of those that name none: of the IANA database, or an offset; `None` = UTC.
        zone: Option<String>,
    },
}

/// The unit of an integer that is a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
        }
    }

    /// `value` in milliseconds, what is finer cut off towards the past; `None` where it does not fit.
    pub fn to_ms(self, value: i64) -> Option<i64> {
        match self {
            Self::Seconds => value.checked_mul(1000),
            Self::Milliseconds => Some(value),
            Self::Microseconds => Some(value.div_euclid(1000)),
            Self::Nanoseconds => Some(value.div_euclid(1_000_000)),
        }
    }
}

/// How far time has come with a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatermarkRule {
    /// To its event time less the disorder and one millisecond: rows may be this much older than the newest one seen.
    Disorder {
        /// Milliseconds; 0 where times ascend.
        ms: i64,
    },
    /// To what an expression says of it.
    Expression {
        /// SQL over the operator's output, cast to TIMESTAMP; null says nothing.
        sql: String,
    },
}

/// What becomes of rows whose event time lies ahead of processing time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FutureBound {
    /// By how much it may, in milliseconds. Rows further ahead move no time.
    pub max_ms: u64,
    /// What else becomes of those.
    pub rows: FutureRows,
}

/// What becomes of a row from the future, beside being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FutureRows {
    /// It goes on.
    #[default]
    Pass,
    /// It is a bad record.
    BadRecord,
}

impl FutureRows {
    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::BadRecord => "bad_record",
        }
    }
}

/// With which other sources a source keeps pace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlignSpec {
    /// The group's name; all sources of the job that have it belong to it.
    pub group: String,
    /// By how much its watermark may be ahead of the group's least, in milliseconds, before it pauses.
    pub max_drift_ms: u64,
}
