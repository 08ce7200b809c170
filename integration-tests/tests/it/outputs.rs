//! Several outputs and inputs of a node on real processes: each row comes out of one of them once, though a TaskManager is killed.

use std::path::Path;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use serde_json::Value;

const ROWS: u64 = 300_000;

const KEYS: u64 = 50;

const ORDERS: u64 = 150_000;

/// Every 97th row is 2000 s behind the others: late, but for the first ones, whichever batches they are in.
fn graph(cluster: &Processes, out: &Path) -> String {
    let (out, checkpoints) = (out.display(), cluster.path("checkpoints"));
    let checkpoints = checkpoints.display();
    format!(
        "version: 1
name: outputs
settings:
  parallelism: 2
  state: {{ backend: fs }}
  checkpoint: {{ interval: 100ms, dir: \"file://{checkpoints}\" }}
  restart: {{ strategy: fixed-delay, attempts: 20, delay: 50ms }}
sources:
  rows:
    generate:
      from: 0
      to: {ROWS}
      rate: 90000
      columns: {{ n: n, k: n % {KEYS}, at: case when n % 97 = 0 then n * 10 - 2000000 else n * 10 end }}
    watermark: {{ column: at }}
    parallelism: 1
transforms:
  counts: {{ inputs: [rows], key_by: [k], window: {{ tumbling: {{ size: 10s }} }}, aggregate: {{ rows: count(*), sum: sum(n) }} }}
  parts: {{ inputs: [rows], select: {{ n: n }}, split: {{ odd: n % 2 = 1, third: n % 3 = 0 }} }}
  numbered: {{ inputs: [rows], key_by: [k], process: number_tenths }}
sinks:
  counts-files: {{ inputs: [counts], file: {{ path: \"{out}/counts\", format: ndjson }} }}
  late-files: {{ inputs: [counts/late], file: {{ path: \"{out}/late\", format: ndjson }} }}
  odd-files: {{ inputs: [parts/odd], file: {{ path: \"{out}/odd\", format: ndjson }} }}
  others-files: {{ inputs: [parts, parts/third], file: {{ path: \"{out}/others\", format: ndjson }} }}
  tenth-files: {{ inputs: [numbered/tenth], file: {{ path: \"{out}/tenth\", format: ndjson }} }}
"
    )
}

/// Orders, and payments for two of three of them, half a second later.
fn connected(cluster: &Processes, out: &Path) -> String {
    let (out, checkpoints) = (out.display(), cluster.path("checkpoints"));
    let checkpoints = checkpoints.display();
    format!(
        "version: 1
name: connected
settings:
  parallelism: 2
  state: {{ backend: rocksdb }}
  checkpoint: {{ interval: 100ms, dir: \"file://{checkpoints}\" }}
  restart: {{ strategy: fixed-delay, attempts: 20, delay: 50ms }}
sources:
  orders:
    generate: {{ from: 0, to: {ORDERS}, rate: 50000, columns: {{ id: n, at: n * 10 }} }}
    watermark: {{ column: at }}
  payments:
    generate: {{ from: 0, to: {ORDERS}, rate: 50000, columns: {{ order: n, amount: n * 7, at: n * 10 + 500 }} }}
    watermark: {{ column: at }}
transforms:
  paid: {{ inputs: [payments], where: order % 3 > 0 }}
  settled: {{ inputs: [orders], with: [paid], key_by: {{ id: order }}, process: settle }}
sinks:
  settled-files: {{ inputs: [settled], file: {{ path: \"{out}/settled\", format: ndjson }} }}
  unpaid-files: {{ inputs: [settled/unpaid], file: {{ path: \"{out}/unpaid\", format: ndjson }} }}
"
    )
}

/// Windows of 400 ms for functions: each has 40 numbers, `n % 8` and their windows having 5 of each.
fn windowed(cluster: &Processes, out: &Path) -> String {
    let (out, checkpoints) = (out.display(), cluster.path("checkpoints"));
    let checkpoints = checkpoints.display();
    format!(
        "version: 1
name: windowed
settings:
  parallelism: 2
  state: {{ backend: fs }}
  checkpoint: {{ interval: 100ms, dir: \"file://{checkpoints}\" }}
  restart: {{ strategy: fixed-delay, attempts: 20, delay: 50ms }}
sources:
  rows:
    generate: {{ from: 0, to: {ORDERS}, rate: 50000, columns: {{ n: n, k: n % 8, at: n * 10 }} }}
    watermark: {{ column: at }}
transforms:
  odd: {{ inputs: [rows], where: n % 16 < 8 }}
  spreads: {{ inputs: [rows], key_by: [k], window: {{ sliding: {{ size: 800ms, slide: 400ms }} }}, process: spread }}
  balances: {{ inputs: [rows], with: [odd], key_by: [k], window: {{ tumbling: {{ size: 400ms }} }}, process: balance }}
sinks:
  spread-files: {{ inputs: [spreads], file: {{ path: \"{out}/spreads\", format: ndjson }} }}
  balance-files: {{ inputs: [balances], file: {{ path: \"{out}/balances\", format: ndjson }} }}
"
    )
}

/// A column of the rows that a sink published, sorted.
fn column(out: &Path, sink: &str, column: &str) -> anyhow::Result<Vec<u64>> {
    let number = |line: &String| {
        let value = serde_json::from_str::<Value>(line).expect("a line is JSON")[column].to_string();
        value.trim_matches('"').parse().expect("it is a number")
    };
    assert_eq!(leftovers(&out.join(sink))?, Vec::<String>::new());
    let mut numbers: Vec<u64> = output_lines(&out.join(sink))?.iter().map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Runs a job of which a TaskManager is killed in the middle.
async fn finish_after_a_kill(cluster: &mut Processes, graph: &str) -> anyhow::Result<String> {
    let job = cluster.submit(graph).await?;
    cluster.wait_for_checkpoints(&job, 5).await?;
    // Each has a slot, and the job takes two: whichever dies had a part of it.
    let victim = cluster.running()[0];
    cluster.kill_task_manager(victim)?;
    cluster.start_task_manager()?;
    let status = cluster.finish(&job).await?;
    assert!(status.restarts >= 1, "the kill did not hit the job");
    Ok(job)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_streams_meet_in_a_function_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = connected(&cluster, &out);
    finish_after_a_kill(&mut cluster, &graph).await?;
    let (paid, unpaid): (Vec<u64>, Vec<u64>) = (0..ORDERS).partition(|id| id % 3 > 0);
    assert!(column(&out, "settled", "id")? == paid, "the settled orders differ");
    assert!(column(&out, "settled", "amount")? == paid.iter().map(|id| id * 7).collect::<Vec<_>>(), "the amounts differ");
    assert!(column(&out, "unpaid", "id")? == unpaid, "the unpaid orders differ");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_get_whole_windows_once_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = windowed(&cluster, &out);
    finish_after_a_kill(&mut cluster, &graph).await?;
    let windows = ORDERS / 40;
    let spreads = column(&out, "spreads", "spread")?;
    // The first and the last of windows that overlap are half empty.
    let expected = |numbers: u64, count: u64| std::iter::repeat_n((numbers - 1) * 8, count as usize);
    assert!(spreads == expected(5, 16).chain(expected(10, (windows - 1) * 8)).collect::<Vec<_>>(), "the spreads differ");
    assert_eq!(column(&out, "spreads", "rows")?.iter().sum::<u64>(), ORDERS * 2);

    assert_eq!(column(&out, "balances", "first")?, vec![5; ORDERS as usize / 5 / 8 * 8]);
    let in_odd = |n: &u64| n % 16 < 8;
    assert_eq!(column(&out, "balances", "second")?.iter().sum::<u64>(), (0..ORDERS).filter(in_odd).count() as u64);
    let sum = (0..ORDERS).sum::<u64>() + (0..ORDERS).filter(in_odd).sum::<u64>();
    assert_eq!(column(&out, "balances", "sum")?.iter().sum::<u64>(), sum);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_comes_out_of_one_output_once_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let graph = graph(&cluster, &out);
    let job = finish_after_a_kill(&mut cluster, &graph).await?;

    let late = column(&out, "late", "n")?;
    let counted: u64 = column(&out, "counts", "rows")?.iter().sum();
    let sum: u64 = column(&out, "counts", "sum")?.iter().sum();
    assert!(late.len() as u64 > ROWS / 97 / 4, "only {} rows were late", late.len());
    assert!(late.iter().all(|n| n % 97 == 0), "a row in time was late");
    assert_eq!(counted + late.len() as u64, ROWS);
    assert_eq!(sum + late.iter().sum::<u64>(), ROWS * (ROWS - 1) / 2);

    let (odd, others) = (column(&out, "odd", "n")?, column(&out, "others", "n")?);
    assert!(odd == (1..ROWS).step_by(2).collect::<Vec<_>>(), "odd rows differ");
    assert!(others == (0..ROWS).step_by(2).collect::<Vec<_>>(), "the other rows differ");
    let tenth: Vec<u64> = (0..ROWS).filter(|n| (n / KEYS + 1).is_multiple_of(10)).collect();
    assert!(column(&out, "tenth", "n")? == tenth, "every tenth row of a key");
    let status = cluster.describe(&job).await?;
    let node = |uid: &str| status.nodes.iter().find(|node| node.uid == uid).expect("it is a node");
    assert!(node("counts").late_rows > 0, "late rows are counted, read or not");
    Ok(())
}
