//! Failures that people met in systems of this kind, one test a case; the number is the case's.

mod alignment;
mod clock;
mod data;
mod disk;
mod event_time;
mod fence;
mod file;
mod leak;
mod names;
mod narrow;
mod order;
mod progress;
mod restore;
mod rocks;
mod sink;
mod size;
mod store;
mod store_output;
mod timer;
mod watermark;
mod window;

use std::path::Path;

use levada_integration_tests::process::{Processes, output_lines};
use levada_proto::v1::{JobState, JobStatus, NodeStatus};

/// Writes `lines` as a file below the cluster's folder and answers its path.
fn input(cluster: &Processes, name: &str, lines: &[impl AsRef<[u8]>]) -> anyhow::Result<String> {
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(line.as_ref());
        text.push(b'\n');
    }
    let path = cluster.path(name);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// A job from one source through one transform to a file sink.
struct Job<'a> {
    settings: &'a str,
    source: String,
    transform: &'a str,
    out: &'a Path,
}

impl Job<'_> {
    fn graph(&self) -> String {
        format!(
            "version: 1\nname: case\nsettings: {{ {} }}\nsources:\n  input:\n{}\ntransforms:\n  step:\n    inputs: [input]\n{}\nsinks:\n  out:\n    inputs: [step]\n    file: {{ path: \"{}\", format: ndjson }}\n",
            self.settings,
            indent(&self.source),
            indent(self.transform),
            self.out.display()
        )
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Runs the job to its end and answers its status and the rows it published.
async fn run(cluster: &Processes, job: &Job<'_>) -> anyhow::Result<(JobStatus, Vec<String>)> {
    let id = cluster.submit(&job.graph()).await?;
    let status = cluster.wait(&id).await?;
    Ok((status, output_lines(job.out)?))
}

/// As `run`, where the job must finish.
async fn finish(cluster: &Processes, job: &Job<'_>) -> anyhow::Result<(JobStatus, Vec<String>)> {
    let (status, rows) = run(cluster, job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}\n{}", status.failure, cluster.logs());
    Ok((status, rows))
}

fn node<'a>(status: &'a JobStatus, uid: &str) -> &'a NodeStatus {
    status.nodes.iter().find(|node| node.uid == uid).unwrap_or_else(|| panic!("no node \"{uid}\""))
}

/// Waits until the folder of a file sink shows exactly these rows.
async fn wait_for_rows(cluster: &Processes, job: &str, out: &Path, expected: &[String]) -> anyhow::Result<()> {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let shown = |_: &JobStatus| output_lines(out).is_ok_and(|rows| rows == expected);
    let waited = cluster.wait_until(job, "the expected rows", shown).await;
    if let Err(error) = waited {
        anyhow::bail!("expected {expected:?}, found {:?}: {error:#}", output_lines(out)?);
    }
    Ok(())
}
