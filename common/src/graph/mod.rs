//! The job graph: the document in which a user writes a job, after reading and structural checks, before planning.
//!
//! Must never know what a connector's options or an expression mean: those are checked by the planner (`levada-sql`), which
//! reports into the same list of errors. Every defect has the path and the line at which it stands.

mod check;
mod firing;
mod join;
mod json;
mod node;
mod paths;
mod read;
mod reference;
mod report;
mod settings;
mod top;
mod transform;
mod tree;
mod watermark;
mod window;
mod write;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub use paths::absolute_paths;
pub use read::{parse, read};
pub use reference::InputRef;
pub use watermark::{GraphWatermark, WatermarkSetting};

use crate::declaration::Options;
use crate::ids::Uid;
use crate::plan::{BadRecordPolicy, Evict, FiringSpec, JoinKind, WindowTime};

/// Version of the document that this release reads.
pub const GRAPH_VERSION: u64 = 1;

/// A job as written. Maps keep their order.
#[derive(Debug, Clone, PartialEq)]
pub struct JobGraph {
    /// The job's name.
    pub name: String,
    /// Settings as written.
    pub settings: GraphSettings,
    /// Sources.
    pub sources: Vec<SourceNode>,
    /// Transforms.
    pub transforms: Vec<TransformNode>,
    /// Sinks.
    pub sinks: Vec<SinkNode>,
    /// Where everything stands in the document.
    pub lines: Lines,
}

/// The line of each path of a document (`transforms.words.select.word` to 12; list items as `paths[0]`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines(pub BTreeMap<String, u32>);

impl Lines {
    /// The line of `path`, or of the nearest thing around it that has one.
    pub fn of(&self, path: &str) -> u32 {
        let mut path = path;
        loop {
            if let Some(line) = self.0.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return 1,
            }
        }
    }
}

/// A defect of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphError {
    /// Line, from 1.
    pub line: u32,
    /// Where it stands, as keys with dots: `transforms.words.select`.
    pub path: String,
    /// What is wrong, what was found, what is allowed.
    pub message: String,
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "line {}: {}", self.line, self.message)
        } else {
            write!(f, "line {}: {}: {}", self.line, self.path, self.message)
        }
    }
}

/// Every defect of a document, in the order of lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphErrors(pub Vec<GraphError>);

impl GraphErrors {
    /// Adds a defect at `path`.
    pub fn push(&mut self, lines: &Lines, path: impl Into<String>, message: impl Into<String>) {
        let path = path.into();
        self.0.push(GraphError { line: lines.of(&path), path, message: message.into() });
    }
}

impl fmt::Display for GraphErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for GraphErrors {}

/// `settings:` as written; `None` = the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphSettings {
    /// `parallelism`, 1 to `max_parallelism`.
    pub parallelism: Option<u32>,
    /// `max_parallelism`, 1 to 32768.
    pub max_parallelism: Option<u32>,
    /// `state.backend`.
    pub backend: Option<crate::plan::BackendKind>,
    /// `state.max_state_size`, bytes.
    pub max_state_size_bytes: Option<u64>,
    /// `state.inline_threshold`, bytes, at most 1 MiB.
    pub inline_threshold_bytes: Option<u64>,
    /// `checkpoint:` is there (an empty one means an interval of 10 s), or `false`/absent.
    pub checkpoint: Option<GraphCheckpoint>,
    /// `restart:`
    pub restart: Option<crate::plan::RestartSettings>,
    /// `batch.rows`, 1 to 65536.
    pub batch_rows_max: Option<usize>,
    /// `batch.timeout`, milliseconds.
    pub buffer_timeout_ms: Option<u64>,
}

