//! The benchmark queries as job graphs: the examples themselves, with other settings and the sink
//! `tally` in the place of theirs, and some that measure one thing.

use std::fmt::Write;

use levada_common::graph::{GraphCheckpoint, parse};
use levada_common::human::HumanDuration;
use levada_common::plan::BackendKind;
use serde_json::json;

/// What to run.
#[derive(Debug, Clone)]
pub struct Query {
    /// One of `NAMES`.
    pub name: String,
    /// State backend.
    pub backend: String,
    /// Parallelism of every node.
    pub parallelism: u32,
    /// Nexmark events of all kinds.
    pub events: u64,
    /// Interval of checkpoints (`10s`); `None` = off.
    pub checkpoint: Option<String>,
    /// Directory of checkpoints.
    pub dir: Option<String>,
    /// The text of `words`.
    pub file: Option<String>,
}

/// The queries that there are.
pub const NAMES: [&str; 26] = [
    "q0",
    "q1",
    "q2",
    "q3",
    "q4",
    "q5",
    "q6",
    "q7",
    "q7k",
    "q8",
    "q9",
    "q11",
    "q12",
    "q12e",
    "q13",
    "q15",
    "q16",
    "q17",
    "q18",
    "q19",
    "q20",
    "words",
    "few2s",
    "few100ms",
    "many2s",
    "many100ms",
];

const HIGHEST_BID: &str = "order by price desc, dateTime, auction, bidder";

impl Query {
    /// The job graph, as YAML; `None` where there is no such query.
    pub fn graph(&self) -> Option<String> {
        if let Some(example) = self.example() {
            return Some(self.adapted(example));
        }
        let transforms = self.transforms()?;
        let (last, hash, last_by) = self.output()?;
        let mut yaml = format!(
            "version: 1\nname: {}\nsettings:\n  parallelism: {}\n  state: {{ backend: {} }}\n",
            self.name, self.parallelism, self.backend
        );
        if let Some(interval) = &self.checkpoint {
            let dir = self.dir.as_ref().map(|dir| format!(", dir: \"file://{dir}\"")).unwrap_or_default();
            let _ = writeln!(yaml, "  checkpoint: {{ interval: {interval}{dir} }}");
        }
        yaml += "sources:\n  input:\n";
        match &self.file {
            Some(file) if self.name == "words" => {
                let _ = writeln!(yaml, "    file: {{ path: \"{file}\", format: text }}");
            }
            _ => {
                let _ = writeln!(yaml, "    nexmark: {{ events: {}, table: bid }}", self.events);
            }
        }
        let _ = write!(yaml, "transforms:\n{transforms}");
        let _ = writeln!(yaml, "sinks:\n  out:\n    inputs: [{last}]\n    tally: {{ hash: [{hash}]{last_by} }}");
        Some(yaml)
    }

