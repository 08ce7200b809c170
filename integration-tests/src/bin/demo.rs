//! `make demo`: two jobs on one JobManager and two TaskManagers, one of which is killed on the way; the results are counted
//! again by a plain loop and compared.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use levada_integration_tests::bids;
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_proto::v1::{JobState, JobStatus};

/// How often the project's own texts are repeated, so that the word count runs for a few seconds.
const COPIES: usize = 1_500;

/// Events of the window job, and how many a second: enough for the kill to hit it in the middle.
const EVENTS: u64 = 1_500_000;
const EVENTS_PER_SECOND: u64 = 200_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let start = Instant::now();
    let say = |text: String| println!("[{:5.1} s] {text}", start.elapsed().as_secs_f64());
    let mut cluster = Processes::start(Setup::default()).await?;
    say(format!("one JobManager ({}) and two TaskManagers with two slots each are running", cluster.address()));

    let text = cluster.path("text.txt");
    let size = write_text(&text)?;
    let (words_out, bids_out) = (cluster.path("words"), cluster.path("bids"));
    let words = cluster.submit(&word_count(&text, &words_out)).await?;
    let bids = cluster.submit(&bids_per_bidder(&bids_out)).await?;
    say(format!("job {words}: words of {size} bytes of text, as many as there are"));
    say(format!("job {bids}: bids per bidder and window over {EVENTS} auction events, {EVENTS_PER_SECOND} a second"));

    cluster.wait_for_checkpoints(&words, 1).await?;
    cluster.wait_for_checkpoints(&bids, 2).await?;
    say("both jobs have completed checkpoints; now kill -9 of TaskManager 0".into());
    cluster.kill_task_manager(0)?;
    cluster.start_task_manager()?;
    say("a fresh TaskManager was started in its place".into());

    let (words_status, bids_status) = (cluster.wait(&words).await?, cluster.wait(&bids).await?);
    for status in [&words_status, &bids_status] {
        ensure!(status.state() == JobState::Finished, "{} ended {:?}: {}", status.name, status.state(), status.failure);
        say(format!("{} FINISHED after {} restart(s), {} checkpoints", status.name, status.restarts, completed(status)));
    }
    ensure!(bids_status.restarts >= 1, "the window job was not hit by the kill");

    let counts = check_words(&text, &words_out)?;
    say(format!("word counts equal a plain recount: {} different words, {} in all", counts.len(), counts.values().sum::<u64>()));
    let mut top: Vec<(&String, &u64)> = counts.iter().collect();
    top.sort_by_key(|(word, n)| (std::cmp::Reverse(**n), (*word).clone()));
    for (word, n) in top.iter().take(5) {
        println!("            {word:12} {n:>9}");
    }
    let rows = check_bids(&bids_out)?;
    say(format!("bids per bidder and window equal a plain recount: {} rows, each exactly once", rows.len()));
    for row in rows.iter().take(3) {
        println!("            {row}");
    }
    ensure!(leftovers(&words_out)?.is_empty() && leftovers(&bids_out)?.is_empty(), "unfinished files were left behind");
    say("nothing was lost, nothing came twice, nothing was left behind".into());
    Ok(())
}

fn completed(status: &JobStatus) -> u64 {
    status.checkpoints.as_ref().map_or(0, |all| all.completed)
}

/// The project's own prose, many times over.
fn write_text(path: &Path) -> anyhow::Result<u64> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for file in ["LICENSE", "README.md", "ARCHITECTURE.md"] {
        text += &fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
        text.push('\n');
    }
    fs::write(path, text.repeat(COPIES))?;
    Ok(fs::metadata(path)?.len())
}

const SETTINGS: &str = "settings:\n  parallelism: 2\n  checkpoint: { interval: 300ms }\n  restart: { strategy: fixed-delay, attempts: 10, delay: 200ms }\n";

fn word_count(text: &Path, out: &Path) -> String {
    format!(
        "version: 1
name: word-count
{SETTINGS}sources:
  lines:
    file: {{ path: \"{}\", format: text, split_size: 8MiB }}
transforms:
  words:
    inputs: [lines]
    select: {{ word: \"unnest(string_to_array(lower(line), ' '))\" }}
  counts:
    inputs: [words]
    where: word <> ''
    key_by: [word]
    window: global
    aggregate: {{ n: count(*) }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        text.display(),
        out.display()
    )
}

fn bids_per_bidder(out: &Path) -> String {
    format!(
        "version: 1
name: bids-per-bidder
{SETTINGS}sources:
  bids:
    nexmark: {{ events: {EVENTS}, table: bid, rate: {EVENTS_PER_SECOND} }}
    watermark: {{ column: dateTime, disorder: 2s }}
transforms:
  counts:
    inputs: [bids]
    key_by: [bidder]
    window: {{ tumbling: {{ size: 10s }} }}
    aggregate: {{ bids: count(*), highest: max(price) }}
sinks:
  out:
    inputs: [counts]
    file: {{ path: \"{}\", format: ndjson }}
",
        out.display()
    )
}

fn check_words(text: &Path, out: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let text = fs::read_to_string(text)?;
    let mut expected: HashMap<String, u64> = HashMap::new();
    for line in text.lines() {
        for word in line.to_lowercase().split(' ').filter(|word| !word.is_empty()) {
            *expected.entry(word.into()).or_default() += 1;
        }
    }
    let mut counts = BTreeMap::new();
    for line in output_lines(out)? {
        let row: serde_json::Value = serde_json::from_str(&line)?;
        let word = row["word"].as_str().context("a word")?.to_string();
        let again = counts.insert(word.clone(), row["n"].as_u64().context("a count")?);
        ensure!(again.is_none(), "\"{word}\" came out twice");
    }
    ensure!(counts.len() == expected.len(), "{} words came out, {} were expected", counts.len(), expected.len());
    for (word, n) in &counts {
        ensure!(expected.get(word) == Some(n), "\"{word}\": {n}, but a recount gives {:?}", expected.get(word));
    }
    Ok(counts)
}

fn check_bids(out: &Path) -> anyhow::Result<Vec<String>> {
    let mut expected: BTreeMap<(i64, u64), (u64, u64)> = BTreeMap::new();
    for n in 0..EVENTS {
        if let Some(bid) = bids::bid(n) {
            let group = expected.entry((bid.time_ms.div_euclid(10_000) * 10_000, bid.bidder)).or_default();
            *group = (group.0 + 1, group.1.max(bid.price));
        }
    }
    let mut lines: Vec<String> = expected
        .into_iter()
        .map(|((start, bidder), (bids, highest))| {
            let time = levada_connectors::formats::ndjson::timestamp_text;
            format!(
                "{{\"bidder\":{bidder},\"window_start\":\"{}\",\"window_end\":\"{}\",\"window_time\":\"{}\",\"bids\":{bids},\"highest\":{highest}}}",
                time(start),
                time(start + 10_000),
                time(start + 9_999)
            )
        })
        .collect();
    lines.sort_unstable();
    let rows = output_lines(out)?;
    ensure!(rows == lines, "{} rows came out, {} were expected, and they differ", rows.len(), lines.len());
    Ok(rows)
}
