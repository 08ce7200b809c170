//! The tasks of the simulated TaskManagers: what flows between them, what they say, what they acknowledge.

use std::sync::Arc;

use levada_common::checkpoint::{
    CheckpointKind, DatabaseFile, DeclineReason, Handle, StateHandle, StateKind, TaskSnapshot, shared_path_start,
};
use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, SubtaskIndex, TaskId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::Plan;
use levada_jobmanager_core::Event;
use levada_jobmanager_core::event::TaskState;
use rand::Rng;

use crate::network::{Change, Element, Happening};
use crate::task::{Next, Phase, Task, downstream};
use crate::world::World;

impl World {
    fn locate(&mut self, attempt: AttemptId, task: TaskId) -> Option<(usize, &mut Task)> {
        let mut managers = self.managers.iter_mut().enumerate();
        managers.find_map(|(at, manager)| manager.tasks.get_mut(&(attempt, task)).map(|task| (at, task)))
    }

    /// Something arrives on a channel.
    pub fn arrive(&mut self, attempt: AttemptId, from: TaskId, to: TaskId, element: Element) {
        let Some((_, task)) = self.locate(attempt, to) else { return };
        let next = match element {
            Element::Barrier(checkpoint) => task.barrier(from, checkpoint),
            Element::End => task.ended(from),
        };
        self.follow(attempt, to, next);
    }

