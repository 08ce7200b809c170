//! What comes into a golden job and what comes out, moment by moment, as text.
//!
//! A line at the margin is a moment, the indented lines below it are what comes out of it, by sink, in the order of the alphabet:
//! `clicks ann 5 | bob 6` are two rows of the source "clicks" that come at once, `-` stands for null; `clock 10s` is what
//! processing time comes to; `end clicks` ends that source, `end` all of them. `#` begins a remark, `#:` one that names the columns
//! of a sink. `& ` before an event says that no checkpoint is taken between it and the one before: what comes out of it depends on
//! how far the time of its own source had come, which a source that is restored finds out anew.

use std::path::{Path, PathBuf};

/// What a line of a sink's columns begins with.
const COLUMNS: &str = "#:";

/// Something that happens to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A source has rows, each a text for each of its columns.
    Rows { source: String, rows: Vec<Vec<String>> },
    /// Processing time comes to this, in milliseconds.
    Clock(u64),
    /// This source ends, or, without a name, every one.
    End(Option<String>),
}

/// An event, and the lines that come out.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Remarks and empty lines before it.
    before: Vec<String>,
    line: String,
    /// Whether no checkpoint comes before it.
    pub is_joined: bool,
    /// What happens.
    pub event: Event,
    /// What comes out, sorted.
    pub given: Vec<String>,
}

impl Moment {
    /// It as it is written.
    pub fn line(&self) -> &str {
        &self.line
    }
}

/// All that happens to a job; the last thing is the end of every source.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
    /// In the order of time.
    pub moments: Vec<Moment>,
}

impl Script {
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut moments, mut before): (Vec<Moment>, _) = (Vec::new(), Vec::new());
        for line in text.lines() {
            if line.starts_with(COLUMNS) {
                continue;
            }
            if line.trim().is_empty() || line.starts_with('#') {
                before.push(line.to_owned());
            } else if let Some(given) = line.strip_prefix("  ") {
                moments.last_mut().expect("what comes out stands below a moment").given.push(given.to_owned());
            } else {
                let joined = line.strip_prefix("& ");
                let event = event(joined.unwrap_or(line)).unwrap_or_else(|| panic!("{}: {line}", path.display()));
                let (before, line) = (std::mem::take(&mut before), line.to_owned());
                moments.push(Moment { before, line, is_joined: joined.is_some(), event, given: Vec::new() });
            }
        }
        assert_eq!(moments.last().map(|last| &last.event), Some(&Event::End(None)), "{} ends with `end`", path.display());
        Self { path: path.to_owned(), moments }
    }

    /// The moments behind which a checkpoint may come: all but the last one.
    pub fn cuts(&self) -> Vec<usize> {
        let next = self.moments.iter().enumerate().skip(1);
        next.filter(|(_, moment)| !moment.is_joined).map(|(next, _)| next - 1).collect()
    }

    /// Writes it with `given` as what comes out of each moment, for sinks that take these columns.
    pub fn bless(&self, sinks: &[String], given: &[Vec<String>]) {
        let mut text: String = sinks.iter().map(|sink| format!("{COLUMNS} {sink}\n")).collect();
        for (moment, given) in self.moments.iter().zip(given) {
            let lines = moment.before.iter().cloned().chain([moment.line.clone()]);
            lines.chain(given.iter().map(|line| format!("  {line}"))).for_each(|line| text.push_str(&(line + "\n")));
        }
        std::fs::write(&self.path, text).unwrap();
    }

    /// The first moment, from `first` on, of which something else came out than stands there, where `given` is what did.
    pub fn difference(&self, first: usize, given: &[Vec<String>]) -> Option<String> {
        let moments = self.moments[first..].iter().zip(given);
        let (moment, found) = moments.into_iter().find(|(moment, given)| moment.given != **given)?;
        Some(format!("at \"{}\" expected\n  {}\nfound\n  {}", moment.line, moment.given.join("\n  "), found.join("\n  ")))
    }
}

fn event(line: &str) -> Option<Event> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some(match word {
        "end" => Event::End((!rest.is_empty()).then(|| rest.to_owned())),
        "clock" => Event::Clock(rest.strip_suffix('s')?.parse::<u64>().ok()? * 1000),
        source => {
            let rows = rest.split(" | ").map(|row| row.split_whitespace().map(str::to_owned).collect()).collect();
            Event::Rows { source: source.to_owned(), rows }
        }
    })
}
