//! G83: names with letters of other alphabets, blanks and signs that URIs use stay as they are, wherever a user writes them.

use std::path::Path;

use levada::client::Afterwards;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::savepoint::{cancel, folder, from, submit, uri};
use levada_proto::v1::JobStatus;

use super::{input, node};

const NAMES: [&str; 9] = ["mäggi", "a b", "L%3ABC", "100%", "x+y", "q?z", "#1", "日本", "~t"];

/// Counts the rows of a file called `name`, and those of a source without end; every path lies in `dir`, and is written by `place`.
fn graph(name: &str, path: &str, dir: &Path, place: impl Fn(&Path) -> String) -> String {
    format!(
        "version: 1
name: \"{name}\"
settings: {{ state: {{ backend: fs, inline_threshold: 0 }}, checkpoint: {{ interval: 50ms, dir: \"{}\" }} }}
sources:
  \"{name}\": {{ file: {{ path: \"{path}\", format: ndjson, columns: {{ n: INT64 }} }}, watermark: none }}
  more: {{ generate: {{ from: 0, rate: 100, columns: {{ n: n % 300 }} }}, watermark: none }}
transforms:
  sums: {{ inputs: [\"{name}\", more], key_by: [n], aggregate: {{ rows: count(*) }} }}
sinks:
  out: {{ inputs: [sums], file: {{ path: \"{}\", format: ndjson }} }}
",
        uri(&dir.join("checkpoints")),
        place(&dir.join("out")),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn g83_special_names_stay_as_they_are() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    let lines: Vec<String> = (0..300).map(|n| format!("{{\"n\":{n}}}")).collect();
    for (round, name) in NAMES.into_iter().enumerate() {
        let dir = cluster.path(name);
        std::fs::create_dir_all(&dir)?;
        let path = input(&cluster, &format!("{name}/in {name}"), &lines)?;
        // What is written: a path, or a URI of the same letters.
        let place = |path: &Path| if round % 2 == 0 { uri(path) } else { path.display().to_string() };
        let graph = graph(name, &path, &dir, place);
        let job = cluster.submit(&graph).await.map_err(|error| error.context(name))?;
        let is_read = |status: &JobStatus| node(status, name).rows_out == 300;
        let status = cluster.wait_until(&job, "the file is read", is_read).await.map_err(|error| error.context(name))?;
        cluster.wait_for_checkpoints(&job, status.checkpoints.map_or(0, |all| all.completed) + 2).await?;
        let checkpoints = std::fs::read_dir(dir.join("checkpoints"))?.collect::<Result<Vec<_>, _>>()?;
        assert!(checkpoints.len() == 1 && checkpoints[0].file_name() == *job, "{name}: {checkpoints:?}");
        let savepoint = cluster.client().await?.savepoint(&job, &uri(&dir.join("savepoints")), Afterwards::Stops).await?;
        cluster.finish(&job).await?;
        assert_eq!(folder(&savepoint).parent(), Some(dir.join("savepoints").as_path()), "{name}");
        assert!(folder(&savepoint).join("_metadata").exists() && !output_lines(&dir.join("out"))?.is_empty(), "{name}");
        let next = submit(&cluster, &graph, from(&savepoint.path)).await.map_err(|error| error.context(name))?;
        let status = cluster.wait_for_checkpoints(&next, 2).await?;
        assert_eq!(node(&status, name).rows_out, 0, "{name}: the file was read before");
        cancel(&cluster, &next).await?;
    }
    Ok(())
}
