//! `watermark:` of a source, as written, and its reader.

use super::report::{At, Fields, Keys, Report};
use super::tree::Value;
use crate::plan::{AlignSpec, FutureRows, TimeUnit};
use crate::time::zone::Zone;

/// `watermark:` of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WatermarkSetting {
    /// Not written: the connector's own event time, if it has one.
    #[default]
    Default,
    /// `none`: no event time.
    None,
    /// A map.
    Event(GraphWatermark),
}

/// `watermark:` as a map; what is not written has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphWatermark {
    /// `column`, the event-time column; the connector's own where only the others are set.
    pub column: Option<String>,
    /// `unit` of a column of whole numbers.
    pub unit: Option<TimeUnit>,
    /// `time_zone` of texts that name none.
    pub time_zone: Option<String>,
    /// `disorder`, milliseconds; 0 is also written `ascending`. Not beside `expression`.
    pub disorder_ms: Option<i64>,
    /// `expression`, SQL.
    pub expression: Option<String>,
    /// `step`, milliseconds; default 100.
    pub step_ms: Option<i64>,
    /// `idleness`, milliseconds; `Some(None)` = off; default 60 s.
    pub idleness_ms: Option<Option<u64>>,
    /// `max_future`, milliseconds; `Some(None)` = off; default 1 h.
    pub max_future_ms: Option<Option<u64>>,
    /// `future_rows`; not where `max_future` is off.
    pub future_rows: Option<FutureRows>,
    /// `align`
    pub align: Option<AlignSpec>,
}

const WATERMARK: Keys = Keys {
    allowed: &["column", "unit", "time_zone", "disorder", "expression", "step", "idleness", "max_future", "future_rows", "align"],
    later: &[],
    synonyms: &[
        ("delay", "disorder"),
        ("lateness", "disorder"),
        ("ascending", "disorder"),
        ("interval", "step"),
        ("timezone", "time_zone"),
        ("zone", "time_zone"),
        ("alignment", "align"),
        ("sql", "expression"),
    ],
};

const ALIGN: Keys = Keys { allowed: &["group", "max_drift"], later: &[], synonyms: &[("drift", "max_drift"), ("name", "group")] };

/// Reads `watermark:`.
pub(super) fn read_watermark(at: &At<'_>, report: &mut Report) -> WatermarkSetting {
    match &at.node.value {
        Value::Scalar { text, .. } if text == "none" => return WatermarkSetting::None,
        Value::Scalar { .. } => {
            report.error(&at.path, "`none` or a map such as { column: time, disorder: 2s } is expected");
            return WatermarkSetting::Default;
        }
        Value::Map(_) | Value::List(_) | Value::Broken => {}
    }
    let Some(fields) = report.fields(at, &WATERMARK) else { return WatermarkSetting::Default };
    let watermark = GraphWatermark {
        column: fields.get("column").and_then(|at| report.text(&at, "a column")).map(str::to_owned),
        unit: fields.get("unit").and_then(|at| read_unit(&at, report)),
        time_zone: fields.get("time_zone").and_then(|at| read_zone(&at, report)),
        disorder_ms: fields.get("disorder").and_then(|at| read_disorder(&at, report)),
        expression: fields.get("expression").and_then(|at| report.sql(&at)),
        step_ms: fields.get("step").and_then(|at| report.duration_ms(&at, 0)).map(|ms| ms as i64),
        idleness_ms: fields.get("idleness").and_then(|at| report.duration_or_off(&at, 1)),
        max_future_ms: fields.get("max_future").and_then(|at| report.duration_or_off(&at, 0)),
        future_rows: fields.get("future_rows").and_then(|at| read_future_rows(&at, report)),
        align: fields.get("align").and_then(|at| read_align(&at, report)),
    };
    check(&watermark, &fields, report);
    WatermarkSetting::Event(watermark)
}

/// What excludes each other.
fn check(watermark: &GraphWatermark, fields: &Fields<'_>, report: &mut Report) {
    if watermark.disorder_ms.is_some() && watermark.expression.is_some() {
        report.error(&fields.path_of("expression"), "a watermark comes of a `disorder` or of an `expression`, not of both");
    }
    if watermark.unit.is_some() && watermark.time_zone.is_some() {
        report.error(&fields.path_of("time_zone"), "whole numbers of a `unit` have no time zone: they count from 1970 in UTC");
    }
    if watermark.max_future_ms == Some(None) && watermark.future_rows.is_some() {
        report.error(&fields.path_of("future_rows"), "no row is from the future where `max_future` is off");
    }
}

fn read_unit(at: &At<'_>, report: &mut Report) -> Option<TimeUnit> {
    use TimeUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
    let named = [Seconds, Milliseconds, Microseconds, Nanoseconds].map(|unit| (unit.name(), unit));
    let units: Vec<(&str, TimeUnit)> = named.into_iter().chain([("µs", Microseconds)]).collect();
    report.one_of(at, &units, &[])
}

fn read_future_rows(at: &At<'_>, report: &mut Report) -> Option<FutureRows> {
    report.one_of(at, &[FutureRows::Pass, FutureRows::BadRecord].map(|rows| (rows.name(), rows)), &[])
}

fn read_disorder(at: &At<'_>, report: &mut Report) -> Option<i64> {
    match &at.node.value {
        Value::Scalar { text, .. } if text == "ascending" => Some(0),
        _ => report.duration_ms(at, 0).map(|ms| ms as i64),
    }
}

/// Reads a time zone; one that there is not is reported.
pub(super) fn read_zone(at: &At<'_>, report: &mut Report) -> Option<String> {
    let name = report.text(at, "a time zone")?;
    match name.parse::<Zone>() {
        Ok(_) => Some(name.to_owned()),
        Err(error) => {
            report.error(&at.path, error.to_string());
            None
        }
    }
}

fn read_align(at: &At<'_>, report: &mut Report) -> Option<AlignSpec> {
    let fields = report.fields(at, &ALIGN)?;
    let group = fields.get("group").and_then(|at| report.text(&at, "a group's name")).map(str::to_owned);
    let max_drift_ms = fields.get("max_drift").and_then(|at| report.duration_ms(&at, 1));
    for key in ALIGN.allowed.iter().filter(|key| fields.get(key).is_none()) {
        report.error(fields.path(), format!("`{key}` is missing: write `align: {{ group: NAME, max_drift: 1m }}`"));
    }
    Some(AlignSpec { group: group?, max_drift_ms: max_drift_ms? })
}
