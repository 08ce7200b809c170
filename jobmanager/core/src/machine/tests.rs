//! Scenarios of one job, event by event. The orders that no one thinks of are the simulation's.

mod checkpoints;
mod ending;
mod life;
mod savepoints;

use levada_common::checkpoint::CheckpointKind;
use levada_common::plan::RestartSettings;

use super::*;
use crate::testing::{attempt, exchange, snapshot, task_manager};

/// A machine with its clock, and the effects since the last look.
struct Rig {
    machine: Machine,
    now: u64,
    effects: Vec<Effect>,
}

impl Rig {
    fn new(plan: Plan) -> Self {
        let AttemptId { job, epoch, .. } = attempt(0);
        Self { machine: Machine::new(job, epoch, Arc::new(plan), Options::default(), None), now: 0, effects: Vec::new() }
    }

    /// A job of two source and two sink tasks on two TaskManagers, deployed and running.
    fn running(plan: Plan) -> Self {
        let mut rig = Self::new(plan);
        rig.event(Event::Start { splits: BTreeMap::new() });
        rig.event(Event::Resources(vec![task_manager(1, 1), task_manager(2, 1)]));
        rig.all(TaskState::Running);
        assert_eq!(rig.machine.state, JobState::Running);
        rig.effects.clear();
        rig
    }

    fn event(&mut self, event: Event) {
        self.machine.handle(Instant(self.now), 1_000_000 + self.now, event, &mut self.effects);
    }

    /// Lets time pass, with a tick at the end.
    fn wait(&mut self, ms: u64) {
        self.now += ms;
        self.event(Event::Tick);
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn task(&mut self, task: TaskId, state: TaskState) {
        let attempt = self.machine.attempt();
        self.event(Event::Task { attempt, task, state });
    }

    fn all(&mut self, state: TaskState) {
        for task in tasks(&self.machine.plan.clone()) {
            self.task(task, state.clone());
        }
    }

    fn lose(&mut self, number: u128) {
        self.event(Event::TaskManagerLost { id: TaskManagerId::from_u128(number), reason: "its stream broke".into() });
    }

    fn acknowledge(&mut self, checkpoint: u64, snapshot: TaskSnapshot) {
        let attempt = self.machine.attempt();
        self.event(Event::SnapshotTaken { attempt, checkpoint: CheckpointId(checkpoint), snapshot });
    }

    fn acknowledge_all(&mut self, checkpoint: u64) {
        for task in tasks(&self.machine.plan.clone()) {
            self.acknowledge(checkpoint, file(checkpoint, task));
        }
    }

    fn decline(&mut self, checkpoint: u64, task: TaskId, reason: DeclineReason) {
        let attempt = self.machine.attempt();
        self.event(Event::SnapshotDeclined { attempt, checkpoint: CheckpointId(checkpoint), task, reason });
    }

    fn written(&mut self, checkpoint: u64) {
        let attempt = self.machine.attempt();
        let result = Ok(format!("file:///checkpoints/chk-{checkpoint}/_metadata"));
        self.event(Event::MetadataWritten { attempt, checkpoint: CheckpointId(checkpoint), result });
    }

    /// Takes checkpoint `id`, which is due after an interval, to its end.
    fn complete(&mut self, id: u64) {
        self.wait(1_000);
        self.acknowledge_all(id);
        self.written(id);
        assert_eq!(self.status().checkpoints.last_completed.map(|record| record.id), Some(CheckpointId(id)));
    }

    fn status(&self) -> JobSnapshot {
        self.machine.status(Instant(self.now))
    }

    /// The newest deployment: its attempt and what it is restored from.
    fn deployed(&mut self) -> Option<(u32, Option<u64>)> {
        let deployed = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Deploy { attempt, restored, .. } => Some((attempt.attempt.0, restored.map(|id| id.0))),
            _ => None,
        });
        self.effects.clear();
        deployed
    }
}

fn task(vertex: u32, subtask: u32) -> TaskId {
    TaskId::new(levada_common::ids::VertexId(vertex), subtask)
}

/// The snapshot that `task` acknowledges checkpoint `checkpoint` with.
fn file(checkpoint: u64, task: TaskId) -> TaskSnapshot {
    snapshot(task, &format!("chk-{checkpoint}/{task}"))
}

fn boom() -> TaskState {
    TaskState::Failed(Failure::external("boom"))
}

fn is_discard(effect: &Effect) -> bool {
    matches!(effect, Effect::DiscardSnapshot { .. } | Effect::DiscardCheckpoint { .. })
}