    fn follow(&mut self, attempt: AttemptId, task: TaskId, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Snapshot(checkpoint) => self.snapshot(attempt, task, checkpoint),
            Next::Finish => {
                let at_ms = self.now_ms + self.delay_ms();
                self.queue.add(at_ms, Happening::Task { attempt, task, change: Change::Drained });
            }
        }
    }

    /// A task changes by itself.
    pub fn change(&mut self, attempt: AttemptId, id: TaskId, change: Change) {
        let Some((manager, task)) = self.locate(attempt, id) else { return };
        let say = |state| Event::Task { attempt, task: id, state };
        match change {
            Change::Restored => {
                task.phase = Phase::Running;
                let (finished, next) = (task.restored_finished, task.next());
                self.up(manager, say(TaskState::Running));
                self.follow(attempt, id, next);
                let source = self.plan.vertex(id.vertex).source.is_some();
                let ends_ms = match self.faults.source_ms_max {
                    _ if finished => Some(self.delay_ms()),
                    Some(most_ms) if source => Some(self.rng.random_range(1..=most_ms)),
                    _ => None,
                };
                if let Some(ms) = ends_ms {
                    self.queue.add(self.now_ms + ms, Happening::Task { attempt, task: id, change: Change::Drained });
                }
            }
            Change::Drained if task.stopped.is_some() => task.drained_meanwhile = true,
            Change::Drained if task.phase == Phase::Running => {
                task.phase = Phase::Finishing;
                self.up(manager, say(TaskState::Finishing));
                self.send(attempt, id, Element::End);
            }
            Change::Drained => {}
            Change::Fails(why) => {
                self.managers[manager].tasks.remove(&(attempt, id));
                let failure = Failure::external(format!("{why} in attempt {}", attempt.attempt));
                self.up(manager, say(TaskState::Failed(failure)));
            }
        }
    }

    fn send(&mut self, attempt: AttemptId, from: TaskId, element: Element) {
        for to in downstream(&self.plan, from) {
            let earliest_ms = self.now_ms + self.delay_ms();
            let last_ms = self.channels.entry((attempt, from, to)).or_default();
            *last_ms = earliest_ms.max(*last_ms);
            self.queue.add(*last_ms, Happening::Channel { attempt, from, to, element });
        }
    }

    /// The task takes its snapshot, forwards the barrier, and acknowledges or declines a while later.
    pub fn snapshot(&mut self, attempt: AttemptId, id: TaskId, checkpoint: u64) {
        let Some((_, task)) = self.locate(attempt, id) else { return };
        let finished = task.phase == Phase::Finishing || task.restored_finished;
        if task.phase == Phase::Running {
            self.send(attempt, id, Element::Barrier(checkpoint));
        }
        let mut at_ms = self.now_ms + self.delay_ms();
        if self.chance(self.faults.slow) {
            at_ms += self.rng.random_range(1..=3 * self.faults.timeout_ms);
        }
        let checkpoint = CheckpointId(checkpoint);
        if self.kinds.get(&checkpoint).is_some_and(CheckpointKind::stops)
            && let Some((_, task)) = self.locate(attempt, id)
            && task.phase == Phase::Running
        {
            task.stopped = Some(checkpoint.0);
        }
        if self.chance(self.faults.decline) {
            let reason = self.reason(id);
            self.queue.add(at_ms, Happening::Call(Event::SnapshotDeclined { attempt, checkpoint, task: id, reason }));
            return;
        }
        let snapshot = self.snapshot_of(attempt, id, checkpoint, finished);
        let event = Event::SnapshotTaken { attempt, checkpoint, snapshot };
        if self.chance(self.faults.repeat) {
            let again_ms = at_ms + self.rng.random_range(0..=2_000);
            self.queue.add(again_ms, Happening::Call(event.clone()));
        }
        self.queue.add(at_ms, Happening::Call(event));
    }

    /// The snapshot of a task: a file of its own, and where it keeps keys, shared files upon those of the newest checkpoint that it
    /// knows complete. A savepoint has a file only.
    fn snapshot_of(&mut self, attempt: AttemptId, id: TaskId, checkpoint: CheckpointId, finished: bool) -> TaskSnapshot {
        self.files += 1;
        let savepoint = self.kinds.get(&checkpoint).is_some_and(|kind| kind.savepoint().is_some());
        let folder = if savepoint { "savepoint" } else { "chk" };
        let path = format!("{folder}-{checkpoint}/{}-{id}-{}", attempt.attempt, self.files);
        if savepoint || finished || self.plan.vertex(id.vertex).source.is_some() {
            return snapshot(&self.plan, id, Handle::File { path, offset: 0, length: 1 }, finished);
        }
        let base = self.locate(attempt, id).map(|(_, task)| task.base.clone()).unwrap_or_default();
        let mut shared: Vec<String> = base.into_iter().filter(|_| self.rng.random_ratio(3, 4)).collect();
        self.tally.shared_reused += shared.len() as u64;
        shared.push(format!("{}{}", shared_path_start(attempt.epoch, attempt.attempt), self.files));
        if let Some((_, task)) = self.locate(attempt, id) {
            task.written.insert(checkpoint.0, shared.clone());
        }
        let file = |path: String| DatabaseFile { name: path.replace('/', "-"), path, length: 1, crc32c: 0 };
        let files = shared.into_iter().chain([path]).map(file).collect();
        snapshot(&self.plan, id, Handle::Database { files, family: "state".into() }, finished)
    }

    /// The tasks of an attempt on one TaskManager hear what became of a checkpoint.
    pub fn notified(&mut self, manager: usize, attempt: AttemptId, checkpoint: u64, completed: bool) {
        let ids: Vec<TaskId> =
            self.managers[manager].tasks.keys().filter(|(of, _)| *of == attempt).map(|(_, task)| *task).collect();
        for id in ids {
            let Some((_, task)) = self.locate(attempt, id) else { continue };
            let written = task.written.remove(&checkpoint);
            if completed {
                task.base = written.unwrap_or_default();
                task.written.retain(|other, _| *other > checkpoint);
            } else if task.stopped.is_some_and(|stopped| stopped <= checkpoint) {
                task.stopped = None;
                let drained = std::mem::take(&mut task.drained_meanwhile);
                let next = task.next();
                self.follow(attempt, id, next);
                if drained {
                    let at_ms = self.now_ms + self.delay_ms();
                    self.queue.add(at_ms, Happening::Task { attempt, task: id, change: Change::Drained });
                }
            }
        }
    }

    fn reason(&mut self, task: TaskId) -> DeclineReason {
        match self.rng.random_range(0..3) {
            0 => DeclineReason::Declined("injected".into()),
            1 => DeclineReason::StorageWrite { path: "x".into(), cause: "no space".into() },
            _ => {
                let (uid, state) = (Uid::new("x"), "y".to_string());
                DeclineReason::StateTooLarge { uid, state, subtask: task.subtask, size_bytes: 2, limit_bytes: 1 }
            }
        }
    }
}

fn snapshot(plan: &Plan, task: TaskId, handle: Handle, finished: bool) -> TaskSnapshot {
    let vertex = plan.vertex(task.vertex);
    let state = StateHandle {
        uid: Uid::new(vertex.name.as_str()),
        name: "state".into(),
        kind: if vertex.source.is_some() { StateKind::OperatorList } else { StateKind::Keyed },
        schema: Arc::default(),
        subtask: SubtaskIndex(task.subtask.0),
        key_groups: KeyGroupRange::of_subtask(task.subtask.0, vertex.parallelism, plan.max_parallelism),
        rows: 1,
        crc32c: 0,
        handle,
    };
    TaskSnapshot { task, finished, states: vec![state] }
}
