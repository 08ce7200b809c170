//! G33: the wall clock of one process and then of another is put back while jobs run.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use levada_common::time::calendar::parse_timestamp;
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::{CheckpointsStatus, JobState, JobStatus};
use serde_json::Value;

const JOB_MANAGER: &str = "levada-jobmanager";

const TASK_MANAGER: &str = "test-taskmanager";

/// Ten minutes, in seconds.
const STEP_S: i64 = 600;

/// Rows of the job with windows of processing time, and how many come in a second.
const ROWS: u64 = 12_000;
const RATE: u64 = 1_000;

/// Wall clocks that can be put forward and back, by the name of the program.
struct Clocks {
    dir: tempfile::TempDir,
}

impl Clocks {
    fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/clock.c");
        let library = dir.path().join("clock.so");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).output().context("cc")?;
        ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        for program in [JOB_MANAGER, TASK_MANAGER] {
            fs::write(dir.path().join(program), 0i64.to_ne_bytes())?;
        }
        Ok(Self { dir })
    }

    fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![("LD_PRELOAD".into(), text(&self.dir.path().join("clock.so"))), ("LEVADA_CLOCKS".into(), text(self.dir.path()))]
    }

    /// Puts the clocks of a program's processes ten minutes back.
    fn put_back(&self, program: &str) -> anyhow::Result<()> {
        // In place: the processes have it mapped.
        let file = OpenOptions::new().write(true).open(self.dir.path().join(program))?;
        Ok(file.write_all_at(&(-STEP_S).to_ne_bytes(), 0)?)
    }
}

fn windows(settings: &str, out: &Path) -> String {
    format!(
        "version: 1
name: by-the-clock
settings:
{settings}
sources:
  numbers:
    generate: {{ from: 0, to: {ROWS}, rate: {RATE}, columns: {{ k: n % 3 }} }}
transforms:
  counts:
    inputs: [numbers]
    key_by: [k]
    window: {{ tumbling: {{ size: 1s }}, time: processing }}
    aggregate: {{ n: count(*) }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        out.display()
    )
}

fn checkpoints(status: &JobStatus) -> CheckpointsStatus {
    status.checkpoints.clone().unwrap_or_default()
}

/// Nothing of a job that has only seen a clock go wrong is other than it would be: ids rise, and no time shown is less than nothing.
fn assert_undisturbed(status: &JobStatus, what: &str) {
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 0), "{what}: {}", status.failure);
    let all = checkpoints(status);
    assert_eq!(all.failed, 0, "{what}: {:?}", all.last_failed);
    assert!(all.history.windows(2).all(|pair| pair[0].id > pair[1].id), "{what}: {:?}", all.history);
    let durations = all.history.iter().map(|checkpoint| checkpoint.duration_ms).chain([all.age_ms]);
    assert!(durations.into_iter().all(|ms| ms < 120_000), "{what}: a time is negative, or ten minutes: {all:?}");
}

async fn more_checkpoints(cluster: &Processes, jobs: &[&String]) -> anyhow::Result<()> {
    for job in jobs {
        let completed = checkpoints(&cluster.describe(job).await?).completed;
        cluster.wait_for_checkpoints(job, completed + 5).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g33_wall_clocks_that_are_put_back_disturb_nothing() -> anyhow::Result<()> {
    let clocks = Clocks::new()?;
    let cluster = Processes::start(Setup { slots: 3, environment: clocks.environment(), ..Setup::default() }).await?;
    for pid in cluster.pids() {
        ensure!(fs::read_to_string(format!("/proc/{pid}/maps"))?.contains("clock.so"), "process {pid} has its own clock");
    }
    let settings =
        "  parallelism: 2\n  checkpoint: { interval: 200ms }\n  restart: { strategy: fixed-delay, attempts: 10, delay: 50ms }";
    let (out, by_clock) = (cluster.path("out"), cluster.path("by-clock"));
    let stream = StreamA { rows: 200_000, rate: Some(16_000), settings: settings.into() };
    let stream_a = cluster.submit(&stream.graph(&out)).await?;
    let windowed = cluster.submit(&windows(settings, &by_clock)).await?;
    let both = [&stream_a, &windowed];
    more_checkpoints(&cluster, &both).await?;
    clocks.put_back(TASK_MANAGER)?;
    more_checkpoints(&cluster, &both).await?;
    clocks.put_back(JOB_MANAGER)?;
    more_checkpoints(&cluster, &both).await?;
    let (of_stream, of_windows) = (cluster.wait(&stream_a).await?, cluster.wait(&windowed).await?);
    assert_undisturbed(&of_stream, "stream A");
    assert_undisturbed(&of_windows, "windows");
    assert_eq!(cluster.client().await?.describe_cluster().await?.task_managers.len(), 2);
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());

    let mut counts = BTreeMap::<i64, BTreeMap<i64, u64>>::new();
    for line in output_lines(&by_clock)? {
        let row: Value = serde_json::from_str(&line)?;
        let number = |name: &str| row[name].as_i64().context("a number");
        let start = row["window_start"].as_str().and_then(parse_timestamp).context("a time")?;
        let before = counts.entry(number("k")?).or_default().insert(start, number("n")? as u64);
        ensure!(before.is_none(), "the window of {start} fired twice");
    }
    assert_eq!(counts.values().flat_map(BTreeMap::values).sum::<u64>(), ROWS);
    for (key, counts) in counts {
        let starts: Vec<i64> = counts.keys().copied().collect();
        ensure!(starts.windows(2).all(|pair| pair[1] - pair[0] <= 2_000), "key {key}: windows are missing: {starts:?}");
        ensure!(counts.values().all(|rows| *rows < 3 * RATE), "key {key}: a burst in {counts:?}");
    }

    // That the clocks did go back: what begins now began, by the JobManager, ten minutes ago.
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let probe =
        cluster.submit(&StreamA { rows: 10_000, rate: None, settings: settings.into() }.graph(&cluster.path("probe"))).await?;
    let submitted_at_ms = cluster.wait(&probe).await?.submitted_at_ms;
    ensure!(submitted_at_ms + 500_000 < now_ms, "submitted at {submitted_at_ms}, it is {now_ms}");
    Ok(())
}
