//! A simulated task: counts barriers and ends on its channels, says when to snapshot and when it is finishing.

use std::collections::BTreeMap;

use levada_common::ids::TaskId;
use levada_common::plan::Plan;

/// How far the task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Restores.
    Restoring,
    /// Works.
    Running,
    /// Saw the end of its data.
    Finishing,
}

/// What has come on a channel.
#[derive(Debug, Clone, Copy, Default)]
struct Channel {
    barrier: u64,
    ended: bool,
}

/// What a task does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It waits.
    Nothing,
    /// It takes its snapshot for this checkpoint and forwards the barrier.
    Snapshot(u64),
    /// Its inputs have ended.
    Finish,
}

/// A task of one attempt.
#[derive(Debug, Clone)]
pub struct Task {
    /// How far it is.
    pub phase: Phase,
    /// The mark that it was restored with.
    pub restored_finished: bool,
    /// A savepoint that stops the job has passed it.
    pub stopped: Option<u64>,
    /// A source's data ended while it was stopped.
    pub drained_meanwhile: bool,
    /// Shared files of the newest checkpoint that it knows complete.
    pub base: Vec<String>,
    /// Shared files of its snapshots since.
    pub written: BTreeMap<u64, Vec<String>>,
    inputs: BTreeMap<TaskId, Channel>,
    snapshotted: u64,
}

impl Task {
    /// The task `id` of `plan`, restoring.
    pub fn new(plan: &Plan, id: TaskId, restored_finished: bool, base: Vec<String>) -> Self {
        let inputs = upstream(plan, id).into_iter().map(|from| (from, Channel::default())).collect();
        Self {
            phase: Phase::Restoring,
            restored_finished,
            stopped: None,
            drained_meanwhile: false,
            base,
            written: BTreeMap::new(),
            inputs,
            snapshotted: 0,
        }
    }

    /// Told by the JobManager to snapshot. Answers whether it does.
    pub fn triggered(&mut self, checkpoint: u64) -> bool {
        let takes = self.snapshotted < checkpoint
            && (self.phase == Phase::Finishing || self.phase == Phase::Running && self.inputs.is_empty());
        if takes {
            self.snapshotted = checkpoint;
        }
        takes
    }

    /// A barrier came.
    pub fn barrier(&mut self, from: TaskId, checkpoint: u64) -> Next {
        self.inputs.get_mut(&from).expect("a channel of the plan").barrier = checkpoint;
        self.next()
    }

    /// A channel ended.
    pub fn ended(&mut self, from: TaskId) -> Next {
        self.inputs.get_mut(&from).expect("a channel of the plan").ended = true;
        self.next()
    }

    /// What is next, as things are on the channels.
    pub fn next(&mut self) -> Next {
        if self.phase != Phase::Running || self.inputs.is_empty() || self.stopped.is_some() {
            return Next::Nothing;
        }
        match self.inputs.values().filter(|channel| !channel.ended).map(|channel| channel.barrier).min() {
            None => Next::Finish,
            Some(aligned) if aligned > self.snapshotted => {
                self.snapshotted = aligned;
                Next::Snapshot(aligned)
            }
            Some(_) => Next::Nothing,
        }
    }
}

/// The tasks that send to `to`.
pub fn upstream(plan: &Plan, to: TaskId) -> Vec<TaskId> {
    let senders = plan.edges.iter().filter(|edge| edge.to == to.vertex).flat_map(|edge| {
        let (from, own) = (plan.vertex(edge.from).parallelism, plan.vertex(edge.to).parallelism);
        (0..from)
            .filter(move |&sender| edge.targets(sender, from, own).contains(&to.subtask.0))
            .map(|sender| TaskId::new(edge.from, sender))
    });
    senders.collect()
}

/// The tasks that `from` sends to.
pub fn downstream(plan: &Plan, from: TaskId) -> Vec<TaskId> {
    let receivers = plan.edges.iter().filter(|edge| edge.from == from.vertex).flat_map(|edge| {
        let (own, to) = (plan.vertex(edge.from).parallelism, plan.vertex(edge.to).parallelism);
        edge.targets(from.subtask.0, own, to).map(|receiver| TaskId::new(edge.to, receiver))
    });
    receivers.collect()
}
