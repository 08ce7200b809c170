//! A task as everything but its own thread sees it: its names, its inbox, its counters, and what it says of itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, TaskId};
use levada_common::plan::Plan;
use levada_engine::metrics::{NodeMetrics, TaskMetrics};
use levada_proto::convert::{task_index, task_to_ref};
use levada_proto::v1;
use tokio::sync::mpsc::UnboundedSender;

use crate::inbox::InboxSender;
use crate::manager::Event;

/// A task from outside.
#[derive(Debug)]
pub struct TaskHandle {
    /// Its attempt.
    pub attempt: AttemptId,
    /// Its place in the job.
    pub task: TaskId,
    /// The job's name.
    pub job_name: String,
    /// Its vertex's name.
    pub vertex_name: String,
    /// The tasks that send to it, by input channel.
    pub senders: Vec<TaskId>,
    /// Whether it is a source that keeps pace with others.
    pub keeps_pace: bool,
    /// How it is told things.
    pub inbox: InboxSender,
    /// Its counters.
    pub metrics: Arc<TaskMetrics>,
    /// Its nodes' counters.
    pub nodes: Vec<Arc<NodeMetrics>>,
}

impl TaskHandle {
    /// A task of `plan` that has not started.
    pub fn new(attempt: AttemptId, task: TaskId, plan: &Plan, inbox: InboxSender) -> Self {
        let vertex = plan.vertex(task.vertex);
        Self {
            attempt,
            task,
            job_name: plan.name.clone(),
            vertex_name: vertex.name.clone(),
            senders: plan.senders(task),
            keeps_pace: vertex.watermark().is_some_and(|watermark| watermark.align.is_some()),
            inbox,
            metrics: Arc::default(),
            nodes: vertex.uids().into_iter().map(|uid| Arc::new(NodeMetrics::new(uid))).collect(),
        }
    }

    /// Its counters as they travel.
    pub fn report(&self) -> v1::TaskReport {
        use Ordering::Relaxed;
        let node = |node: &Arc<NodeMetrics>| v1::NodeReport {
            uid: node.uid.to_string(),
            rows_in: node.rows_in.load(Relaxed),
            rows_out: node.rows_out.load(Relaxed),
            late_rows: node.late_rows.load(Relaxed),
            future_rows: node.future_rows.load(Relaxed),
            bad_records: node.bad_records.load(Relaxed),
            last_bad_record: node.last_bad().unwrap_or_default(),
            state_keys: node.state_keys.load(Relaxed),
            state_bytes: node.state_bytes.load(Relaxed),
        };
        v1::TaskReport {
            task: Some(task_to_ref(self.attempt, self.task)),
            watermark_ms: self.metrics.watermark_ms.load(Relaxed),
            busy_ns: self.metrics.busy_ns.load(Relaxed),
            blocked_ns: self.metrics.blocked_ns.load(Relaxed),
            idle_ns: self.metrics.idle_ns.load(Relaxed),
            nodes: self.nodes.iter().map(node).collect(),
            held_back_by: self.held_back_by().map(task_index),
            idle: self.metrics.idle.load(Relaxed),
            paused: self.metrics.paused.load(Relaxed),
        }
    }

    /// The task whose channel holds its time back.
    pub fn held_back_by(&self) -> Option<TaskId> {
        let channel = self.metrics.held_back_by.load(Ordering::Relaxed);
        self.senders.get(usize::try_from(channel).ok()?).copied()
    }
}

impl fmt::Display for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&task_name(&self.vertex_name, self.task.subtask.0))
    }
}

/// How messages name a task.
pub fn task_name(vertex_name: &str, subtask: u32) -> String {
    format!("\"{vertex_name}\" subtask {subtask}")
}

/// What a task says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// Restored and working.
    Running,
    /// Saw the end of its input and has drained.
    Finishing,
    /// The final checkpoint was notified; its thread has ended.
    Finished,
    /// Failed; its thread has ended.
    Failed(Failure),
    /// Ended because it was told to.
    Canceled,
}

impl TaskState {
    /// Whether nothing follows.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed(_) | Self::Canceled)
    }
}

/// A task's way to the manager. Never blocks; a task says a handful of things in its life.
#[derive(Debug, Clone)]
pub struct Voice {
    events: UnboundedSender<Event>,
    attempt: AttemptId,
    task: TaskId,
}

impl Voice {
    /// The voice of one task.
    pub fn new(events: UnboundedSender<Event>, attempt: AttemptId, task: TaskId) -> Self {
        Self { events, attempt, task }
    }

    /// Says it; where the manager has gone nobody listens any more.
    pub fn say(&self, state: TaskState) {
        let _ = self.events.send(Event::Task { attempt: self.attempt, task: self.task, state });
    }
}
