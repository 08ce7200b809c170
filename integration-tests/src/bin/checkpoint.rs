//! Takes checkpoints of a large state under load on the embedded cluster, restores from the last, and prints what both took.
//!
//! `cargo run --release -p levada-integration-tests --bin checkpoint -- --backend fs --keys 10000000 --dir /data --checkpoints 10`
//!
//! The job keeps about 100 bytes for each key and changes them at random, as fast as it can: all keys are filled, 10 seconds are
//! quiet, then checkpoints follow, each 5 seconds after the one before. The job is cancelled and restored from the last.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use levada::client::{Client, RestoreFrom};
use levada::cluster::{Embedded, EmbeddedOptions};
use levada_integration_tests::keyed::{self, Readings};
use levada_integration_tests::nodes::rmw::{self, Marks};
use levada_integration_tests::nodes::tally::{self, Totals};
use levada_integration_tests::steps::Steps;
use levada_integration_tests::{metrics, report, usage};
use levada_proto::v1::{CheckpointStatus, JobState};
use levada_taskmanager::Observer;
use serde_json::{Value, json};
use tokio::time::sleep;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The node of the function.
const STATES: &str = "states";

/// Records that the source has: more than it comes to.
const RECORDS: u64 = 1 << 40;

/// The quiet time before the first checkpoint.
const QUIET: Duration = Duration::from_secs(10);

/// Between the end of a checkpoint and the next one.
const PAUSE: Duration = Duration::from_secs(5);

/// Before and after a barrier, steps are counted for so long.
const WINDOW: Duration = Duration::from_secs(1);

/// Between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks that find no compaction before there is none.
const LOOKS_AT_REST: u32 = 5;

/// Keys that are written between the two checkpoints whose uploads are compared.
const CHANGED_KEYS: u64 = 100_000;

#[derive(Parser)]
#[command(about = "Takes checkpoints of a large state under load and restores from the last")]
struct Arguments {
    /// fs or rocksdb.
    #[arg(long, default_value = "fs")]
    backend: String,
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Directory of the checkpoints.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value_t = 10)]
    checkpoints: u32,
    /// taskmanager.memory.total.
    #[arg(long, default_value = "8GiB")]
    memory: String,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn graph(&self, dir: &Path) -> String {
        format!(
            "version: 1
name: checkpoint
settings:
  state: {{ backend: {backend} }}
  checkpoint: {{ interval: 24h, timeout: 1h, dir: {dir} }}
sources:
  input: {{ rmw: {{}} }}
transforms:
  {STATES}: {{ inputs: [input], key_by: [key], process: blob }}
sinks:
  out: {{ inputs: [{STATES}], tally: {{ hash: [key, x] }} }}
",
            backend = self.backend,
            dir = json!(format!("file://{}", dir.display())),
        )
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if !["fs", "rocksdb"].contains(&arguments.backend.as_str()) {
        bail!("no backend \"{}\" that writes files; backends: fs, rocksdb", arguments.backend);
    }
    if arguments.keys < CHANGED_KEYS || arguments.keys >= 1 << 31 {
        bail!("--keys {} is not between {CHANGED_KEYS} and 2^31 - 1", arguments.keys);
    }
    if arguments.checkpoints == 0 {
        bail!("--checkpoints 0: there is nothing to restore from");
    }
    let report = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(&arguments))?;
    report::print(&report, arguments.json);
    Ok(())
}

/// A checkpoint, and what its client saw of it.
struct Taken {
    status: CheckpointStatus,
    events_per_second: f64,
}

/// A running job and who watches it.
struct Bench {
    cluster: Embedded,
    client: Client,
    marks: Arc<Marks>,
    steps: Arc<Steps>,
}