    /// The example of this query, where it has one.
    fn example(&self) -> Option<&'static str> {
        Some(match self.name.as_str() {
            "q0" => include_str!("../../examples/nexmark/q0.yaml"),
            "q1" => include_str!("../../examples/nexmark/q1.yaml"),
            "q2" => include_str!("../../examples/nexmark/q2.yaml"),
            "q3" => include_str!("../../examples/nexmark/q3.yaml"),
            "q4" => include_str!("../../examples/nexmark/q4.yaml"),
            "q5" => include_str!("../../examples/nexmark/q5.yaml"),
            "q6" => include_str!("../../examples/nexmark/q6.yaml"),
            "q7" => include_str!("../../examples/nexmark/q7.yaml"),
            "q8" => include_str!("../../examples/nexmark/q8.yaml"),
            "q9" => include_str!("../../examples/nexmark/q9.yaml"),
            "q11" => include_str!("../../examples/nexmark/q11.yaml"),
            "q12" => include_str!("../../examples/nexmark/q12.yaml"),
            "q13" => include_str!("../../examples/nexmark/q13.yaml"),
            "q15" => include_str!("../../examples/nexmark/q15.yaml"),
            "q16" => include_str!("../../examples/nexmark/q16.yaml"),
            "q17" => include_str!("../../examples/nexmark/q17.yaml"),
            "q18" => include_str!("../../examples/nexmark/q18.yaml"),
            "q19" => include_str!("../../examples/nexmark/q19.yaml"),
            "q20" => include_str!("../../examples/nexmark/q20.yaml"),
            _ => return None,
        })
    }

    /// An example with the query's settings, so many events, and the sink `tally`.
    fn adapted(&self, example: &str) -> String {
        let mut graph = parse(example).expect("the examples are good jobs");
        let backends = [BackendKind::Memory, BackendKind::Fs, BackendKind::Rocksdb];
        graph.settings.parallelism = Some(self.parallelism);
        graph.settings.backend = backends.into_iter().find(|backend| backend.name() == self.backend);
        graph.settings.checkpoint = self.checkpoint.as_ref().map(|interval| GraphCheckpoint {
            interval_ms: interval.parse().ok().map(|interval: HumanDuration| Some(interval.as_ms())),
            dir: self.dir.as_ref().map(|dir| format!("file://{dir}")),
            ..GraphCheckpoint::default()
        });
        for source in graph.sources.iter_mut().filter(|source| source.connector == "nexmark") {
            source.options.insert("events".into(), self.events.into());
        }
        let (_, hash, last_by) = self.output().expect("every query has an output");
        for sink in &mut graph.sinks {
            let names = |list: &str| json!(list.split(", ").collect::<Vec<_>>());
            sink.connector = "tally".into();
            sink.options = [("hash".to_string(), names(hash))].into_iter().collect();
            let last_by = last_by.strip_prefix(", last_by: [").and_then(|list| list.strip_suffix(']'));
            sink.options.extend(last_by.map(|list| ("last_by".to_string(), names(list))));
        }
        graph.to_yaml()
    }

    fn transforms(&self) -> Option<String> {
        Some(match self.name.as_str() {
            "q7k" => format!(
                "  per_auction:
    inputs: [input]
    key_by: [auction]
    window: {{ tumbling: {{ size: 10s }} }}
    aggregate:
      bidder: first(bidder order by price desc, dateTime, bidder)
      dateTime: first(dateTime order by price desc, dateTime, bidder)
      price: max(price)
  highest:
    inputs: [per_auction]
    window: same
    aggregate:
      auction: first(auction {HIGHEST_BID})
      bidder: first(bidder {HIGHEST_BID})
      dateTime: first(dateTime {HIGHEST_BID})
      price: max(price)
"
            ),
            "q12e" => "  counts:
    inputs: [input]
    key_by: [bidder]
    window: { tumbling: { size: 10s } }
    aggregate: { bids: count(*) }
"
            .into(),
            // The counts of few keys, and of many, in windows of ten seconds that slide by so much.
            "few2s" => sliding("auction % 100", "2s"),
            "few100ms" => sliding("auction % 100", "100ms"),
            "many2s" => sliding("auction", "2s"),
            "many100ms" => sliding("auction", "100ms"),
            "words" => "  words:
    inputs: [input]
    select: { word: \"unnest(string_to_array(line, ' '))\" }
  counts:
    inputs: [words]
    key_by: [word]
    aggregate: { n: count(*) }
"
            .into(),
            _ => return None,
        })
    }

    /// The node that the sink reads, the hashed columns, and the `last_by` clause.
    fn output(&self) -> Option<(&'static str, &'static str, &'static str)> {
        Some(match self.name.as_str() {
            "q0" => ("bids", "auction, bidder, price, dateTime", ""),
            "q1" => ("converted", "auction, bidder, price, dateTime", ""),
            "q2" => ("chosen", "auction, price", ""),
            "q5" => ("hottest", "auction, bids, window_end", ""),
            "q11" => ("counts", "bidder, bids, window_start, window_end", ""),
            "q7" | "q7k" => ("highest", "auction, bidder, price, dateTime", ""),
            "q3" => ("suggestions", "name, city, state, auction", ""),
            "q4" => ("averages", "category, average", ", last_by: [category]"),
            "q6" => ("averages", "seller, average", ", last_by: [seller]"),
            "q8" => ("new_sellers", "id, name", ""),
            "q9" => ("winning", "auction, bidder, price", ", last_by: [auction]"),
            // When its windows end is the clock's: what is the same each time is who bids.
            "q12" => ("counts", "bidder", ", last_by: [bidder]"),
            "q12e" => ("counts", "bidder, bids, window_end", ""),
            "q13" => ("bids_with_values", "auction, bidder, price, value", ""),
            "q15" => ("statistics", "rank1_bids, total_bidders, rank3_bidders, rank2_auctions", ", last_by: [day]"),
            "q16" => ("statistics", "channel, rank3_bids, rank2_bidders, total_auctions", ", last_by: [channel, day]"),
            "q17" => ("statistics", "auction, rank2_bids, min_price, max_price", ", last_by: [auction, day]"),
            "q18" => ("last", "bidder, auction, price, dateTime", ", last_by: [bidder, auction]"),
            "q19" => ("highest", "auction, place, bidder, price", ", last_by: [auction, place]"),
            "q20" => ("bids_with_auctions", "auction, bidder, price, bid_time", ""),
            "few2s" | "few100ms" | "many2s" | "many100ms" => ("counts", "number, bids, window_end", ""),
            "words" => ("counts", "word, n", ", last_by: [word]"),
            _ => return None,
        })
    }
}

fn sliding(key: &str, slide: &str) -> String {
    format!(
        "  numbered:
    inputs: [input]
    select: {{ number: {key}, dateTime: dateTime }}
  counts:
    inputs: [numbered]
    key_by: [number]
    window: {{ sliding: {{ size: 10s, slide: {slide} }} }}
    aggregate: {{ bids: count(*) }}
"
    )
}
