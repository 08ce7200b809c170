//! Going on from snapshots: what tests of savepoints and restores share.

use std::fs;
use std::path::{Path, PathBuf};

use levada::client::{Afterwards, RestoreFrom};
use levada_proto::v1::{JobState, SavepointStatus};

use crate::process::Processes;

/// The URI of a path of this machine.
pub fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// From this snapshot, with all its state; from nothing where it is empty.
pub fn from(place: &str) -> RestoreFrom {
    RestoreFrom { from: place.into(), drop_state: Vec::new() }
}

/// Submits a job that begins with a snapshot.
pub async fn submit(cluster: &Processes, graph: &str, restore: RestoreFrom) -> anyhow::Result<String> {
    cluster.client().await?.submit_from(graph, "test.yaml", 0, restore).await
}

/// Stops the job with a savepoint below the cluster's `savepoints`, and waits until it is FINISHED.
pub async fn stop(cluster: &Processes, job: &str) -> anyhow::Result<SavepointStatus> {
    let savepoint = take(cluster, job, Afterwards::Stops).await?;
    cluster.finish(job).await?;
    Ok(savepoint)
}

/// Takes a savepoint below the cluster's `savepoints` as soon as all tasks of the job are running. Rows flow before.
pub async fn take(cluster: &Processes, job: &str, afterwards: Afterwards) -> anyhow::Result<SavepointStatus> {
    cluster.wait_until(job, "RUNNING", |status| status.state() == JobState::Running).await?;
    cluster.client().await?.savepoint(job, &uri(&cluster.path("savepoints")), afterwards).await
}

/// Cancels the job and waits for its end.
pub async fn cancel(cluster: &Processes, job: &str) -> anyhow::Result<()> {
    cluster.client().await?.cancel(job).await?;
    let status = cluster.wait(job).await?;
    assert_eq!(status.state(), JobState::Canceled, "{}", status.failure);
    Ok(())
}

/// The folder of a savepoint on this machine.
pub fn folder(savepoint: &SavepointStatus) -> PathBuf {
    PathBuf::from(savepoint.path.trim_start_matches("file://"))
}

/// The lines that a file sink published for checkpoints up to this one, sorted.
pub fn lines_up_to(out: &Path, checkpoint: u64) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let of = name.strip_prefix("part-").and_then(|rest| rest.split('-').nth(2)?.parse::<u64>().ok());
        if of.is_some_and(|of| of <= checkpoint) {
            lines.extend(fs::read_to_string(path)?.lines().map(String::from));
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

/// The lines of both, sorted.
pub fn sorted(mut a: Vec<String>, b: Vec<String>) -> Vec<String> {
    a.extend(b);
    a.sort_unstable();
    a
}