impl Bench {
    async fn start(arguments: &Arguments) -> anyhow::Result<Self> {
        let (marks, steps, totals) = (Arc::new(Marks::default()), Arc::new(Steps::of(STATES)), Arc::new(Totals::default()));
        let options =
            EmbeddedOptions { settings: vec![format!("taskmanager.memory.total={}", arguments.memory)], ..Default::default() };
        let cluster = Embedded::start(options, {
            let (marks, steps, keys, readings) = (Arc::clone(&marks), Arc::clone(&steps), arguments.keys, Readings::default());
            move |builder| {
                let (declaration, factory) = tally::sink(Arc::clone(&totals));
                let builder = builder.sink(declaration, factory);
                let (declaration, factory) = rmw::source(keys, RECORDS, Arc::clone(&marks));
                let builder = keyed::register(builder.source(declaration, factory), "blob", keys, &readings);
                builder.observer(Arc::clone(&steps) as Arc<dyn Observer>)
            }
        })
        .await?;
        let client = cluster.client().await?;
        Ok(Self { cluster, client, marks, steps })
    }

    /// Waits until this holds. Errors: the job is not running any more.
    async fn wait(&mut self, job: &str, mut holds: impl FnMut(&Self) -> bool) -> anyhow::Result<()> {
        while !holds(self) {
            let status = self.client.describe(job).await?;
            if levada::client::is_terminal(status.state()) || status.restarts > 0 {
                bail!("the job is {} after {} restarts: {}", status.state().as_str_name(), status.restarts, status.failure);
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn checkpoint(&mut self, job: &str) -> anyhow::Result<Taken> {
        let (began, rows) = (Instant::now(), self.steps.rows());
        let status = self.client.checkpoint(job).await?;
        let rows = self.steps.rows() - rows;
        Ok(Taken { status, events_per_second: rows as f64 / began.elapsed().as_secs_f64() })
    }

    async fn cancel(&mut self, job: &str) -> anyhow::Result<()> {
        self.client.cancel(job).await?;
        let status = self.cluster.wait(job).await?;
        if status.state() != JobState::Canceled {
            bail!("the job ended {}: {}", status.state().as_str_name(), status.failure);
        }
        Ok(())
    }

    /// Bytes uploaded for a checkpoint after a change of few keys, to those of the one before, which has what all keys changed; and
    /// the last checkpoint. The source is held, and databases are at rest before.
    async fn upload_ratio(&mut self, job: &str, dir: &Path) -> anyhow::Result<(f64, CheckpointStatus)> {
        self.marks.hold(0..0);
        self.wait(job, |bench| bench.marks.is_quiet()).await?;
        self.wait_for_compactions().await?;
        let (mut uploaded, mut newest) = (Vec::new(), CheckpointStatus::default());
        for keys in [0..0, 0..CHANGED_KEYS] {
            self.marks.hold(keys);
            self.wait(job, |bench| bench.marks.is_quiet()).await?;
            let before = files(dir)?;
            newest = self.client.checkpoint(job).await?;
            let new = files(dir)?.into_iter().filter(|(path, _)| !before.contains_key(path));
            uploaded.push(new.map(|(_, bytes)| bytes).sum::<u64>());
        }
        Ok((uploaded[1] as f64 / uploaded[0] as f64, newest))
    }

    /// Waits until RocksDB neither compacts nor has to.
    async fn wait_for_compactions(&self) -> anyhow::Result<()> {
        let mut at_rest = 0;
        while at_rest < LOOKS_AT_REST {
            let address = self.cluster.http_addresses().next().context("no TaskManager")?;
            let compactions = metrics::read(address, "levada_rocksdb_compactions").await?;
            at_rest = if compactions == 0.0 { at_rest + 1 } else { 0 };
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

async fn run(arguments: &Arguments) -> anyhow::Result<Value> {
    fs::create_dir_all(&arguments.dir)?;
    let dir = std::path::absolute(&arguments.dir)?;
    let graph = arguments.graph(&dir);
    let mut bench = Bench::start(arguments).await?;
    let job = bench.cluster.submit(&graph, "checkpoint.yaml").await?;
    bench.wait(&job, |bench| bench.marks.filled().is_some()).await?;

    usage::forget_peak_rss()?;
    let (began, rows) = (Instant::now(), bench.steps.rows());
    sleep(QUIET).await;
    let quiet = (bench.steps.rows() - rows) as f64 / began.elapsed().as_secs_f64();
    let quiet_peak = usage::peak_rss_bytes();

    let mut taken = Vec::new();
    for _ in 0..arguments.checkpoints {
        taken.push(bench.checkpoint(&job).await?);
        sleep(PAUSE).await;
    }
    let peak = usage::peak_rss_bytes();
    let seen = bench.steps.around_barriers(WINDOW);
    let (mut ratio, mut last) = (None, taken.last().context("at least one checkpoint was taken")?.status.clone());
    if arguments.backend == "rocksdb" {
        let (uploaded, newest) = bench.upload_ratio(&job, &dir).await?;
        (ratio, last) = (Some(uploaded), newest);
    }
    bench.cancel(&job).await?;

    bench.marks.go_on();
    let (began, rows) = (Instant::now(), bench.steps.rows());
    let from = RestoreFrom { from: last.metadata.clone(), drop_state: Vec::new() };
    let restored = bench.client.submit_from(&graph, "checkpoint.yaml", 0, from).await?;
    bench.wait(&restored, |bench| bench.steps.rows() > rows).await?;
    let first = bench.steps.first_after(began).context("no row was taken in after the restore")?;
    bench.cancel(&restored).await?;
    bench.cluster.shutdown().await;

    let seconds = median(taken.iter().map(|taken| taken.status.duration_ms as f64 / 1e3).collect());
    let bytes = median(taken.iter().map(|taken| taken.status.bytes as f64).collect()) as u64;
    Ok(json!({
        "backend": arguments.backend,
        "keys": arguments.keys,
        "checkpoints": arguments.checkpoints,
        "sync_ms_p99": p99_ms(seen.sync),
        "step_ms_p99_before": p99_ms(seen.before),
        "step_ms_p99_after": p99_ms(seen.after),
        "events_per_second_quiet": quiet,
        "events_per_second_during": median(taken.iter().map(|taken| taken.events_per_second).collect()),
        "rss_peak_quiet_bytes": quiet_peak,
        "rss_peak_bytes": peak,
        "snapshot_bytes": bytes,
        "snapshot_seconds": seconds,
        "restore_seconds": (first - began).as_secs_f64(),
        "dd_seconds": dd(&dir, bytes)?,
        "upload_ratio_1_percent": ratio,
    }))
}

/// Seconds in which `dd` writes so many bytes into the directory, synced.
fn dd(dir: &Path, bytes: u64) -> anyhow::Result<f64> {
    let (file, count) = (dir.join("dd"), bytes.div_ceil(1 << 20));
    let began = Instant::now();
    let done = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "conv=fsync", &format!("of={}", file.display()), &format!("count={count}")])
        .output()
        .context("running dd")?;
    if !done.status.success() {
        bail!("dd failed: {}", String::from_utf8_lossy(&done.stderr));
    }
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(file)?;
    Ok(seconds)
}

/// The files below a directory, with their sizes, but for those that are deleted meanwhile.
fn files(dir: &Path) -> anyhow::Result<BTreeMap<PathBuf, u64>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in there(fs::read_dir(&folder))?.into_iter().flatten() {
            let entry = entry?;
            match there(entry.metadata())? {
                Some(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Some(metadata) => _ = found.insert(entry.path(), metadata.len()),
                None => {}
            }
        }
    }
    Ok(found)
}

/// What was found, if it is there.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The ceil(0.99 n)-th of n durations, in milliseconds.
fn p99_ms(mut durations: Vec<Duration>) -> Option<f64> {
    durations.sort_unstable();
    let place = (durations.len() * 99).div_ceil(100).checked_sub(1)?;
    Some(durations[place].as_secs_f64() * 1e3)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
