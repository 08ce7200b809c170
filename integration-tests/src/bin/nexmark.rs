//! Runs one benchmark query on the embedded cluster and prints what it took: a table, or one JSON object with `--json`.
//!
//! `cargo run --release -p levada-integration-tests --bin nexmark -- --query q7 --backend memory --parallelism 1 --events 30000000`

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Parser;
use levada::cluster::{Embedded, EmbeddedOptions};
use levada_integration_tests::nodes::tally::{self, Totals};
use levada_integration_tests::queries::{NAMES, Query};
use levada_integration_tests::text::Text;
use levada_integration_tests::{report, usage};
use levada_taskmanager::Observer;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Runs a benchmark query on the embedded cluster")]
struct Arguments {
    /// One of q0, q1, q2, q3, q4, q5, q6, q7, q7k, q8, q9, q11, q12, q12e, q13, q15, q16, q17, q18, q19, q20, words, few2s, few100ms, many2s,
    /// many100ms.
    #[arg(long, default_value = "q7")]
    query: String,
    /// memory, fs or rocksdb.
    #[arg(long, default_value = "memory")]
    backend: String,
    #[arg(long, default_value_t = 1)]
    parallelism: u32,
    /// Nexmark events of all three kinds.
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// Interval of checkpoints, such as 10s; off where absent.
    #[arg(long)]
    checkpoint: Option<String>,
    /// Directory of checkpoints.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The text that `words` counts.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Writes the text of `words` to this file and ends.
    #[arg(long, requires = "bytes")]
    make_text: Option<PathBuf>,
    /// Size of the text.
    #[arg(long)]
    bytes: Option<u64>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Notes when, and at what CPU time, the first source takes its first step.
#[derive(Default)]
struct FirstStep(Mutex<Option<(Instant, f64)>>);

impl Observer for FirstStep {
    fn first_step(&self, _vertex: &str, _subtask: u32) {
        self.0.lock().expect("no holder panics").get_or_insert_with(|| (Instant::now(), usage::cpu_seconds()));
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let (Some(path), Some(bytes)) = (&arguments.make_text, arguments.bytes) {
        let words = Text::new().write(path, bytes).with_context(|| format!("writing \"{}\"", path.display()))?;
        println!("{words} words");
        return Ok(());
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).map(|path| path.display().to_string());
    let query = Query {
        name: arguments.query.clone(),
        backend: arguments.backend.clone(),
        parallelism: arguments.parallelism,
        events: arguments.events,
        checkpoint: arguments.checkpoint.clone(),
        dir: arguments.dir.as_ref().map(absolute).transpose()?,
        file: arguments.file.as_ref().map(absolute).transpose()?,
    };
    let Some(graph) = query.graph() else { bail!("no query \"{}\"; queries: {}", query.name, NAMES.join(", ")) };
    if query.name == "words" && query.file.is_none() {
        bail!("--query words needs --file (make one with --make-text FILE --bytes 256000000)");
    }
    let report =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(&query, &graph))?;
    report::print(&report, arguments.json);
    Ok(())
}

async fn run(query: &Query, graph: &str) -> anyhow::Result<serde_json::Value> {
    let (totals, first) = (Arc::new(Totals::default()), Arc::new(FirstStep::default()));
    let options = EmbeddedOptions { slots: query.parallelism, ..EmbeddedOptions::default() };
    let cluster = Embedded::start(options, {
        let (totals, first) = (Arc::clone(&totals), Arc::clone(&first));
        move |builder| {
            let (declaration, factory) = tally::sink(Arc::clone(&totals));
            builder.sink(declaration, factory).observer(Arc::clone(&first) as Arc<dyn Observer>)
        }
    })
    .await?;
    let job = cluster.submit(graph, &format!("{}.yaml", query.name)).await?;
    let status = cluster.wait(&job).await?;
    let (end, cpu_end, peak) = (Instant::now(), usage::cpu_seconds(), usage::peak_rss_bytes());
    cluster.shutdown().await;
    if status.state() != levada_proto::v1::JobState::Finished {
        bail!("the job ended {}: {}", status.state().as_str_name(), status.failure);
    }
    let (start, cpu_start) = first.0.lock().expect("no holder panics").take().context("no source took a step")?;
    let records = if query.name == "words" { rows_of(&status, "words") } else { query.events };
    let (seconds, cpu) = ((end - start).as_secs_f64(), cpu_end - cpu_start);
    Ok(json!({
        "query": query.name,
        "backend": query.backend,
        "parallelism": query.parallelism,
        "checkpoint": query.checkpoint,
        "events": records,
        "seconds": seconds,
        "events_per_second": records as f64 / seconds,
        "cpu_seconds_per_million": cpu / (records as f64 / 1e6),
        "peak_rss_bytes": peak,
        "rows_out": totals.rows(),
        "hash": format!("{:016x}", totals.hash()),
    }))
}

fn rows_of(status: &levada_proto::v1::JobStatus, uid: &str) -> u64 {
    status.nodes.iter().find(|node| node.uid == uid).map_or(0, |node| node.rows_out)
}
