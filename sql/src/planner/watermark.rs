//! Watermarks of sources: from what is written, or the connector's own event time, to a checked specification.

use std::collections::BTreeSet;

use levada_common::declaration::SourceShape;
use levada_common::graph::{GraphWatermark, SourceNode, WatermarkSetting};
use levada_common::plan::{FutureBound, OperatorKind, Partition, TimeFormat, WatermarkRule, WatermarkSpec};
use levada_common::types::LogicalType;

use super::graph::{NewOperator, Planner};
use super::stream::{Checked, Stream};
use crate::expression::unknown_column;

const STEP_DEFAULT_MS: i64 = 100;
const IDLENESS_DEFAULT_MS: u64 = 60_000;

impl Planner<'_> {
    /// Puts the watermark operator behind a source that has event time.
    pub(super) fn add_watermark(&mut self, node: &SourceNode, shape: &SourceShape, stream: &mut Stream) {
        let path = format!("sources.{}.watermark", node.uid);
        let written = match &node.watermark {
            WatermarkSetting::None => {
                stream.no_event_time = Some(format!("source \"{}\" has `watermark: none`", node.uid));
                return;
            }
            WatermarkSetting::Default if shape.event_time.is_none() => return,
            WatermarkSetting::Default => GraphWatermark::default(),
            WatermarkSetting::Event(written) => written.clone(),
        };
        let (column, disorder_ms) = match (&written.column, &shape.event_time) {
            (Some(column), _) => (column.clone(), 0),
            (None, Some((column, disorder_ms))) => (column.clone(), *disorder_ms),
            (None, None) => {
                let message = format!("{} has no event time of its own; name a column, `column: ...`", node.connector);
                return self.error(path, message);
            }
        };
        let format = match time_format(&column, &written, stream) {
            Ok(format) => format,
            Err((key, defect)) => {
                stream.no_event_time = None;
                return self.error(format!("{path}.{key}"), defect);
            }
        };
        let disorder_ms = written.disorder_ms.unwrap_or(disorder_ms);
        let step_ms = written.step_ms.unwrap_or(STEP_DEFAULT_MS);
        if disorder_ms < 0 || step_ms < 0 {
            self.error(path.as_str(), "disorder and step must not be negative");
        }
        let rule = match &written.expression {
            Some(sql) => WatermarkRule::Expression { sql: sql.clone() },
            None => WatermarkRule::Disorder { ms: disorder_ms },
        };
        let max_future_ms = written.max_future_ms.unwrap_or(Some(WatermarkSpec::MAX_FUTURE_DEFAULT_MS));
        let future = max_future_ms.map(|max_ms| FutureBound { max_ms, rows: written.future_rows.unwrap_or_default() });
        let idleness_ms = written.idleness_ms.unwrap_or(Some(IDLENESS_DEFAULT_MS));
        let spec = WatermarkSpec { column, format, rule, step_ms, idleness_ms, future, align: written.align };
        self.push_watermark(node, &path, spec, stream);
    }

    fn push_watermark(&mut self, node: &SourceNode, path: &str, spec: WatermarkSpec, stream: &mut Stream) {
        let output = spec.output(&stream.schema);
        let mut uses = BTreeSet::new();
        if let WatermarkRule::Expression { sql } = &spec.rule {
            let timed = Stream { schema: output.clone(), ..stream.clone() };
            match timed.check(&self.compiler, sql) {
                Ok(Checked::Known(typed)) if !matches!(typed.ty, LogicalType::Timestamp | LogicalType::Int64) => {
                    let message =
                        format!("the expression is {}; a TIMESTAMP, or an INT64 of milliseconds, is expected", typed.ty);
                    self.error(format!("{path}.expression"), message);
                }
                Ok(Checked::Known(typed)) => uses.extend(typed.columns),
                Ok(Checked::Unknown) => {}
                Err(reason) => self.error(format!("{path}.expression"), reason),
            }
        }
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause: "watermark",
            kind: OperatorKind::Watermark(spec),
            output,
            uses: vec![uses],
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }
}

/// How the values of the event-time column are read, or the key that is wrong and why.
fn time_format(column: &str, written: &GraphWatermark, stream: &Stream) -> Result<TimeFormat, (&'static str, String)> {
    let Some(ty) = stream.schema.column(column).map(|column| &column.ty) else {
        return Err(("column", unknown_column(column, &stream.schema)));
    };
    if stream.unknown.contains(column) {
        return Ok(TimeFormat::Time);
    }
    match (ty, written.unit, &written.time_zone) {
        (LogicalType::Int32 | LogicalType::Int64 | LogicalType::UInt64, Some(unit), _) => Ok(TimeFormat::Integer(unit)),
        (_, Some(_), _) => Err(("unit", format!("column \"{column}\" is {ty}; INT32, INT64 and UINT64 have a unit"))),
        (LogicalType::String, None, zone) => Ok(TimeFormat::Text { zone: zone.clone() }),
        (_, None, Some(_)) => {
            let hint = "a time zone is for a STRING whose texts name none";
            Err(("time_zone", format!("column \"{column}\" is {ty}; {hint}")))
        }
        (LogicalType::Timestamp | LogicalType::Int64, None, None) => Ok(TimeFormat::Time),
        (_, None, None) => {
            let allowed = "event time is a TIMESTAMP, an INT64 of milliseconds, a whole number with its `unit`, or a STRING as ISO 8601 has it";
            Err(("column", format!("column \"{column}\" is {ty}; {allowed}")))
        }
    }
}
