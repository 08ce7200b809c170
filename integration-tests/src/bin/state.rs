//! Runs the keyed-state benchmark on the embedded cluster and prints what it took: a table, or one JSON object with `--json`.
//!
//! `cargo run --release -p levada-integration-tests --bin state -- --kind value --keys 1000000 --records 20000000 --backend memory`
//!
//! With `--backend rocksdb --overlay 5MiB --cache 256MiB` the overlay has about a tenth of a million keys, and the databases the
//! cache of the hand-written loop that it is compared with.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Parser;
use levada::cluster::{Embedded, EmbeddedOptions};
use levada_common::human::ByteSize;
use levada_integration_tests::keyed::{self, KINDS, Readings};
use levada_integration_tests::nodes::rmw::{self, Marks, Usage};
use levada_integration_tests::nodes::tally::{self, Totals};
use levada_integration_tests::{report, usage};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Runs the keyed-state benchmark on the embedded cluster")]
struct Arguments {
    /// One of value, list, map, reduce, blob.
    #[arg(long, default_value = "value")]
    kind: String,
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Records after the fill, which are measured.
    #[arg(long, default_value_t = 20_000_000)]
    records: u64,
    /// memory, fs or rocksdb.
    #[arg(long, default_value = "memory")]
    backend: String,
    #[arg(long, default_value_t = 1)]
    parallelism: u32,
    /// taskmanager.memory.total, such as 4GiB.
    #[arg(long, conflicts_with_all = ["overlay", "cache"])]
    memory: Option<String>,
    /// Memory of the overlay before the databases, such as 8MiB.
    #[arg(long, requires = "cache")]
    overlay: Option<ByteSize>,
    /// Memory for the databases' blocks, such as 256MiB.
    #[arg(long, requires = "overlay")]
    cache: Option<ByteSize>,
    /// Interval of checkpoints, such as 10s; off where absent.
    #[arg(long)]
    checkpoint: Option<String>,
    /// Directory of checkpoints.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn check(&self) -> anyhow::Result<()> {
        if !KINDS.contains(&self.kind.as_str()) {
            bail!("no kind \"{}\"; kinds: {}", self.kind, KINDS.join(", "));
        }
        if self.keys == 0 || self.keys >= 1 << 31 {
            bail!("--keys {} is not between 1 and 2^31 - 1", self.keys);
        }
        Ok(())
    }

    /// Settings of the TaskManager's memory.
    fn settings(&self) -> Vec<String> {
        match (self.overlay, self.cache) {
            (Some(overlay), Some(cache)) => {
                let (overlay, cache) = (overlay.as_bytes() as f64, cache.as_bytes() as f64);
                vec![
                    format!("taskmanager.memory.total={}", ((overlay + cache) * 2.0) as u64),
                    "rocksdb.memory_fraction=0.5".into(),
                    format!("rocksdb.overlay_fraction={}", overlay / (overlay + cache)),
                ]
            }
            _ => self.memory.iter().map(|memory| format!("taskmanager.memory.total={memory}")).collect(),
        }
    }

    fn graph(&self) -> anyhow::Result<String> {
        let dir = self.dir.as_ref().map(std::path::absolute).transpose()?;
        let dir = dir.map(|dir| format!(", dir: {}", json!(format!("file://{}", dir.display())))).unwrap_or_default();
        let checkpoint = match &self.checkpoint {
            Some(interval) => format!("\n  checkpoint: {{ interval: {interval}{dir} }}"),
            None => String::new(),
        };
        Ok(format!(
            "version: 1
name: state-{kind}
settings:
  parallelism: {parallelism}
  state: {{ backend: {backend} }}{checkpoint}
sources:
  input: {{ rmw: {{}} }}
transforms:
  states: {{ inputs: [input], key_by: [key], process: {kind} }}
sinks:
  out: {{ inputs: [states], tally: {{ hash: [key, x] }} }}
",
            kind = self.kind,
            parallelism = self.parallelism,
            backend = self.backend,
        ))
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    arguments.check()?;
    let report = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(&arguments))?;
    report::print(&report, arguments.json);
    Ok(())
}

async fn run(arguments: &Arguments) -> anyhow::Result<serde_json::Value> {
    let (keys, records) = (arguments.keys, arguments.records);
    let (totals, marks, readings) = (Arc::new(Totals::default()), Arc::new(Marks::default()), Readings::default());
    let options = EmbeddedOptions { slots: arguments.parallelism, settings: arguments.settings(), ..EmbeddedOptions::default() };
    let cluster = Embedded::start(options, {
        let (totals, marks, readings, kind) =
            (Arc::clone(&totals), Arc::clone(&marks), Arc::clone(&readings), arguments.kind.clone());
        move |builder| {
            let (declaration, factory) = tally::sink(Arc::clone(&totals));
            let builder = builder.sink(declaration, factory);
            let (declaration, factory) = rmw::source(keys, records, Arc::clone(&marks));
            keyed::register(builder.source(declaration, factory), &kind, keys, &readings)
        }
    })
    .await?;
    let job = cluster.submit(&arguments.graph()?, "state.yaml").await?;
    let status = cluster.wait(&job).await?;
    let (end, peak) = (Usage::now(), usage::peak_rss_bytes());
    cluster.shutdown().await;
    if status.state() != levada_proto::v1::JobState::Finished {
        bail!("the job ended {}: {}", status.state().as_str_name(), status.failure);
    }
    let start = marks.start().context("no source was opened")?;
    let filled = marks.filled().context("the fill did not end")?;
    let readings = readings.lock().expect("no holder panics");
    let expected = keyed::recount(&arguments.kind, keys, keys + records);
    if *readings != expected {
        let wrong = expected.iter().find(|(key, reading)| readings.get(key) != Some(reading));
        bail!("of {} keys read back, {} were found; not as recounted: {wrong:?}", expected.len(), readings.len());
    }
    let (seconds, cpu) = ((end.at - filled.at).as_secs_f64(), end.cpu_seconds - filled.cpu_seconds);
    Ok(json!({
        "kind": arguments.kind,
        "backend": arguments.backend,
        "parallelism": arguments.parallelism,
        "keys": keys,
        "checkpoint": arguments.checkpoint,
        "overlay_bytes": arguments.overlay.map(|size| size.as_bytes()),
        "cache_bytes": arguments.cache.map(|size| size.as_bytes()),
        "events": records,
        "seconds": seconds,
        "events_per_second": records as f64 / seconds,
        "cpu_seconds_per_million": cpu / (records as f64 / 1e6),
        "fill_cpu_seconds_per_million": (filled.cpu_seconds - start.cpu_seconds) / (keys as f64 / 1e6),
        "peak_rss_bytes": peak,
        "rss_bytes_per_key": filled.rss_bytes.saturating_sub(start.rss_bytes) as f64 / keys as f64,
        "rows_out": totals.rows(),
        "hash": format!("{:016x}", totals.hash()),
    }))
}
