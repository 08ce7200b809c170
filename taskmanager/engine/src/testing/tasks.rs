//! One task between doubles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::{Attempt, AttemptId, CheckpointId, Epoch, JobId, Uid, VertexId};
use levada_common::plan::{Edge, Plan};
use levada_common::time::Instant;
use levada_state::keyed::HeapBudget;

use crate::function::Functions;
use crate::gate::input::ChannelRole;
use crate::metrics::{NodeMetrics, TaskMetrics};
use crate::operator::RestoredState;
use crate::task::{Environment, InputChannel, OutputEdge, Progress, Task, TaskEvent, TaskParts};
use crate::testing::{Closures, Queue, Script, SinkLog, channel, schema, sink_factory, source_factory};

/// A batch of the column `n`.
pub(crate) fn ints(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let column = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_new(schema().to_arrow(), vec![column]).unwrap()
}

/// The first column's values.
pub(crate) fn numbers(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// The elements on a channel as text: rows as their numbers, signals by name.
pub(crate) fn drain(queue: &Queue) -> Vec<String> {
    use crate::element::Element;
    std::iter::from_fn(|| queue.pop())
        .map(|element| match element {
            Element::Batch(batch) => format!("{:?}", numbers(&batch)),
            Element::Watermark(watermark) => format!("watermark {watermark}"),
            Element::Idle => "idle".into(),
            Element::Barrier(barrier) => format!("barrier {}", barrier.checkpoint),
            Element::EndOfData => "end".into(),
        })
        .collect()
}

/// A snapshot as text: the checkpoint, whether the task had finished, and each state's uid, name and entries.
pub(crate) type SnapshotText = (u64, bool, Vec<(String, String, Vec<String>)>);

fn snapshot_entries(event: TaskEvent) -> SnapshotText {
    let TaskEvent::Snapshot { checkpoint, finished, parts, .. } = event else { panic!("this is no snapshot") };
    let mut states = Vec::new();
    for part in parts {
        let (meta, pieces) = part.into_pieces().expect("a task has no database here");
        let mut entries = Vec::new();
        for batch in pieces {
            let batch = batch.unwrap();
            entries.extend(batch.column(0).as_string::<i32>().iter().map(|entry| entry.unwrap().to_owned()));
        }
        states.push((meta.uid.to_string(), meta.name, entries));
    }
    (checkpoint.0, finished, states)
}

/// A task, and all that it is connected to.
pub(crate) struct TestTask {
    pub(crate) task: Task,
    pub(crate) script: Script,
    pub(crate) log: SinkLog,
    pub(crate) inputs: Vec<Queue>,
    pub(crate) outputs: Vec<Queue>,
    pub(crate) nodes: Vec<Arc<NodeMetrics>>,
    pub(crate) metrics: Arc<TaskMetrics>,
    pub(crate) now_ms: u64,
}

impl TestTask {
    /// Subtask 0 of `vertex`, with `inputs` channels, at its first start.
    pub(crate) fn start(plan: Plan, vertex: u32, inputs: usize, closures: Closures) -> Self {
        Self::restore(plan, vertex, inputs, closures, None, false, BTreeMap::new())
    }

    /// The same, restored.
    pub(crate) fn restore(
        plan: Plan,
        vertex: u32,
        inputs: usize,
        closures: Closures,
        restored_from: Option<u64>,
        finished: bool,
        restored: BTreeMap<Uid, Vec<RestoredState>>,
    ) -> Self {
        let (script, log) = (Script::default(), SinkLog::default());
        let env = Environment {
            compiler: Arc::new(closures),
            sources: [("script".to_string(), source_factory(&script))].into(),
            sinks: [("log".to_string(), sink_factory(&log))].into(),
            functions: Functions::default(),
            heap_budget: Arc::new(HeapBudget::unlimited()),
            processing_time_zero_ms: 0,
        };
        let plan = Arc::new(plan);
        let id = VertexId(vertex);
        let nodes: Vec<_> = plan.vertex(id).uids().into_iter().map(|uid| Arc::new(NodeMetrics::new(uid))).collect();
        let (mut in_queues, mut in_channels) = (Vec::new(), Vec::new());
        for _ in 0..inputs {
            let (queue, _, reader) = channel(usize::MAX);
            in_queues.push(queue);
            in_channels.push(InputChannel { role: ChannelRole::default(), reader });
        }
        let (mut out_queues, mut out_edges) = (Vec::new(), Vec::new());
        let edges: Vec<Edge> = plan.outputs(id).cloned().collect();
        for edge in edges {
            let mut channels = Vec::new();
            for _ in edge.targets(0, plan.vertex(id).parallelism, plan.vertex(edge.to).parallelism) {
                let (queue, writer, _) = channel(usize::MAX);
                out_queues.push(queue);
                channels.push(writer);
            }
            out_edges.push(OutputEdge { edge, channels });
        }
        let first_start = restored_from.is_none();
        let metrics = Arc::new(TaskMetrics::default());
        let parts = TaskParts {
            plan: Arc::clone(&plan),
            vertex: id,
            subtask: 0,
            attempt: AttemptId { job: JobId::from_u128(1), attempt: Attempt(1), epoch: Epoch(1) },
            restored_from: restored_from.map(CheckpointId),
            finished,
            restored,
            splits: if first_start { vec!["split 0".into()] } else { Vec::new() },
            inputs: in_channels,
            outputs: out_edges,
            waker: Waker::noop().clone(),
            cold: None,
            metrics: Arc::clone(&metrics),
            node_metrics: nodes.clone(),
        };
        let task = Task::new(&env, parts).unwrap();
        Self { task, script, log, inputs: in_queues, outputs: out_queues, nodes, metrics, now_ms: 0 }
    }

    /// Steps until it has nothing to do at this moment.
    pub(crate) fn settle(&mut self) -> Progress {
        for _ in 0..10_000 {
            let progress = self.task.step(Instant(self.now_ms)).unwrap();
            if progress != Progress::Worked {
                return progress;
            }
        }
        panic!("the task does not come to rest");
    }

    /// Its snapshots so far.
    pub(crate) fn snapshots(&mut self) -> Vec<SnapshotText> {
        let events = self.task.take_events();
        events.into_iter().filter(|event| matches!(event, TaskEvent::Snapshot { .. })).map(snapshot_entries).collect()
    }
}
