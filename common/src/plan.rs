//! The plan: a job graph that was checked, typed and cut into vertices. This is what TaskManagers run.
//!
//! Made by `levada-sql`'s planner, kept and scheduled by the JobManager, deployed to TaskManagers as JSON.
//! Invariant: whatever stands here is valid; a task finds no unknown column, type or connector in it.

mod changelog;
mod counted;
mod edge;
mod firing;
mod join;
mod library;
mod process;
mod top;
mod watermark;
mod window;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::aggregate_state::state_columns;
use crate::declaration::Options;
use crate::ids::{TaskId, Uid, VertexId};
use crate::state_schema::{StateSchema, StateShape};
use crate::types::{Column, LogicalType, StreamSchema};

pub use changelog::Changelog;
pub use counted::{AssignSpec, CountedValues, DistinctSpec};
pub use edge::{Edge, Partition, SideOutput};
pub use firing::{FiringSpec, Trigger, TriggerSpec};
pub use join::{JoinColumn, JoinKind, JoinScope, JoinSide, JoinSpec};
pub use library::{LibraryArgument, LibraryCall};
pub use process::{Evict, ProcessSpec, ProcessWindow, SecondInput, WindowPart};
pub use top::{TopSpec, TopWindow};
pub use watermark::{AlignSpec, FutureBound, FutureRows, TimeFormat, TimeUnit, WatermarkRule, WatermarkSpec};
pub use window::{SessionGap, WindowSpec, WindowTime, greatest_common_divisor};

/// Version of the plan's JSON; a TaskManager refuses another one.
pub const PLAN_VERSION: u32 = 1;

/// A job, ready to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// `PLAN_VERSION` of the planner.
    pub version: u32,
    /// The job's name, not unique.
    pub name: String,
    /// The job's settings, defaults filled in.
    pub settings: JobSettings,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Vertices in topological order; a vertex's id is its place.
    pub vertices: Vec<Vertex>,
    /// Streams between vertices.
    pub edges: Vec<Edge>,
    /// What the author should know though it stops nothing: a source that cannot be read again, say.
    pub warnings: Vec<String>,
    /// How the changes of each node whose output is a changelog are matched.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changelogs: BTreeMap<Uid, Changelog>,
}

impl Plan {
    /// The edges into `vertex`, in the order of its inputs.
    pub fn inputs(&self, vertex: VertexId) -> impl Iterator<Item = &Edge> {
        let mut edges: Vec<&Edge> = self.edges.iter().filter(|edge| edge.to == vertex).collect();
        edges.sort_by_key(|edge| edge.input);
        edges.into_iter()
    }

    /// The edges out of `vertex`.
    pub fn outputs(&self, vertex: VertexId) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == vertex)
    }

    /// The tasks that send to `task`, one for each of its input channels, in their order.
    pub fn senders(&self, task: TaskId) -> Vec<TaskId> {
        let to = self.vertex(task.vertex).parallelism;
        let of_edge = |edge: &Edge| {
            let from = self.vertex(edge.from).parallelism;
            let sends = |sender: &u32| edge.targets(*sender, from, to).contains(&task.subtask.0);
            (0..from).filter(sends).map(|sender| TaskId::new(edge.from, sender)).collect::<Vec<_>>()
        };
        self.inputs(task.vertex).flat_map(of_edge).collect()
    }

    /// The vertex of this id.
    pub fn vertex(&self, id: VertexId) -> &Vertex {
        &self.vertices[id.0 as usize]
    }

    /// Slots that the job needs: every slot takes one subtask of each vertex.
    pub fn slots(&self) -> u32 {
        self.vertices.iter().map(|vertex| vertex.parallelism).max().unwrap_or(0)
    }
}

/// Which backend holds the state and where its snapshots go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// Heap; snapshots inline in the acknowledgement.
    Memory,
    /// Heap; snapshots as files.
    Fs,
    /// Databases in the TaskManager's data directory; snapshots as files, of which a later one writes only what is new.
    Rocksdb,
}

impl BackendKind {
    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fs => "fs",
            Self::Rocksdb => "rocksdb",
        }
    }
}

/// Settings of a job, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSettings {
    /// Parallelism of nodes that set none.
    pub parallelism: u32,
    /// The state backend.
    pub backend: BackendKind,
    /// Largest inline state of one (state, subtask), in bytes.
    pub max_state_size_bytes: u64,
    /// Largest state that `fs` keeps inline, in bytes.
    pub inline_threshold_bytes: u64,
    /// Checkpointing.
    pub checkpoint: CheckpointSettings,
    /// What follows a failure.
    pub restart: RestartSettings,
    /// Most rows of a batch.
    pub batch_rows_max: usize,
    /// No row waits longer than this for its batch to fill, in milliseconds.
    pub buffer_timeout_ms: u64,
}

