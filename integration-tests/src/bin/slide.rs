//! What a window's slide costs: the sliding counts of the benchmark queries, the operator alone on one thread, so that taking rows in
//! and giving results are told apart.
//!
//! `cargo run --release -p levada-integration-tests --bin slide -- --events 20000000`
//!
//! Batches of bids are made beforehand. `in_ns_per_row` is `Operator::process` by the rows taken in, `out_ns_per_row` the watermark
//! behind each batch and all that is polled then, by the rows that come out. Of several rounds the least time counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::record_batch::RecordBatch;
use clap::Parser;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{OperatorKind, OperatorSpec};
use levada_common::time::Watermark;
use levada_engine::function::Functions;
use levada_engine::metrics::NodeMetrics;
use levada_engine::operator::OperatorContext;
use levada_engine::operators;
use levada_integration_tests::bids::{Bid, bid};
use levada_integration_tests::nodes::tally::{self, Totals};
use levada_integration_tests::queries::Query;
use levada_integration_tests::report;
use levada_sql::{Compiler, PlanOverrides};
use levada_state::keyed::HeapBudget;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Those that are compared: of few keys and of many, by two seconds and by a twentieth of that.
const QUERIES: [&str; 4] = ["few2s", "few100ms", "many2s", "many100ms"];

#[derive(Parser)]
#[command(about = "Measures what a window's slide costs, apart for rows that come in and rows that go out")]
struct Arguments {
    /// Nexmark events of all three kinds.
    #[arg(long, default_value_t = 20_000_000)]
    events: u64,
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What the operator of a query took.
#[derive(Debug, Clone, Copy)]
struct Taken {
    taking: Duration,
    giving: Duration,
    rows_in: usize,
    rows_out: usize,
}

impl Taken {
    fn in_ns(&self) -> f64 {
        self.taking.as_nanos() as f64 / self.rows_in as f64
    }

    fn out_ns(&self) -> f64 {
        self.giving.as_nanos() as f64 / self.rows_out as f64
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let bids: Vec<Bid> = (0..arguments.events).filter_map(bid).collect();
    let mut report = json!({ "events": arguments.events, "rows_in": bids.len() });
    let mut least = Vec::new();
    for query in QUERIES {
        let spec = counts(query)?;
        let few = query.starts_with("few");
        let batches = batches(&spec, &bids, few)?;
        let mut best: Option<Taken> = None;
        for _ in 0..arguments.rounds {
            let taken = run(&spec, &batches)?;
            let best = best.get_or_insert(taken);
            best.taking = best.taking.min(taken.taking);
            best.giving = best.giving.min(taken.giving);
        }
        let best = best.context("--rounds 0: nothing was run")?;
        report[query] = json!({ "rows_out": best.rows_out, "in_ns_per_row": best.in_ns(), "out_ns_per_row": best.out_ns() });
        least.push(best);
    }
    for (name, [wide, narrow]) in [("few", [&least[0], &least[1]]), ("many", [&least[2], &least[3]])] {
        report[format!("{name}_in_ratio")] = json!(narrow.in_ns() / wide.in_ns());
        report[format!("{name}_out_ratio")] = json!(narrow.out_ns() / wide.out_ns());
    }
    report::print(&report, arguments.json);
    Ok(())
}

/// The aggregation of a query, as it is planned.
fn counts(query: &str) -> anyhow::Result<OperatorSpec> {
    let query = Query {
        name: query.into(),
        backend: "memory".into(),
        parallelism: 1,
        events: 1,
        checkpoint: None,
        dir: None,
        file: None,
    };
    let graph = query.graph().with_context(|| format!("no query \"{}\"", query.name))?;
    let mut registry = levada_connectors::registry();
    let (declaration, factory) = tally::sink(Arc::new(Totals::default()));
    registry.add_sink(declaration, factory);
    let planned = levada_sql::plan_document(&graph, &registry.declarations, &PlanOverrides::default());
    let (_, plan) = planned.map_err(|errors| anyhow!("{errors}"))?;
    let mut operators = plan.vertices.into_iter().flat_map(|vertex| vertex.operators);
    operators.find(|operator| matches!(operator.kind, OperatorKind::Aggregate(_))).context("the query aggregates nothing")
}

/// The bids as the aggregation takes them, with the watermark behind each batch.
fn batches(spec: &OperatorSpec, bids: &[Bid], few: bool) -> anyhow::Result<Vec<(RecordBatch, Watermark)>> {
    let schema = spec.input.to_arrow();
    let batch = |bids: &[Bid]| {
        let columns = schema.fields().iter().map(|field| {
            let column: ArrayRef = match field.name().as_str() {
                "number" => Arc::new(Int64Array::from_iter_values(bids.iter().map(|bid| {
                    let auction = bid.auction as i64;
                    if few { auction % 100 } else { auction }
                }))),
                _ => Arc::new(TimestampMillisecondArray::from_iter_values(bids.iter().map(|bid| bid.time_ms))),
            };
            Ok(cast(&column, field.data_type())?)
        });
        let columns = columns.collect::<anyhow::Result<_>>()?;
        let latest = bids.last().map_or(i64::MIN, |bid| bid.time_ms);
        Ok((RecordBatch::try_new(Arc::clone(&schema), columns)?, Watermark(latest)))
    };
    bids.chunks(BATCH_ROWS).map(batch).collect()
}

/// Runs the batches through a new operator.
fn run(spec: &OperatorSpec, batches: &[(RecordBatch, Watermark)]) -> anyhow::Result<Taken> {
    let mut operator = operators::build(spec, &Compiler::new(), &Functions::default())?;
    let max_parallelism = 128;
    let context = OperatorContext {
        subtask: 0,
        parallelism: 1,
        max_parallelism,
        key_groups: KeyGroupRange::of_subtask(0, 1, max_parallelism),
        batch_rows_max: BATCH_ROWS,
        metrics: Arc::new(NodeMetrics::new(spec.uid.clone())),
        cold: None,
        heap_budget: Arc::new(HeapBudget::unlimited()),
    };
    operator.open(&context, Vec::new())?;
    let mut taken = Taken { taking: Duration::ZERO, giving: Duration::ZERO, rows_in: 0, rows_out: 0 };
    for (batch, watermark) in batches {
        taken.rows_in += batch.num_rows();
        let start = Instant::now();
        operator.process(0, batch.clone())?;
        let taken_in = Instant::now();
        operator.advance(*watermark)?;
        while let Some(results) = operator.poll()? {
            taken.rows_out += results.num_rows();
        }
        taken.taking += taken_in - start;
        taken.giving += taken_in.elapsed();
    }
    Ok(taken)
}