/// `settings.checkpoint:` as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphCheckpoint {
    /// `interval`, milliseconds, at least 10; `off` is `Some(None)`.
    pub interval_ms: Option<Option<u64>>,
    /// `timeout`, milliseconds, at least 10.
    pub timeout_ms: Option<u64>,
    /// `min_pause`, milliseconds.
    pub min_pause_ms: Option<u64>,
    /// `tolerable_failures`.
    pub tolerable_failures: Option<u32>,
    /// `num_retained`, at least 1.
    pub num_retained: Option<u32>,
    /// `dir`, a URI with a scheme.
    pub dir: Option<String>,
    /// `mode`.
    pub mode: Option<crate::plan::CheckpointMode>,
    /// `retention: retain | delete`.
    pub retain: Option<bool>,
}

/// A node under `sources:`.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceNode {
    /// Its name.
    pub uid: Uid,
    /// The connector: the one key of the node that is not a common one.
    pub connector: String,
    /// What stands under it.
    pub options: Options,
    /// `watermark:`
    pub watermark: WatermarkSetting,
    /// `bad_records:`
    pub bad_records: BadRecordPolicy,
    /// `parallelism:`
    pub parallelism: Option<u32>,
}

/// A node under `transforms:`. Its clauses act in the order where, join, key_by, window, aggregate, having, process, order_by or
/// deduplicate, select, split.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformNode {
    /// Its name.
    pub uid: Uid,
    /// What it reads, at least one; several are a union.
    pub inputs: Vec<InputRef>,
    /// `where:`, SQL.
    pub filter: Option<String>,
    /// `join:`, another stream whose rows meet those of `inputs`.
    pub join: Option<GraphJoin>,
    /// `evict:`, in a window: which rows the function gets.
    pub evict: Option<GraphEvict>,
    /// `with:`, the second input of a function that has one with a key.
    pub with: Vec<InputRef>,
    /// `key_by:`, columns.
    pub key_by: Option<Vec<String>>,
    /// The columns of `with` that are equal to those of `key_by`, where they have other names.
    pub with_key: Option<Vec<String>>,
    /// `window:`
    pub window: Option<GraphWindow>,
    /// `early`, `allowed_lateness`, `late` and `accumulate` of the window, where they say anything.
    pub firing: Option<FiringSpec>,
    /// `trigger` of the window, one that a TaskManager's own binary brings.
    pub trigger: Option<GraphProcess>,
    /// `time` and `time_zone` of the window.
    pub window_time: WindowTime,
    /// `aggregate:`, output column to SQL call (`count(*)`, `first(a order by b desc, c)`).
    pub aggregate: Option<Vec<(String, String)>>,
    /// `having:`, SQL over the aggregation's output.
    pub having: Option<String>,
    /// `process:`, a function that a TaskManager's own binary brings.
    pub process: Option<GraphProcess>,
    /// `broadcast:`, what every instance of the function gets all rows of; empty where it has no such input.
    pub broadcast: Vec<InputRef>,
    /// `order_by:`, `limit:` and `rank:`, the best rows of each key.
    pub top: Option<GraphTop>,
    /// `deduplicate:`, one row of each key.
    pub deduplicate: Option<GraphDeduplicate>,
    /// `ttl:`, how long rows of a join without window, a top-N or a deduplication are kept, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// `select:`, output column to SQL.
    pub select: Option<Vec<(String, String)>>,
    /// `split:`, name of an output to SQL, in order; `None` = `else`, which is the last.
    pub split: Option<Vec<(String, Option<String>)>>,
    /// `changelog: full`: rows that updates replace are emitted too, as `-U`.
    pub changelog_full: bool,
    /// `bad_records:`
    pub bad_records: BadRecordPolicy,
    /// `parallelism:`
    pub parallelism: Option<u32>,
}