/// Checkpointing of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSettings {
    /// Time between triggers; `None` switches periodic checkpoints off (a bounded job still ends with one).
    pub interval_ms: Option<u64>,
    /// Time after which a checkpoint is given up.
    pub timeout_ms: u64,
    /// Least time between the end of one and the start of the next.
    pub min_pause_ms: u64,
    /// Consecutive failures tolerated before the job fails.
    pub tolerable_failures: u32,
    /// Completed checkpoints kept.
    pub num_retained: u32,
    /// Where they go: an absolute URI (`file:///...`).
    pub dir: Option<String>,
    /// Whether barriers of one task's inputs are aligned.
    pub mode: CheckpointMode,
    /// Whether checkpoints stay when the job is cancelled or fails.
    pub retain: bool,
}

/// Whether a row can be counted twice after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointMode {
    /// Barriers are aligned.
    ExactlyOnce,
    /// Nothing waits at a barrier.
    AtLeastOnce,
}

/// What follows a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "strategy")]
pub enum RestartSettings {
    /// The job fails.
    None,
    /// The job is started again after `delay_ms`, at most `attempts` times since the last completed checkpoint.
    FixedDelay {
        /// Restarts allowed.
        attempts: u32,
        /// Time before each.
        delay_ms: u64,
    },
}

/// A chain of operators that runs as one task, `parallelism` times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vertex {
    /// Its place in the plan.
    pub id: VertexId,
    /// The names of its nodes, ` -> ` between them.
    pub name: String,
    /// Parallel instances.
    pub parallelism: u32,
    /// The source at its head, where it has one; else it reads its in-edges.
    pub source: Option<SourceSpec>,
    /// Operators in order; may be empty.
    pub operators: Vec<OperatorSpec>,
    /// The sink at its end, where it has one; else it writes to its out-edges.
    pub sink: Option<SinkSpec>,
}

/// What to do with a row that cannot be read or computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadRecordPolicy {
    /// The job fails at once, naming place and reason, and is not restarted for it.
    #[default]
    Fail,
    /// It is dropped and counted.
    Drop,
}

/// A source as planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// The node's name.
    pub uid: Uid,
    /// The connector's name.
    pub connector: String,
    /// Its options as written.
    pub options: Options,
    /// The columns that it must give: a subset of what it can, in its own order (columns no one uses are left out).
    pub schema: StreamSchema,
    /// For rows that cannot be read.
    pub bad_records: BadRecordPolicy,
}

/// An operator as planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperatorSpec {
    /// The node that it comes from; several operators can share one (`where`, `select` of one transform).
    pub uid: Uid,
    /// Which clause of the node it is, for messages and metrics: `watermark`, `where`, `select`, `aggregate`, `having` ...
    pub clause: String,
    /// What it does.
    pub kind: OperatorKind,
    /// What it takes.
    pub input: StreamSchema,
    /// What it gives.
    pub output: StreamSchema,
    /// Its outputs beside that, as far as something reads them; an operator that has some is the last one of its vertex.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<SideOutput>,
    /// For rows that cannot be computed.
    pub bad_records: BadRecordPolicy,
}

/// What an operator does. Expressions are SQL over the columns of `input`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorKind {
    /// Checks event times (a bad record where null or out of range) and makes watermarks.
    Watermark(WatermarkSpec),
    /// Keeps the rows for which the predicate is true (null is false).
    Filter {
        /// A BOOLEAN expression.
        predicate: String,
        /// Whether one row of an update may pass without the other: it becomes the insert, or the delete, of its row.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        parts_updates: bool,
    },
    /// Computes columns; on a changelog `_op` is carried along.
    Project {
        /// Name and expression of each output column, in order.
        columns: Vec<(String, String)>,
        /// The output column whose value is a list to be unrolled: a row per element, none for null or empty.
        unnest: Option<usize>,
    },
    /// Gives each row once for each of its windows.
    Assign(AssignSpec),
    /// Marks the rows with which a value comes to be among those of its group, or ceases to be.
    Distinct(DistinctSpec),
    /// Groups and aggregates.
    Aggregate(AggregateSpec),
    /// Hands rows to a function that the TaskManager's binary brings.
    Process(Box<ProcessSpec>),
    /// Joins the rows of two inputs.
    Join(Box<JoinSpec>),
    /// Keeps the best rows of each key.
    Top(TopSpec),
    /// Gives each row to the output of the first condition that is true for it, or, where none is, to the main one.
    Split {
        /// Its other outputs, in order.
        branches: Vec<SplitBranch>,
        /// Whether the two rows of an update may go to different outputs: they become a delete and an insert.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        parts_updates: bool,
    },
}

