//! G41: the last rows of a bounded job are published, whether or not checkpoints are taken on the way.

use levada_integration_tests::process::{Processes, Setup, leftovers};

use super::{Job, finish, input};

#[tokio::test(flavor = "multi_thread")]
async fn g41_the_end_of_a_bounded_job_is_published() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let lines: Vec<String> = (0..10_000).map(|id| format!("{{\"id\":{id}}}")).collect();
    let full = input(&cluster, "full.ndjson", &lines)?;
    let empty = input(&cluster, "empty.ndjson", &[] as &[&str])?;
    let cases =
        [(&full, "checkpoint: { interval: 60s }", 10_000), (&full, "parallelism: 3", 10_000), (&empty, "checkpoint: {}", 0)];
    for (round, (path, settings, expected)) in cases.into_iter().enumerate() {
        let out = cluster.path(&format!("out-{round}"));
        let settings = if settings.starts_with("parallelism") { settings.into() } else { format!("parallelism: 3, {settings}") };
        let source = format!("file: {{ path: \"{path}\", format: ndjson, columns: {{ id: INT64 }}, split_size: 20KiB }}");
        let job = Job { settings: &settings, source, transform: "where: id >= 0", out: &out };
        let (_, rows) = finish(&cluster, &job).await?;
        let mut wanted = lines[..expected].to_vec();
        wanted.sort_unstable();
        assert!(rows == wanted, "{settings}: {} rows", rows.len());
        assert_eq!(leftovers(&out)?, Vec::<String>::new(), "{settings}");
        if expected == 0 {
            let files = std::fs::read_dir(&out).map(Iterator::count).unwrap_or(0);
            assert_eq!(files, 0, "files for empty input");
        }
    }
    Ok(())
}