impl TransformNode {
    /// What it reads, by the key under which it stands: `inputs`, then what it is joined or connected with, then `broadcast`.
    pub fn input_lists(&self) -> [(&'static str, &[InputRef]); 4] {
        let joined = self.join.as_ref().map_or(&[][..], |join| join.with.as_slice());
        [("inputs", &self.inputs), ("join.with", joined), ("with", &self.with), ("broadcast", &self.broadcast)]
    }

    /// Everything that it reads.
    pub fn reads(&self) -> impl Iterator<Item = &InputRef> {
        self.input_lists().into_iter().flat_map(|(_, inputs)| inputs)
    }
}

/// `join:` of a transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphJoin {
    /// `with`, the right side; several are a union.
    pub with: Vec<InputRef>,
    /// `kind`.
    pub kind: JoinKind,
    /// `on`, pairs of a left and a right column that must be equal.
    pub on: Vec<(String, String)>,
    /// `within`; where it is not there, rows meet in the node's `window`.
    pub within: Option<GraphInterval>,
    /// `lookup`: the right side is a table, of which a left row meets what is there when it comes.
    pub lookup: bool,
    /// `take`, output column to right column; `None` = every right column under its own name.
    pub take: Option<Vec<(String, String)>>,
}

/// `order_by:`, `limit:` and `rank:` of a transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphTop {
    /// Columns, most significant first, and whether greater values come first.
    pub order: Vec<(String, bool)>,
    /// `limit`, at least 1.
    pub limit: u32,
    /// `rank`, the output column for a row's place.
    pub rank: Option<String>,
    /// `with_ties`, in a window: rows that are equal to the last one come too.
    pub with_ties: bool,
}

/// `deduplicate:` of a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphDeduplicate {
    /// `keep: last`, not `first`.
    pub last: bool,
    /// `by: event_time`, not `arrival`.
    pub by_event_time: bool,
}

/// `within: { from, to }` of a join, milliseconds: the right row's time less the left one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphInterval {
    /// At least.
    pub from_ms: i64,
    /// At most.
    pub to_ms: i64,
}

/// `evict:` of a transform.
#[derive(Debug, Clone, PartialEq)]
pub enum GraphEvict {
    /// All but the last ones go.
    Last(Evict),
    /// An evictor that a TaskManager's own binary brings says which.
    Function(GraphProcess),
}

/// `process:` of a transform; likewise `trigger:` of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphProcess {
    /// `function`, the name under which it is registered.
    pub function: String,
    /// `options`, handed to the function's factory.
    pub options: Options,
}

/// `window:` of a transform, but for its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphWindow {
    /// `{ tumbling: { size, offset } }`, milliseconds.
    Tumbling {
        /// Length, at least 1.
        size_ms: i64,
        /// Shift, less than the length.
        offset_ms: i64,
    },
    /// `{ sliding: { size, slide, offset } }`, milliseconds.
    Sliding {
        /// Length, at least the slide.
        size_ms: i64,
        /// From one start to the next, at least 1.
        slide_ms: i64,
        /// Shift, less than the slide.
        offset_ms: i64,
    },
    /// `{ cumulate: { size, step, offset } }`, milliseconds.
    Cumulate {
        /// Length of the longest, a multiple of the step.
        size_ms: i64,
        /// By how much each is longer than the one before, at least 1.
        step_ms: i64,
        /// Shift, less than the length.
        offset_ms: i64,
    },
    /// `{ session: { gap } }`
    Session {
        /// How long a session stays open without a row.
        gap: GraphGap,
    },
    /// `{ count: { size, slide } }`, rows of a group.
    Count {
        /// Rows of a window, at least 1.
        size: u32,
        /// Rows from one start to the next, 1 to the size.
        slide: u32,
    },
    /// `same`
    Same,
    /// `global`
    Global,
}

/// `gap:` of a session window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphGap {
    /// A duration.
    Fixed {
        /// Milliseconds, at least 1.
        ms: i64,
    },
    /// SQL that gives each row's own, in milliseconds.
    Sql(String),
}

/// A node under `sinks:`.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkNode {
    /// Its name.
    pub uid: Uid,
    /// What it reads, at least one.
    pub inputs: Vec<InputRef>,
    /// The connector.
    pub connector: String,
    /// What stands under it.
    pub options: Options,
    /// `bad_records:`
    pub bad_records: BadRecordPolicy,
    /// `parallelism:`
    pub parallelism: Option<u32>,
}