impl OperatorKind {
    /// What the second input carries, where there is one.
    pub fn second_input(&self) -> Option<&StreamSchema> {
        match self {
            Self::Process(spec) => spec.broadcast.as_ref().or(spec.second.as_ref().map(|second| &second.schema)),
            Self::Join(spec) => Some(&spec.right),
            Self::Watermark(_) | Self::Filter { .. } | Self::Project { .. } | Self::Split { .. } => None,
            Self::Assign(_) | Self::Distinct(_) | Self::Aggregate(_) | Self::Top(_) => None,
        }
    }
}

/// An output of a split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitBranch {
    /// Its name.
    pub output: String,
    /// A BOOLEAN expression; `None` takes every row that is left.
    pub predicate: Option<String>,
}

/// An aggregation. Keys, arguments and orders are columns of the input: the planner puts a projection before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AggregateSpec {
    /// Key columns; empty = one global group.
    pub keys: Vec<String>,
    /// Over what rows are grouped beside the key.
    pub window: WindowSpec,
    /// What time the window goes by; the default where there is none.
    #[serde(default, skip_serializing_if = "WindowTime::is_default")]
    pub time: WindowTime,
    /// Which half of a two-phase aggregation this is.
    pub phase: AggregatePhase,
    /// What is computed, in the order of the output.
    pub calls: Vec<AggregateCall>,
    /// Where results replace earlier ones: whether these are given too, as `-U`.
    pub changelog_full: bool,
    /// When the window gives results beside the time when it is over; `None` = then only, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<FiringSpec>,
    /// What says instead when it gives them; `firing` is `None` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Box<TriggerSpec>>,
    /// Whether the input is a changelog, a full one: rows are taken in and taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_changes: bool,
    /// In sessions and windows of rows: the columns whose values are told apart here, since only here it is known which rows are
    /// together. Calls name them as `DistinctSpec` does, and the input does not have those columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distinct: Vec<String>,
}

impl AggregateSpec {
    /// The name of the keyed state, where the operator keeps one across a checkpoint: a partial keeps none.
    pub fn state_name(&self) -> Option<&'static str> {
        match (self.phase, &self.window) {
            (AggregatePhase::Partial, _) => None,
            (_, WindowSpec::Running) if self.takes_changes => Some("groups"),
            (_, WindowSpec::Tumbling { .. } | WindowSpec::Same) => Some("panes"),
            // A window that gives results more than once has to know of each group what it gave.
            (_, WindowSpec::Sliding { .. } | WindowSpec::Cumulate { .. }) if self.firing.is_some() || self.trigger.is_some() => {
                Some("panes")
            }
            (_, WindowSpec::Sliding { .. } | WindowSpec::Cumulate { .. }) => Some("slices"),
            (_, WindowSpec::Session { .. }) => Some("sessions"),
            (_, WindowSpec::Count { .. }) => Some("chunks"),
            (_, WindowSpec::Running | WindowSpec::Global) => Some("aggregate"),
        }
    }

    /// The columns of a group's state, in partials and snapshots: those of the calls, then what its window notes of it.
    pub fn state_columns(&self) -> Vec<Column> {
        let firing = self.firing.iter().flat_map(|_| FiringSpec::state_columns());
        let is_count = matches!(self.window, WindowSpec::Count { .. });
        let counts = is_count.then(WindowSpec::count_state_columns).into_iter().flatten();
        state_columns(&self.kept_calls()).into_iter().chain(firing).chain(self.result_column()).chain(counts).collect()
    }

    /// Whether windows come from the event time of rows.
    pub fn is_over_event_time(&self) -> bool {
        self.window.is_over_time() && !self.time.processing
    }

    /// Whether what is given has a window's bounds: results in windows have, and so have partials, but for those in windows of
    /// processing time, which the final half finds.
    pub fn gives_windows(&self) -> bool {
        self.window.is_windowed() && !(self.time.processing && self.phase == AggregatePhase::Partial)
    }

    /// What that state holds, over an input of this schema.
    pub fn state_schema(&self, input: &StreamSchema) -> StateSchema {
        let key = |name: &String| input.columns.iter().find(|column| column.name == *name).cloned();
        StateSchema {
            shape: StateShape::Accumulators,
            keys: self.keys.iter().filter_map(key).collect(),
            windowed: self.window.is_windowed(),
            values: self.state_columns(),
            grid: self.grid(),
            ..StateSchema::default()
        }
    }

    /// Where the slices of windows lie that are made of them: each is wholly in one, so that those of other windows do not do.
    fn grid(&self) -> String {
        let is_sliced = self.state_name() == Some("slices");
        if is_sliced { self.window.grid(&self.time) } else { String::new() }
    }

    /// Whether what a key has of windows of rows are chunks: of those that overlap, or that tell values apart.
    pub fn keeps_chunks(&self) -> bool {
        matches!(self.window, WindowSpec::Count { size, slide } if slide < size || !self.distinct.is_empty())
    }

    /// How a store lays that state out: chunks of rows, of which a key may have several, lie below it by their place.
    pub fn stored_schema(&self, input: &StreamSchema) -> StateSchema {
        let mut schema = self.state_schema(input);
        if self.keeps_chunks() {
            let [chunk, _] = WindowSpec::count_state_columns();
            let (map_key, values) = schema.values.into_iter().partition(|column| *column == chunk);
            schema = StateSchema { shape: StateShape::Map, map_key, values, ..schema };
        }
        schema
    }
}

