//! What the shell hands over to make a task: the plan's part, the ends of its channels, what it is restored from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use levada_common::ids::{AttemptId, CheckpointId, Uid, VertexId};
use levada_common::plan::{Edge, Plan};
use levada_state::cold::ColdStores;
use levada_state::keyed::HeapBudget;

use crate::channel::{ChannelReader, ChannelWriter};
use crate::expr::ExpressionCompiler;
use crate::function::Functions;
use crate::gate::input::ChannelRole;
use crate::metrics::{NodeMetrics, TaskMetrics};
use crate::operator::RestoredState;
use crate::sink::SinkFactory;
use crate::source::SourceFactory;

/// What tasks of any job are made with: the compiler of expressions, and the connectors by name.
#[derive(Clone)]
pub struct Environment {
    /// Compiles the SQL texts of a plan.
    pub compiler: Arc<dyn ExpressionCompiler>,
    /// Sources by connector name.
    pub sources: BTreeMap<String, SourceFactory>,
    /// Sinks by connector name.
    pub sinks: BTreeMap<String, SinkFactory>,
    /// Functions of users by name.
    pub functions: Functions,
    /// The memory for heap state of the TaskManager.
    pub heap_budget: Arc<HeapBudget>,
    /// Processing time, in milliseconds since 1970, at `Instant(0)`: both go on at one pace from there.
    pub processing_time_zero_ms: i64,
}

/// The receiving end of one channel of a task.
pub struct InputChannel {
    /// What it is to the task, by the edge that it belongs to.
    pub role: ChannelRole,
    /// The end.
    pub reader: Box<dyn ChannelReader>,
}

/// The sending ends of one out-edge of a task.
pub struct OutputEdge {
    /// The edge.
    pub edge: Edge,
    /// A channel for each of `Edge::targets` of this subtask, in order.
    pub channels: Vec<Box<dyn ChannelWriter>>,
}

/// All that one task is made of.
pub struct TaskParts {
    /// The job.
    pub plan: Arc<Plan>,
    /// The task's vertex in it.
    pub vertex: VertexId,
    /// Its parallel instance.
    pub subtask: u32,
    /// Job, attempt and epoch, for what the sink names after them.
    pub attempt: AttemptId,
    /// The checkpoint that the job is restored from.
    pub restored_from: Option<CheckpointId>,
    /// The task had seen the end of its data in that checkpoint: it emits no row again.
    pub finished: bool,
    /// What each node had in that checkpoint, as far as it fell to this task.
    pub restored: BTreeMap<Uid, Vec<RestoredState>>,
    /// At a first start: the splits of the source that fell to this task.
    pub splits: Vec<String>,
    /// Input channels; none for a source.
    pub inputs: Vec<InputChannel>,
    /// Out-edges; none for a sink.
    pub outputs: Vec<OutputEdge>,
    /// Wakes the task's thread; given to the source and the sink.
    pub waker: Waker,
    /// Opens the databases of its operators; none on the heap backends.
    pub cold: Option<Arc<dyn ColdStores>>,
    /// Counters of the task.
    pub metrics: Arc<TaskMetrics>,
    /// Counters of its nodes: one for each of `Vertex::uids`.
    pub node_metrics: Vec<Arc<NodeMetrics>>,
}
