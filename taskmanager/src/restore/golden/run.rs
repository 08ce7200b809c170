//! One attempt at a golden job: all of its tasks on one thread, stepped until nothing moves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use levada_common::checkpoint::{CheckpointKind, TaskSnapshot};
use levada_common::ids::{AttemptId, CheckpointId, TaskId};
use levada_common::plan::Plan;
use levada_common::time::Instant;
use levada_engine::channel::{ChannelReader, ChannelWriter};
use levada_engine::element::{Barrier, Element};
use levada_engine::gate::input::ChannelRole;
use levada_engine::metrics::{NodeMetrics, TaskMetrics};
use levada_engine::task::{Environment, InputChannel, OutputEdge, Progress, Task, TaskEvent, TaskParts};
use levada_jobmanager_core::restore::assign;
use levada_state::cold::ColdStores;

use super::super::Restored;
use super::super::shipping::{Shipping, Snapshot};
use super::ends::Ends;
use super::script::Event;
use crate::upload::{Taken, Uploads};

/// How long a snapshot's way out is waited for before its tasks are stepped again: they give what it is made of.
const STEP_EVERY: Duration = Duration::from_micros(200);

/// A channel within the thread.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<VecDeque<Element>>>);

impl ChannelReader for Queue {
    fn try_recv(&mut self) -> Option<Element> {
        self.0.lock().unwrap().pop_front()
    }
}

impl ChannelWriter for Queue {
    fn is_ready(&mut self) -> bool {
        true
    }

    fn send(&mut self, element: Element) {
        self.0.lock().unwrap().push_back(element);
    }
}

struct Running {
    id: TaskId,
    task: Task,
    is_source: bool,
    is_finishing: bool,
}

/// A checkpoint that is under way.
pub struct UnderWay(CheckpointId);

/// The tasks of one attempt.
pub struct Run {
    plan: Arc<Plan>,
    ends: Ends,
    tasks: Vec<Running>,
    uploads: Arc<Uploads>,
    clock_ms: u64,
}

impl Run {
    /// Starts every task, from a snapshot or from nothing, at this processing time.
    pub async fn start(
        shipping: &Shipping,
        plan: &Arc<Plan>,
        attempt: AttemptId,
        from: Option<&Snapshot>,
        clock_ms: u64,
    ) -> Self {
        let restorer = shipping.restorer(plan, attempt);
        let directory = from.map(|from| from.directory.clone()).unwrap_or_default();
        let mut assigned = from.map(|from| assign(plan, &from.metadata).unwrap()).unwrap_or_default();
        let (ends, wiring) = (Ends::default(), Wiring::new(plan));
        let (environment, uploads) = (ends.environment(), shipping.uploads(plan, attempt));
        let mut tasks = Vec::new();
        for vertex in &plan.vertices {
            for subtask in 0..vertex.parallelism {
                let id = TaskId::new(vertex.id, subtask);
                let assigned = assigned.remove(&id).unwrap_or_default();
                let restored = shipping.restore(&restorer, id, assigned.states, &directory).await.unwrap();
                let begun = Begun { from: from.map(|from| from.metadata.id), finished: assigned.finished, restored };
                let task = begun.task(&environment, plan, attempt, id, &wiring, &uploads);
                tasks.push(Running { id, task, is_source: vertex.source.is_some(), is_finishing: false });
            }
        }
        let mut run = Self { plan: Arc::clone(plan), ends, tasks, uploads, clock_ms };
        run.rest();
        run
    }

    /// Batches of a source that were read before.
    pub fn read_before(&self, source: &str) -> u64 {
        self.ends.read_before(source)
    }