/// Which half of a two-phase aggregation an operator is.
///
/// Shape of a partial's output and a final's input: the key columns, with a window of event time `window_start` and `window_end`
/// (TIMESTAMP, not null), then the columns of `aggregate_state::state_columns`. Append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregatePhase {
    /// Rows in, results out.
    Single,
    /// Rows in, states out; keeps nothing across a barrier.
    Partial,
    /// States in, results out.
    Final,
}

/// One aggregate call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// The output column.
    pub name: String,
    /// The function.
    pub function: AggregateFunction,
    /// The argument's column; `None` for `count(*)`.
    pub argument: Option<String>,
    /// The argument's type.
    pub argument_type: Option<LogicalType>,
    /// Whether the argument can be null.
    pub argument_nullable: bool,
    /// For `first` and `last`: the order, most significant first; the columns are inputs too. Empty = order of arrival.
    pub order: Vec<OrderSpec>,
    /// The result's type.
    pub result: LogicalType,
    /// For `Library`: which aggregate of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<Box<LibraryCall>>,
}

impl AggregateCall {
    /// The number of rows.
    pub fn count(name: &str) -> Self {
        Self {
            name: name.into(),
            function: AggregateFunction::Count,
            argument: None,
            argument_type: None,
            argument_nullable: false,
            order: Vec::new(),
            result: LogicalType::Int64,
            library: None,
        }
    }

    /// The function's name as users write it.
    pub fn function_name(&self) -> &str {
        self.library.as_ref().map_or(self.function.name(), |library| &library.function)
    }

    /// The columns of the input that it reads, in the order in which an accumulator takes them; one may be there twice.
    pub fn reads(&self) -> impl Iterator<Item = &String> {
        let library = self.library.iter().flat_map(|library| library.columns());
        let filter = self.library.iter().filter_map(|library| library.filter.as_ref());
        self.argument.iter().chain(library).chain(self.order.iter().map(|order| &order.column)).chain(filter)
    }
}

/// The engine's own aggregate functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregateFunction {
    /// Rows (`count(*)`), or rows in which the argument is not null. INT64.
    Count,
    /// Exact for integers and decimals: DECIMAL(38,s), overflow fails the job; FLOAT64 for floats. Null over no value.
    Sum,
    /// Least value; null over no value.
    Min,
    /// Greatest value; null over no value.
    Max,
    /// FLOAT64, for integers and decimals from the exact sum divided once. Null over no value.
    Avg,
    /// The argument in the first row by the order (ties: the earlier arrived).
    First,
    /// The argument in the last row by the order (ties: the later arrived).
    Last,
    /// An aggregate that the engine leaves to a library.
    Library,
}

impl AggregateFunction {
    /// Every function of the engine, in the order in which messages list them.
    pub const ALL: [Self; 7] = [Self::Count, Self::Sum, Self::Min, Self::Max, Self::Avg, Self::First, Self::Last];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::First => "first",
            Self::Last => "last",
            Self::Library => "library",
        }
    }
}

/// A column to order by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OrderSpec {
    /// The column.
    pub column: String,
    /// Its type.
    pub ty: LogicalType,
    /// Whether it can be null.
    pub nullable: bool,
    /// Whether greater values come first.
    pub descending: bool,
}

/// A sink as planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkSpec {
    /// The node's name.
    pub uid: Uid,
    /// The connector's name.
    pub connector: String,
    /// Its options as written.
    pub options: Options,
    /// What it takes.
    pub input: StreamSchema,
    /// For rows that cannot be written.
    pub bad_records: BadRecordPolicy,
}
