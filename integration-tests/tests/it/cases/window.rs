//! Window edges: times before 1970, times at the ends of the range, times on the edges of windows that hop.

use levada_integration_tests::process::{Processes, Setup};
use levada_proto::v1::JobState;

use super::{Job, finish, input, node, run};

const WINDOWED: &str = "key_by: [k]\nwindow: { tumbling: { size: SIZE } }\naggregate: { n: count(*) }\nselect: { k: k, s: cast(window_start as bigint), n: n }";

fn source(path: &str, policy: &str) -> String {
    format!(
        "file: {{ path: \"{path}\", format: ndjson, columns: {{ k: STRING, ts: INT64 }} }}\nwatermark: {{ column: ts, disorder: 1h }}\nbad_records: {policy}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn g26_events_before_1970() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    let lines = [-5001, -5000, -4999, -1, 0].map(|ts| format!("{{\"k\":\"a\",\"ts\":{ts}}}"));
    let path = input(&cluster, "input.ndjson", &lines)?;
    let tumbling = WINDOWED.replace("SIZE", "5s");
    let hopping = WINDOWED.replace("tumbling: { size: SIZE }", "sliding: { size: 5s, slide: 5s }");
    for (name, transform) in [("tumbling", tumbling), ("hopping", hopping)] {
        let out = cluster.path(name);
        let job = Job { settings: "parallelism: 2", source: source(&path, "fail"), transform: &transform, out: &out };
        let (_, rows) = finish(&cluster, &job).await?;
        let expected = [r#"{"k":"a","s":-10000,"n":1}"#, r#"{"k":"a","s":-5000,"n":3}"#, r#"{"k":"a","s":0,"n":1}"#];
        assert_eq!(rows, expected, "{name}");
    }
    Ok(())
}

/// G28: what lies exactly on the edge of a window is in the one that begins there, and in no other one more or less.
#[tokio::test(flavor = "multi_thread")]
async fn g28_rows_on_the_edges_of_hops() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    let lines = [0, 4999, 5000, 9999, 10_000].map(|ts| format!("{{\"k\":\"a\",\"ts\":{ts}}}"));
    let path = input(&cluster, "input.ndjson", &lines)?;
    let transform = WINDOWED.replace("tumbling: { size: SIZE }", "sliding: { size: 10s, slide: 5s }");
    for parallelism in [1, 2] {
        let out = cluster.path(&format!("out-{parallelism}"));
        let settings = format!("parallelism: {parallelism}");
        let job = Job { settings: &settings, source: source(&path, "fail"), transform: &transform, out: &out };
        let (status, rows) = finish(&cluster, &job).await?;
        let expected =
            [(-5000, 2), (0, 4), (10_000, 1), (5000, 3)].map(|(start, n)| format!("{{\"k\":\"a\",\"s\":{start},\"n\":{n}}}"));
        assert_eq!((rows, node(&status, "step").late_rows), (expected.to_vec(), 0), "parallelism {parallelism}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g27_times_at_the_ends_of_the_range() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    let transform = WINDOWED.replace("SIZE", "10s");
    let good: Vec<String> = (0..10).map(|ts| format!("{{\"k\":\"a\",\"ts\":{ts}}}")).collect();
    for (round, (extreme, bad)) in [(i64::MIN, 1), (i64::MAX, 1), (253_402_300_799_999, 0)].into_iter().enumerate() {
        let mut lines = good.clone();
        lines.push(format!("{{\"k\":\"a\",\"ts\":{extreme}}}"));
        let path = input(&cluster, &format!("input-{round}.ndjson"), &lines)?;
        let out = cluster.path(&format!("out-{round}"));
        let job = Job { settings: "parallelism: 2", source: source(&path, "drop"), transform: &transform, out: &out };
        let (status, rows) = finish(&cluster, &job).await?;
        assert_eq!(node(&status, "input").bad_records, bad, "{extreme}");
        assert!(rows.contains(&r#"{"k":"a","s":0,"n":10}"#.to_string()), "{extreme}: {rows:?}");
        assert_eq!(rows.contains(&r#"{"k":"a","s":253402300790000,"n":1}"#.to_string()), bad == 0, "{extreme}: {rows:?}");
        if bad == 1 {
            let out = cluster.path(&format!("failed-{round}"));
            let job = Job {
                settings: "parallelism: 2, checkpoint: {}",
                source: source(&path, "fail"),
                transform: &transform,
                out: &out,
            };
            let (status, _) = run(&cluster, &job).await?;
            assert_eq!((status.state(), status.restarts), (JobState::Failed, 0), "{extreme}");
            assert!(status.failure.contains(&extreme.to_string()), "{}", status.failure);
        }
    }
    Ok(())
}
