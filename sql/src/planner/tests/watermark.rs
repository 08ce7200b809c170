//! Watermarks: what is read as a time, expressions, and what is refused.

use levada_common::plan::{TimeFormat, TimeUnit, WatermarkSpec};

use super::*;

fn job(ty: &str, watermark: &str) -> String {
    format!(
        "
version: 1
name: times
sources:
  rows: {{ rows: {{ columns: {{ t: {ty}, until: INT64, unused: INT64, k: STRING }} }}, watermark: {{ column: t, {watermark} }} }}
transforms:
  counts: {{ inputs: [rows], key_by: [k], window: {{ tumbling: {{ size: 1s }} }}, aggregate: {{ n: count(*), last: max(t) }} }}
sinks:
  out: {{ inputs: [counts], file: {{}} }}
"
    )
}

/// The specification, and the columns that the source gives.
fn spec(ty: &str, watermark: &str) -> (WatermarkSpec, Vec<String>) {
    let plan = planned(&job(ty, watermark), 1);
    let source = &plan.vertices[0];
    let operator = source.operators.iter().find(|operator| operator.clause == "watermark").expect("it makes watermarks");
    let time = operator.output.column("t").expect("it keeps its time");
    assert_eq!((&time.ty, operator.output.event_time.as_deref()), (&LogicalType::Timestamp, Some("t")));
    let columns = source.source.as_ref().expect("a source").schema.columns.iter().map(|column| column.name.clone());
    (source.watermark().expect("it makes watermarks").clone(), columns.collect())
}

#[test]
fn whole_numbers_and_texts_become_timestamps() {
    assert_eq!(spec("INT64", "unit: us").0.format, TimeFormat::Integer(TimeUnit::Microseconds));
    assert_eq!(spec("INT32", "unit: s").0.format, TimeFormat::Integer(TimeUnit::Seconds));
    assert_eq!(spec("STRING", "disorder: 1s").0.format, TimeFormat::Text { zone: None });
    assert_eq!(spec("STRING", "time_zone: +02:00").0.format, TimeFormat::Text { zone: Some("+02:00".into()) });
    assert_eq!(spec("TIMESTAMP", "disorder: 1s").0.format, TimeFormat::Time);
}

#[test]
fn an_expression_keeps_the_columns_that_it_reads() {
    let (spec, columns) = spec("STRING", "expression: \"case when until > 0 then t - interval '5 seconds' end\"");
    assert!(matches!(spec.rule, WatermarkRule::Expression { .. }));
    assert_eq!(columns, ["t", "until", "k"]);
    let text =
        explain(&planned(&job("INT64", "unit: s, expression: until, max_future: off, align: { group: g, max_drift: 1m }"), 1));
    let line = "t in s, up to until, step 100 ms, idle after 1 min, the future without bound, at most 1 min ahead of group \"g\"";
    assert!(text.contains(line), "{text}");
}

#[test]
fn what_is_no_time_is_refused() {
    for (ty, watermark, expected) in [
        ("DATE", "disorder: 1s", "watermark.column: column \"t\" is DATE; event time is a TIMESTAMP"),
        ("INT32", "disorder: 1s", "watermark.column: column \"t\" is INT32; event time is"),
        ("TIMESTAMP", "unit: ms", "watermark.unit: column \"t\" is TIMESTAMP; INT32, INT64 and UINT64 have a unit"),
        ("INT64", "time_zone: UTC", "watermark.time_zone: column \"t\" is INT64; a time zone is for a STRING"),
        ("INT64", "expression: k", "watermark.expression: the expression is STRING; a TIMESTAMP"),
        ("INT64", "expression: unti", "watermark.expression: column \"unti\" not found"),
    ] {
        let found = planned_at(&job(ty, watermark), 1).err().unwrap_or_else(|| panic!("{ty}, {watermark} is planned"));
        assert!(found.contains(expected) && found.starts_with("line 5: sources.rows"), "{ty}, {watermark}: {found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}
