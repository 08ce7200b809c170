//! Streams whose results are known by a formula, as job graphs, and what they must give.

use std::path::Path;

/// Stream A: `i` from 0 to `rows`; key `k00` to `k99` by `i mod 100`; ts = i ms; v = i. Count and sum per key in windows of 10 s.
#[derive(Debug, Clone)]
pub struct StreamA {
    /// Rows; a multiple of 10,000.
    pub rows: u64,
    /// Rows a second; `None` = as fast as it goes.
    pub rate: Option<u64>,
    /// `settings:`, as lines of YAML below it.
    pub settings: String,
}

impl StreamA {
    /// The graph, writing to `out`.
    pub fn graph(&self, out: &Path) -> String {
        format!(
            "version: 1
name: stream-a
settings:
{}
sources:
  numbers:
    generate:
      from: 0
      to: {}
{}      columns:
        k: \"concat('k', lpad(cast(n % 100 as varchar), 2, '0'))\"
        ts: n
        v: n
    watermark: {{ column: ts, disorder: 0s }}
transforms:
  sums:
    inputs: [numbers]
    key_by: [k]
    window: {{ tumbling: {{ size: 10s }} }}
    aggregate: {{ n: count(*), total: sum(v) }}
  rows:
    inputs: [sums]
    select: {{ k: k, start: window_start, n: n, total: total }}
sinks:
  out:
    inputs: [rows]
    file: {{ path: \"{}\", format: ndjson }}
",
            self.settings,
            self.rows,
            self.rate.map(|rate| format!("      rate: {rate}\n")).unwrap_or_default(),
            out.display()
        )
    }

    /// The lines that it must give, sorted.
    pub fn expected(&self) -> Vec<String> {
        let mut lines: Vec<String> = (0..self.rows / 10_000)
            .flat_map(|window| {
                (0..100u64).map(move |key| {
                    let total = 1_000_000 * window + 100 * key + 495_000;
                    let start = levada_connectors::formats::ndjson::timestamp_text(10_000 * window as i64);
                    format!("{{\"k\":\"k{key:02}\",\"start\":\"{start}\",\"n\":100,\"total\":{total}}}")
                })
            })
            .collect();
        lines.sort_unstable();
        lines
    }
}

/// Stream B: ids from 0 to `rows`, each to come out once.
#[derive(Debug, Clone)]
pub struct StreamB {
    /// Rows.
    pub rows: u64,
    /// Rows a second; `None` = as fast as it goes.
    pub rate: Option<u64>,
    /// `settings:`, as lines of YAML below it.
    pub settings: String,
}

impl StreamB {
    /// The graph, writing to `out`.
    pub fn graph(&self, out: &Path) -> String {
        format!(
            "version: 1
name: stream-b
settings:
{}
sources:
  ids:
    generate:
      from: 0
      to: {}
{}      columns: {{ id: n }}
sinks:
  out:
    inputs: [ids]
    file: {{ path: \"{}\", format: ndjson }}
",
            self.settings,
            self.rows,
            self.rate.map(|rate| format!("      rate: {rate}\n")).unwrap_or_default(),
            out.display()
        )
    }

    /// The lines that it must give, sorted.
    pub fn expected(&self) -> Vec<String> {
        let mut lines: Vec<String> = (0..self.rows).map(|id| format!("{{\"id\":{id}}}")).collect();
        lines.sort_unstable();
        lines
    }
}