    /// Lets something happen, until nothing moves; answers what came out.
    pub fn happen(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Rows { source, rows } => self.ends.feed(source, rows.clone()),
            Event::Clock(ms) => self.clock_ms = *ms,
            Event::End(Some(source)) => self.ends.end(source),
            Event::End(None) => self.sources().for_each(|source| self.ends.end(source)),
        }
        self.rest();
        self.ends.take()
    }

    fn sources(&self) -> impl Iterator<Item = &str> {
        self.plan.vertices.iter().filter_map(|vertex| Some(vertex.source.as_ref()?.uid.as_str()))
    }

    /// Steps all tasks until none has anything to do.
    fn rest(&mut self) {
        while self.round() {
            std::thread::yield_now();
        }
    }

    /// Steps each task until it waits; whether one of them moved.
    fn round(&mut self) -> bool {
        let mut moved = false;
        for place in 0..self.tasks.len() {
            loop {
                let running = &mut self.tasks[place];
                let progress = running.task.step(Instant(self.clock_ms)).unwrap();
                for event in running.task.take_events() {
                    self.hand_over(place, event);
                }
                match progress {
                    Progress::Worked => moved = true,
                    Progress::Writing { .. } => {
                        moved = true;
                        break;
                    }
                    Progress::Waiting { .. } | Progress::Finished => break,
                    Progress::Blocked { .. } => panic!("a queue without a bound is full"),
                }
            }
        }
        moved
    }

    fn hand_over(&mut self, place: usize, event: TaskEvent) {
        let task = self.tasks[place].id;
        match event {
            TaskEvent::Snapshot { checkpoint, kind, finished, parts, durable } => {
                self.uploads.submit(Taken { task, checkpoint, kind, finished, parts, durable, sync_ns: 0 });
            }
            TaskEvent::Finishing => self.tasks[place].is_finishing = true,
            TaskEvent::Finished => {}
            TaskEvent::SnapshotDeclined { checkpoint, reason } => panic!("task {task} declines {checkpoint}: {reason}"),
        }
    }

    /// Lets a barrier pass through all tasks; their snapshots go out from then on.
    pub fn barrier(&mut self, shipping: &Shipping, checkpoint: CheckpointId) -> UnderWay {
        let (kind, _) = shipping.destination(checkpoint);
        for running in self.tasks.iter_mut().filter(|running| running.is_source || running.is_finishing) {
            running.task.trigger(Barrier { checkpoint, kind: kind.clone() });
        }
        self.rest();
        UnderWay(checkpoint)
    }

    /// Waits until a checkpoint is complete, and says so.
    pub async fn complete(&mut self, shipping: &mut Shipping, UnderWay(checkpoint): UnderWay) -> Snapshot {
        let mut snapshots: Vec<TaskSnapshot> = Vec::new();
        while snapshots.len() < self.tasks.len() {
            // A task that gives up rows of a snapshot bit by bit must be stepped for it to go on.
            self.rest();
            snapshots.extend(tokio::time::timeout(STEP_EVERY, shipping.acknowledged()).await);
        }
        // A savepoint is nothing to the tasks.
        if shipping.destination(checkpoint).0 == CheckpointKind::Checkpoint {
            self.uploads.complete(checkpoint);
            self.tasks.iter_mut().for_each(|running| running.task.notify(checkpoint, true, false).unwrap());
            self.rest();
        }
        shipping.snapshot(&self.plan, checkpoint, snapshots)
    }
}

/// The queues of a plan, by edge, sender and receiver.
struct Wiring {
    queues: BTreeMap<(usize, u32, u32), Queue>,
}

impl Wiring {
    fn new(plan: &Plan) -> Self {
        let mut queues = BTreeMap::new();
        for (index, edge) in plan.edges.iter().enumerate() {
            let (from, to) = (plan.vertex(edge.from).parallelism, plan.vertex(edge.to).parallelism);
            for sender in 0..from {
                queues.extend(edge.targets(sender, from, to).map(|receiver| ((index, sender, receiver), Queue::default())));
            }
        }
        Self { queues }
    }

    /// The receiving ends of a task, in the order of its inputs, edges and senders.
    fn inputs(&self, plan: &Plan, id: TaskId) -> Vec<InputChannel> {
        let mut edges: Vec<_> = plan.edges.iter().enumerate().filter(|(_, edge)| edge.to == id.vertex).collect();
        edges.sort_by_key(|(index, edge)| (edge.input, *index));
        let of_edge = |(index, edge): (usize, &levada_common::plan::Edge)| {
            let role = ChannelRole::of(plan, edge);
            let channels = self.queues.iter().filter(move |((of, _, to), _)| *of == index && *to == id.subtask.0);
            channels.map(move |(_, queue)| InputChannel { role, reader: Box::new(queue.clone()) }).collect::<Vec<_>>()
        };
        edges.into_iter().flat_map(of_edge).collect()
    }

    /// The sending ends of a task.
    fn outputs(&self, plan: &Plan, id: TaskId) -> Vec<OutputEdge> {
        let edges = plan.edges.iter().enumerate().filter(|(_, edge)| edge.from == id.vertex);
        let output = |(index, edge): (usize, &levada_common::plan::Edge)| {
            let channels = self.queues.iter().filter(|((of, from, _), _)| *of == index && *from == id.subtask.0);
            let channels = channels.map(|(_, queue)| Box::new(queue.clone()) as Box<dyn ChannelWriter>).collect();
            OutputEdge { edge: edge.clone(), channels }
        };
        edges.map(output).collect()
    }
}

/// What a task begins with.
struct Begun {
    from: Option<CheckpointId>,
    finished: bool,
    restored: Restored,
}

impl Begun {
    fn task(
        self,
        environment: &Environment,
        plan: &Arc<Plan>,
        attempt: AttemptId,
        id: TaskId,
        wiring: &Wiring,
        uploads: &Uploads,
    ) -> Task {
        for (uid, files) in self.restored.reusable {
            uploads.restored(id, uid, files);
        }
        let nodes = plan.vertex(id.vertex).uids().into_iter();
        let parts = TaskParts {
            plan: Arc::clone(plan),
            vertex: id.vertex,
            subtask: id.subtask.0,
            attempt,
            restored_from: self.from,
            finished: self.finished,
            restored: self.restored.states,
            splits: if self.from.is_none() && id.subtask.0 == 0 { vec!["0".into()] } else { Vec::new() },
            inputs: wiring.inputs(plan, id),
            outputs: wiring.outputs(plan, id),
            waker: Waker::noop().clone(),
            cold: self.restored.databases.map(|databases| databases as Arc<dyn ColdStores>),
            metrics: Arc::new(TaskMetrics::default()),
            node_metrics: nodes.map(|uid| Arc::new(NodeMetrics::new(uid))).collect(),
        };
        Task::new(environment, parts).unwrap()
    }
}
