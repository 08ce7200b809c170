//! A checkpoint under way: collects acknowledgements, then waits for its metadata to be written.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, DeclineReason, TaskSnapshot, VertexOperators};
use levada_common::ids::{AttemptId, CheckpointId, TaskId};
use levada_common::plan::{Plan, Vertex};
use levada_common::time::Instant;

use crate::clock::Clock;
use crate::execution::{Execution, describe};
use crate::status::CheckpointRecord;

/// Tasks named in the reason of an expired checkpoint.
const WAITING_NAMED_MAX: usize = 5;

/// A checkpoint that has neither completed nor failed.
#[derive(Debug)]
pub struct Pending {
    /// Its id.
    pub id: CheckpointId,
    /// What it is taken for.
    pub kind: CheckpointKind,
    /// The attempt that takes it.
    pub attempt: AttemptId,
    /// When it began.
    pub triggered: Clock,
    /// When it is given up.
    pub deadline: Instant,
    /// The tasks are finished with it: every one had seen the end of its data when it began, or it stops the job.
    pub last: bool,
    expected: BTreeSet<TaskId>,
    taken: BTreeMap<TaskId, TaskSnapshot>,
}

impl Pending {
    /// Waits for a snapshot of each task of the attempt.
    pub fn new(id: CheckpointId, kind: CheckpointKind, execution: &Execution, triggered: Clock, timeout_ms: u64) -> Self {
        let expected: BTreeSet<TaskId> = execution.task_ids().collect();
        assert!(!expected.is_empty(), "a plan has tasks");
        let deadline = triggered.now.plus_ms(timeout_ms);
        let last = match &kind {
            CheckpointKind::Checkpoint => execution.is_finishing(),
            CheckpointKind::Savepoint { stops, .. } => *stops,
        };
        let attempt = execution.id();
        Self { id, kind, attempt, triggered, deadline, last, expected, taken: BTreeMap::new() }
    }

    /// Whether a snapshot of the task is still wanted.
    pub fn wants(&self, task: TaskId) -> bool {
        self.expected.contains(&task)
    }

    /// Takes a snapshot that `wants` said yes to.
    pub fn take(&mut self, snapshot: TaskSnapshot) {
        assert!(self.expected.remove(&snapshot.task), "only a wanted snapshot is taken");
        self.taken.insert(snapshot.task, snapshot);
    }

    /// Whether every snapshot is here. From then on its metadata is being written.
    pub fn is_acknowledged(&self) -> bool {
        self.expected.is_empty()
    }

    /// Whether it is a savepoint that only its metadata is missing of and that nothing is ever restored from by itself: the job goes on
    /// beside it.
    pub fn is_only_users(&self) -> bool {
        self.is_acknowledged() && matches!(self.kind, CheckpointKind::Savepoint { stops: false, .. })
    }

    /// The snapshot taken of this task.
    pub fn taken(&self, task: TaskId) -> Option<&TaskSnapshot> {
        self.taken.get(&task)
    }

    /// All snapshots taken.
    pub fn snapshots(&self) -> Vec<TaskSnapshot> {
        self.taken.values().cloned().collect()
    }

    /// The metadata, once acknowledged by all.
    pub fn metadata(&self, plan: &Plan) -> CheckpointMetadata {
        assert!(self.is_acknowledged(), "metadata names every task");
        CheckpointMetadata {
            job: self.attempt.job,
            epoch: self.attempt.epoch,
            id: self.id,
            triggered_at_ms: self.triggered.wall_ms,
            max_parallelism: plan.max_parallelism,
            savepoint: self.kind.savepoint().is_some(),
            vertices: vertices(plan),
            tasks: self.snapshots(),
        }
    }

    /// Why it is given up when its time is over.
    pub fn expiry(&self, plan: &Plan, timeout_ms: u64) -> DeclineReason {
        let mut waiting: Vec<String> = self.expected.iter().take(WAITING_NAMED_MAX).map(|task| describe(plan, *task)).collect();
        if self.expected.len() > WAITING_NAMED_MAX {
            waiting.push(format!("{} more", self.expected.len() - WAITING_NAMED_MAX));
        }
        if self.expected.is_empty() {
            waiting.push("the metadata to be written".into());
        }
        DeclineReason::Expired { timeout_ms, waiting: waiting.join(", ") }
    }

    /// How it ended: with `failure`, or completed in the file `metadata`.
    pub fn record(&self, now: Instant, failure: Option<String>, metadata: String) -> CheckpointRecord {
        CheckpointRecord {
            id: self.id,
            savepoint: self.kind.savepoint().is_some(),
            triggered_at_ms: self.triggered.wall_ms,
            duration_ms: now.since(self.triggered.now),
            bytes: self.taken.values().map(TaskSnapshot::bytes).sum(),
            inline_bytes: self.taken.values().map(TaskSnapshot::inline_bytes).sum(),
            failure,
            metadata,
        }
    }
}

/// The plan's vertices as a snapshot notes them.
pub fn vertices(plan: &Plan) -> Vec<VertexOperators> {
    let vertex = |vertex: &Vertex| VertexOperators { parallelism: vertex.parallelism, uids: vertex.uids() };
    plan.vertices.iter().map(vertex).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::tasks;
    use crate::testing::{exchange, execution, snapshot};

    #[test]
    fn an_expired_checkpoint_names_who_is_missing() {
        let plan = exchange(4);
        let clock = Clock { now: Instant(0), wall_ms: 0 };
        let mut pending = Pending::new(CheckpointId(1), CheckpointKind::Checkpoint, &execution(&plan), clock, 100);
        let text = pending.expiry(&plan, 100).to_string();
        assert!(text.ends_with("3 more"), "{text}");
        for task in tasks(&plan).filter(|task| task.to_string() != "1.2") {
            pending.take(snapshot(task, "x"));
        }
        assert_eq!(
            pending.expiry(&plan, 100).to_string(),
            format!("expired after 100 ms; waiting for {}", describe(&plan, TaskId::new(plan.vertices[1].id, 2)))
        );
    }
}
