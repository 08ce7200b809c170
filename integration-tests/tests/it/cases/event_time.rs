//! Event time: what is read as a time, and a clock that is wrong.

use levada_integration_tests::process::{Processes, Setup};

use super::{Job, finish, input, node};

const COUNTS: &str = "window: { tumbling: { size: 1h } }\naggregate: { n: count(*) }\nselect: { s: window_start, n: n }";

fn source(path: &str, column: &str, watermark: &str) -> String {
    format!(
        "file: {{ path: \"{path}\", format: ndjson, columns: {{ t: {column} }} }}\nwatermark: {{ column: t, {watermark} }}\nbad_records: drop"
    )
}

/// Every row is a batch of its own, so that each moves time before the next one comes.
const SETTINGS: &str = "batch: { rows: 1 }";

#[tokio::test(flavor = "multi_thread")]
async fn texts_and_units_are_times() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    // 02:30 is shown twice that night, and the clocks then go on in winter time.
    let texts = ["2026-10-25T01:59:59", "2026-10-25T02:30:00", "2026-10-25T03:00:00", "2026-10-25T02:00:00Z", "25:61:61"];
    let texts = texts.map(|text| format!("{{\"t\":\"{text}\"}}"));
    let seconds: [i64; 4] = [1_792_886_399, 1_792_888_200, 1_792_893_600, 1_792_893_600];
    let micros = seconds.map(|second| format!("{{\"t\":{}}}", second * 1_000_000 + 999_999));
    let rows = [("2026-10-24T23:00:00.000Z", 1), ("2026-10-25T00:00:00.000Z", 1), ("2026-10-25T02:00:00.000Z", 2)];
    let rows = rows.map(|(start, n)| format!("{{\"s\":\"{start}\",\"n\":{n}}}"));
    let cases = [
        ("texts", input(&cluster, "texts", &texts)?, "STRING", "time_zone: Europe/Berlin", 1),
        ("micros", input(&cluster, "micros", &micros)?, "INT64", "unit: us", 0),
    ];
    for (name, path, column, watermark, bad) in cases {
        let out = cluster.path(&format!("out-{name}"));
        let job = Job { settings: SETTINGS, source: source(&path, column, watermark), transform: COUNTS, out: &out };
        let (status, found) = finish(&cluster, &job).await?;
        assert_eq!((&found[..], node(&status, "input").bad_records), (&rows[..], bad), "{name}");
    }
    Ok(())
}

/// One row of the year 2999 among others: without a bound everything after it is late.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_from_the_future_does_not_make_the_others_late() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    let rows = ["2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"];
    let path = input(&cluster, "rows", &rows.map(|time| format!("{{\"t\":\"{time}\"}}")))?;
    let window = |start: &str, n: u32| format!("{{\"s\":\"{start}T00:00:00.000Z\",\"n\":{n}}}");
    let later = r#"{"s":"2026-01-01T01:00:00.000Z","n":1}"#.to_string();
    let (first, far) = (window("2026-01-01", 2), window("2999-01-01", 1));
    let cases = [
        ("pass", "max_future: 1h", vec![first.clone(), later.clone(), far.clone()], (1, 0, 0)),
        ("bad", "max_future: 1d, future_rows: bad_record", vec![first, later], (1, 1, 0)),
        ("off", "max_future: off", vec![window("2026-01-01", 1), far], (0, 0, 2)),
    ];
    for (name, watermark, expected, counted) in cases {
        let out = cluster.path(&format!("out-{name}"));
        let job = Job { settings: SETTINGS, source: source(&path, "TIMESTAMP", watermark), transform: COUNTS, out: &out };
        let (status, found) = finish(&cluster, &job).await?;
        let source = node(&status, "input");
        assert_eq!(found, expected, "{name}");
        assert_eq!((source.future_rows, source.bad_records, node(&status, "step").late_rows), counted, "{name}");
    }
    Ok(())
}
