//! The rocksdb backend among real processes: what a killed TaskManager leaves in its data directory.

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_proto::v1::JobState;

use super::Job;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_task_manager_leaves_nothing_and_its_job_goes_on() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let settings = format!(
        "parallelism: 2, state: {{ backend: rocksdb, inline_threshold: 0 }}, restart: {{ strategy: fixed-delay, delay: 20ms, attempts: 5 }}, checkpoint: {{ interval: 50ms, dir: \"file://{}\" }}",
        cluster.path("checkpoints").display()
    );
    let source = "generate: { from: 0, to: 40000, rate: 20000, columns: { k: n % 1000 } }".into();
    let job =
        Job { settings: &settings, source, transform: "key_by: [k]\nwindow: global\naggregate: { n: count(*) }", out: &out };
    let id = cluster.submit(&job.graph()).await?;
    cluster.wait_for_checkpoints(&id, 2).await?;
    cluster.kill_task_manager(0)?;
    // The next one finds what the killed one had.
    std::fs::rename(cluster.path("taskmanager-0"), cluster.path("taskmanager-1"))?;
    let left = working_folders(&cluster)?;
    assert_eq!(left.len(), 1, "{left:?}");
    cluster.start_task_manager()?;
    let status = cluster.wait(&id).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 1), "{}\n{}", status.failure, cluster.logs());
    let rows = output_lines(&out)?;
    assert_eq!(rows.len(), 1_000);
    assert!(rows.iter().all(|row| row.ends_with("\"n\":40}")), "{}", rows[0]);
    let here = working_folders(&cluster)?;
    assert!(here.len() == 1 && here != left, "only the living one's is left: {here:?}, before {left:?}");
    Ok(())
}

/// Folders in the data directory of the second TaskManager.
fn working_folders(cluster: &Processes) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(cluster.path("taskmanager-1"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}
