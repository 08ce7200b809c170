//! What `levada run` and `levada submit --wait` show while a job runs: one line that is rewritten on a terminal, plain lines
//! elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use levada_proto::v1::JobStatus;

use crate::client::{is_terminal, state_name};

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows a job's progress on standard error.
pub struct Progress {
    terminal: bool,
    last: Option<(Instant, u64, u64)>,
    last_line: Option<Instant>,
    last_state: String,
}

impl Progress {
    /// Nothing shown so far.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: None, last_line: None, last_state: String::new() }
    }

    /// Shows `status`.
    pub fn show(&mut self, status: &JobStatus) {
        let now = Instant::now();
        let (rows_in, rows_out) = totals(status);
        let rates = self.last.map(|(then, before_in, before_out)| {
            let seconds = (now - then).as_secs_f64().max(1e-3);
            (rows_in.saturating_sub(before_in) as f64 / seconds, rows_out.saturating_sub(before_out) as f64 / seconds)
        });
        self.last = Some((now, rows_in, rows_out));
        let line = line(status, rows_in, rows_out, rates);
        let state = format!("{} {} {}", state_name(status.state()), status.restarts, status.degraded_reason);
        let changed = state != self.last_state;
        self.last_state = state;
        let mut err = std::io::stderr().lock();
        if self.terminal {
            let _ = write!(err, "\r\x1b[2K{line}");
            if is_terminal(status.state()) {
                let _ = writeln!(err);
            }
            let _ = err.flush();
        } else if changed || self.last_line.is_none_or(|then| now - then >= PLAIN_EVERY) {
            self.last_line = Some(now);
            let _ = writeln!(err, "{line}");
        }
    }
}

/// Rows read by sources and rows taken by sinks: nodes whose name no other node's rows feed are not known here, so the
/// first and last nodes in the plan's order stand for them.
fn totals(status: &JobStatus) -> (u64, u64) {
    let rows_in = status.nodes.first().map_or(0, |node| node.rows_in);
    let rows_out = status.nodes.last().map_or(0, |node| node.rows_in);
    (rows_in, rows_out)
}

fn line(status: &JobStatus, rows_in: u64, rows_out: u64, rates: Option<(f64, f64)>) -> String {
    let mut line = format!("{} {}", status.name, state_name(status.state()));
    let (rate_in, rate_out) = rates.unwrap_or_default();
    line +=
        &format!("  in {} ({}/s)  out {} ({}/s)", count(rows_in), count(rate_in as u64), count(rows_out), count(rate_out as u64));
    if let Some(watermark) = status.nodes.iter().filter_map(|node| node.watermark_ms).min() {
        line += &format!("  watermark {}", time(watermark));
    }
    if let Some(checkpoints) = &status.checkpoints {
        if let Some(last) = &checkpoints.last_completed {
            line += &format!("  checkpoint {} ({} B in {} ms)", last.id, count(last.bytes), last.duration_ms);
        }
        if checkpoints.consecutive_failures > 0 {
            line += &format!("  checkpoints failed {}", checkpoints.consecutive_failures);
        }
    }
    if status.restarts > 0 {
        line += &format!("  restarts {}", status.restarts);
    }
    if status.degraded {
        line += &format!("  DEGRADED: {}", status.degraded_reason);
    }
    if !status.waiting_for.is_empty() {
        line += &format!("  waiting: {}", status.waiting_for);
    }
    line
}

/// A time of event time as people read it.
pub fn time(ms: i64) -> String {
    match ms {
        i64::MIN => "none".into(),
        i64::MAX => "end".into(),
        ms => levada_connectors::formats::ndjson::timestamp_text(ms),
    }
}

/// A number with its thousands apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 7, 999, 1000, 1_234_567].map(count), ["0", "7", "999", "1,000", "1,234,567"]);
    }
}
