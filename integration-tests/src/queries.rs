//! The benchmark queries as job graphs: what a user would write, with the sink `tally` in the place of a real one.

use std::fmt::Write;

/// What to run.
#[derive(Debug, Clone)]
pub struct Query {
    /// `q0`, `q1`, `q2`, `q7`, `q7k`, `q12e` or `words`.
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
pub const NAMES: [&str; 7] = ["q0", "q1", "q2", "q7", "q7k", "q12e", "words"];

const HIGHEST_BID: &str = "order by price desc, dateTime, auction, bidder";

impl Query {
    /// The job graph, as YAML; `None` where there is no such query.
    pub fn graph(&self) -> Option<String> {
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
                if matches!(self.name.as_str(), "q0" | "q1" | "q2") {
                    yaml += "    watermark: none\n";
                }
            }
        }
        if !transforms.is_empty() {
            let _ = write!(yaml, "transforms:\n{transforms}");
        }
        let _ = writeln!(yaml, "sinks:\n  out:\n    inputs: [{last}]\n    tally: {{ hash: [{hash}]{last_by} }}");
        Some(yaml)
    }

    fn transforms(&self) -> Option<String> {
        Some(match self.name.as_str() {
            "q0" => String::new(),
            "q1" => "  converted:
    inputs: [input]
    select: { auction: auction, bidder: bidder, price: price * 908 / 1000, dateTime: dateTime, extra: extra }
"
            .into(),
            "q2" => "  chosen:
    inputs: [input]
    where: auction % 123 = 0
    select: { auction: auction, price: price }
"
            .into(),
            "q7" => format!(
                "  highest:
    inputs: [input]
    window: {{ tumbling: {{ size: 10s }} }}
    aggregate:
      auction: first(auction {HIGHEST_BID})
      bidder: first(bidder {HIGHEST_BID})
      dateTime: first(dateTime {HIGHEST_BID})
      price: max(price)
"
            ),
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
            "q0" => ("input", "auction, bidder, price, dateTime", ""),
            "q1" => ("converted", "auction, bidder, price, dateTime", ""),
            "q2" => ("chosen", "auction, price", ""),
            "q7" | "q7k" => ("highest", "auction, bidder, price, dateTime", ""),
            "q12e" => ("counts", "bidder, bids, window_end", ""),
            "words" => ("counts", "word, n", ", last_by: [word]"),
            _ => return None,
        })
    }
}
