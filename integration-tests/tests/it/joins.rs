//! Joins on real processes: Nexmark's q8, q9 and q20 against a slow reference, a kill in the middle, and another parallelism.

use std::collections::BTreeMap;
use std::path::Path;

use levada_common::graph::{JobGraph, parse};
use levada_integration_tests::auctions::{bids_with_auctions, new_sellers, winning_bids};
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_proto::v1::JobState;
use serde_json::{Value, json};

const EVENTS: u64 = 200_000;

const Q8: &str = include_str!("../../../examples/nexmark/q8.yaml");
const Q9: &str = include_str!("../../../examples/nexmark/q9.yaml");
const Q20: &str = include_str!("../../../examples/nexmark/q20.yaml");

/// An example over so many events, writing to `out`.
fn graph(example: &str, parallelism: u32, events: u64, rate: Option<u64>, out: &Path) -> JobGraph {
    let mut graph = parse(example).expect("the examples are good jobs");
    graph.settings.parallelism = Some(parallelism);
    for source in &mut graph.sources {
        source.options.insert("events".into(), events.into());
        if let Some(rate) = rate {
            source.options.insert("rate".into(), rate.into());
        }
    }
    graph.sinks[0].options.insert("path".into(), out.display().to_string().into());
    graph
}

/// The rows that a job published, each with these columns only.
fn rows(out: &Path, columns: &[&str]) -> anyhow::Result<Vec<String>> {
    let chosen = |line: &String| {
        let row: Value = serde_json::from_str(line).expect("a line is JSON");
        json!(columns.iter().map(|column| row[*column].clone()).collect::<Vec<_>>()).to_string()
    };
    let mut rows: Vec<String> = output_lines(out)?.iter().map(chosen).collect();
    rows.sort_unstable();
    Ok(rows)
}

fn sorted(rows: impl Iterator<Item = Value>) -> Vec<String> {
    let mut rows: Vec<String> = rows.map(|row| row.to_string()).collect();
    rows.sort_unstable();
    rows
}

fn q8(events: u64) -> Vec<String> {
    sorted(new_sellers(events).into_iter().map(|person| json!([person.id, person.name])))
}

fn q20(events: u64) -> Vec<String> {
    let pairs = bids_with_auctions(events, |auction, _| auction.category == 10);
    sorted(pairs.into_iter().map(|(auction, bid)| json!([auction.id, bid.bidder, bid.price, auction.seller])))
}

#[tokio::test(flavor = "multi_thread")]
async fn nexmark_joins_give_the_rows_of_the_reference() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup::default()).await?;
    let (people, pairs, winners) = (q8(EVENTS), q20(EVENTS), winning_bids(EVENTS));
    assert!(people.len() > 100 && pairs.len() > 10_000 && winners.len() > 1_000, "the reference is empty");
    for parallelism in [1, 3] {
        let run = async |example: &str, name: &str| -> anyhow::Result<std::path::PathBuf> {
            let out = cluster.path(&format!("{name}-{parallelism}"));
            let job = cluster.submit(&graph(example, parallelism, EVENTS, None, &out).to_yaml()).await?;
            let status = cluster.wait(&job).await?;
            assert_eq!(status.state(), JobState::Finished, "{name}: {}\n{}", status.failure, cluster.logs());
            assert!(status.nodes.iter().all(|node| node.late_rows == 0), "{name}: no row is late");
            Ok(out)
        };
        assert!(rows(&run(Q8, "q8").await?, &["id", "name"])? == people, "q8 at parallelism {parallelism}: the rows differ");
        let columns = ["auction", "bidder", "price", "seller"];
        assert!(rows(&run(Q20, "q20").await?, &columns)? == pairs, "q20 at parallelism {parallelism}: the rows differ");
        let out = run(Q9, "q9").await?;
        let mut last: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for line in output_lines(&out)? {
            let row: Value = serde_json::from_str(&line)?;
            let number = |name: &str| row[name].as_u64().expect("a number");
            // Changes of a key are in order in its subtask's file, but the lines were sorted: the highest price is the last one.
            let best = last.entry(number("auction")).or_insert((number("bidder"), number("price")));
            if number("price") > best.1 {
                *best = (number("bidder"), number("price"));
            }
        }
        assert!(last.len() == winners.len(), "q9 at parallelism {parallelism}: {} auctions, not {}", last.len(), winners.len());
        assert!(last.iter().all(|(auction, (_, price))| winners[auction].1 == *price), "q9 at parallelism {parallelism}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_gives_every_pair_once_though_a_task_manager_is_killed() -> anyhow::Result<()> {
    for backend in ["memory", "fs"] {
        let mut cluster = Processes::start(Setup { task_managers: 3, slots: 1, ..Setup::default() }).await?;
        let out = cluster.path("out");
        let mut graph = graph(Q20, 2, EVENTS, Some(40_000), &out);
        let settings = format!(
            "version: 1\nname: s\nsettings: {{ parallelism: 2, state: {{ backend: {backend} }}, checkpoint: {{ interval: 100ms, dir: \"file://{}\" }}, restart: {{ strategy: fixed-delay, attempts: 20, delay: 50ms }} }}\nsources: {{ a: {{ nexmark: {{}} }} }}\nsinks: {{ b: {{ inputs: [a], blackhole: {{}} }} }}\n",
            cluster.path("checkpoints").display()
        );
        graph.settings = parse(&settings).expect("good settings").settings;
        let job = cluster.submit(&graph.to_yaml()).await?;
        cluster.wait_for_checkpoints(&job, 3).await?;
        let victim = cluster.running()[0];
        cluster.kill_task_manager(victim)?;
        cluster.start_task_manager()?;
        let status = cluster.wait(&job).await?;
        assert_eq!(status.state(), JobState::Finished, "{backend}: {}\n{}", status.failure, cluster.logs());
        assert!(rows(&out, &["auction", "bidder", "price", "seller"])? == q20(EVENTS), "{backend}: the rows differ");
        assert_eq!(leftovers(&out)?, Vec::<String>::new());
    }
    Ok(())
}
