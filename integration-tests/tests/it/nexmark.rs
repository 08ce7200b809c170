//! The example jobs over Nexmark's events, as tests run them.

use std::path::Path;

use levada_common::graph::{JobGraph, parse};
use levada_integration_tests::process::{Processes, leftovers};
use levada_proto::v1::JobState;

/// An example over so many events, writing to `out`.
pub fn graph(example: &str, parallelism: u32, events: u64, rate: Option<u64>, out: &Path) -> JobGraph {
    let mut graph = parse(example).expect("the examples are good jobs");
    graph.settings.parallelism = Some(parallelism);
    for source in &mut graph.sources {
        if source.connector == "nexmark" {
            source.options.insert("events".into(), events.into());
        }
        if let Some(rate) = rate {
            source.options.insert("rate".into(), rate.into());
        }
    }
    graph.sinks[0].options.insert("path".into(), out.display().to_string().into());
    graph
}

/// Runs a job as `start` does, and ends it as `kill_and_finish` does.
pub async fn finish_after_a_kill(cluster: &mut Processes, graph: JobGraph, backend: &str, out: &Path) -> anyhow::Result<()> {
    let job = start(cluster, graph, backend).await?;
    kill_and_finish(cluster, &job, out).await
}

/// Starts a job at parallelism 2 with many checkpoints on this backend, and waits for some of them.
pub async fn start(cluster: &Processes, mut graph: JobGraph, backend: &str) -> anyhow::Result<String> {
    let settings = format!(
        "version: 1\nname: s\nsettings: {{ parallelism: 2, state: {{ backend: {backend} }}, checkpoint: {{ interval: 100ms, dir: \"file://{}\" }}, restart: {{ strategy: fixed-delay, attempts: 20, delay: 50ms }} }}\nsources: {{ a: {{ nexmark: {{}} }} }}\nsinks: {{ b: {{ inputs: [a], blackhole: {{}} }} }}\n",
        cluster.path("checkpoints").display()
    );
    graph.settings = parse(&settings).expect("good settings").settings;
    let job = cluster.submit(&graph.to_yaml()).await?;
    cluster.wait_for_checkpoints(&job, 3).await?;
    Ok(job)
}

/// Kills a TaskManager, and waits until the job has FINISHED and left nothing in `out` that it did not publish.
pub async fn kill_and_finish(cluster: &mut Processes, job: &str, out: &Path) -> anyhow::Result<()> {
    let victim = cluster.running()[0];
    cluster.kill_task_manager(victim)?;
    cluster.start_task_manager()?;
    let status = cluster.wait(job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}\n{}", status.failure, cluster.logs());
    assert!(status.restarts >= 1, "the kill did not hit the job");
    assert_eq!(leftovers(out)?, Vec::<String>::new());
    Ok(())
}
