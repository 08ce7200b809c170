//! The simulated TaskManagers: killed, cut off, back again, and doing what they are told.

use std::collections::BTreeMap;

use levada_common::checkpoint::shared_path_start;
use levada_common::ids::{AttemptId, TaskId, TaskManagerId};
use levada_jobmanager_core::Event;
use levada_jobmanager_core::event::{TaskManagerInfo, TaskState};
use rand::Rng;

use crate::network::{Change, Command, Happening};
use crate::task::Task;
use crate::world::World;

/// In the name of a file of which no one was told.
pub const STRAY: &str = "stray";

/// A simulated TaskManager.
#[derive(Debug, Default)]
pub struct Manager {
    /// Its process.
    pub id: Option<TaskManagerId>,
    /// The process runs.
    pub alive: bool,
    /// It and the JobManager hear each other.
    pub reachable: bool,
    /// The JobManager takes it for alive.
    pub registered: bool,
    /// Counts its streams.
    pub session: u64,
    /// When its newest message arrives.
    pub up_last_ms: u64,
    /// When the newest message to it arrives.
    pub down_last_ms: u64,
    /// What it runs.
    pub tasks: BTreeMap<(AttemptId, TaskId), Task>,
}

impl World {
    fn resources(&mut self) {
        let slots = self.faults.slots;
        let ids = self.managers.iter().filter(|manager| manager.registered).filter_map(|manager| manager.id);
        let info = |id| TaskManagerInfo { id, data_address: format!("{id}:6121"), slots, network_memory_bytes: 1 << 30 };
        let infos = ids.map(info).collect();
        self.feed(Event::Resources(infos));
    }

    /// Kills a TaskManager, or cuts it off.
    pub fn loss(&mut self) {
        if self.faults.loss_every_ms == 0 || self.machine.is_terminal() {
            return;
        }
        let manager = self.rng.random_range(0..self.managers.len());
        let (killed, notice_ms, away_ms) = (self.rng.random(), self.rng.random_range(1..400), self.rng.random_range(1..2_500));
        let victim = &mut self.managers[manager];
        if victim.alive && victim.reachable {
            self.tally.losses += 1;
            victim.reachable = false;
            let session = victim.session;
            let (noticed_ms, back_ms) = (self.now_ms + notice_ms, self.now_ms + notice_ms + away_ms);
            if killed {
                victim.alive = false;
                let dead = std::mem::take(&mut victim.tasks);
                self.strand(dead.keys().map(|(attempt, _)| *attempt));
                self.break_channels(dead.keys().map(|(attempt, _)| *attempt).max());
            }
            self.queue.add(noticed_ms, Happening::Noticed { manager, session });
            self.queue.add(back_ms, Happening::Registers { manager });
        }
        self.draw_next(self.faults.loss_every_ms, Happening::Loss);
    }

    /// Killed tasks leave shared files of which they had told no one.
    fn strand(&mut self, attempts: impl Iterator<Item = AttemptId>) {
        for attempt in attempts {
            self.files += 1;
            self.storage.insert(format!("{}{STRAY}{}", shared_path_start(attempt.epoch, attempt.attempt), self.files));
        }
    }

    /// Some tasks notice that a peer is gone before the JobManager does.
    fn break_channels(&mut self, attempt: Option<AttemptId>) {
        let tasks: Vec<(AttemptId, TaskId)> = self.managers.iter().flat_map(|manager| manager.tasks.keys().copied()).collect();
        for (of, task) in tasks {
            if Some(of) == attempt && self.rng.random() {
                let at_ms = self.now_ms + self.delay_ms();
                self.queue.add(at_ms, Happening::Task { attempt: of, task, change: Change::Fails("channel broke") });
            }
        }
    }

    /// A task fails.
    pub fn failure(&mut self) {
        if self.faults.failure_every_ms == 0 || self.machine.is_terminal() {
            return;
        }
        let attempt = self.machine.attempt();
        let tasks: Vec<TaskId> = self
            .managers
            .iter()
            .flat_map(|manager| manager.tasks.keys().filter(|(of, _)| *of == attempt).map(|(_, task)| *task))
            .collect();
        if !tasks.is_empty() {
            let task = tasks[self.rng.random_range(0..tasks.len())];
            self.change(attempt, task, Change::Fails("injected"));
        }
        self.draw_next(self.faults.failure_every_ms, Happening::Failure);
    }

    /// The JobManager finds a stream broken.
    pub fn noticed(&mut self, manager: usize, session: u64) {
        let lost = &mut self.managers[manager];
        if lost.registered && lost.session == session {
            lost.registered = false;
            let id = lost.id.expect("it has registered");
            self.feed(Event::TaskManagerLost { id, reason: "its stream broke".into() });
            self.resources();
        }
    }

    /// A TaskManager comes: a new process, or one that was cut off.
    pub fn registers(&mut self, manager: usize) {
        let back = &mut self.managers[manager];
        if back.alive {
            self.tally.returns += 1;
        } else {
            self.processes += 1;
            back.id = Some(TaskManagerId::from_u128(self.processes));
            back.tasks.clear();
        }
        (back.alive, back.reachable, back.registered) = (true, true, true);
        back.session += 1;
        self.resources();
    }

    /// A TaskManager does what it is told.
    pub fn obey(&mut self, manager: usize, command: Command) {
        match command {
            Command::Deploy { attempt, tasks } => {
                self.managers[manager].tasks.clear();
                for (id, finished, base) in tasks {
                    self.managers[manager].tasks.insert((attempt, id), Task::new(&self.plan, id, finished, base));
                    let at_ms = self.now_ms + self.delay_ms();
                    self.queue.add(at_ms, Happening::Task { attempt, task: id, change: Change::Restored });
                }
            }
            Command::Cancel { attempt } => {
                let deaf = self.chance(self.faults.deaf);
                let mine = self.managers[manager].tasks.keys().filter(|(of, _)| *of == attempt && !deaf);
                for (_, task) in mine.copied().collect::<Vec<_>>() {
                    self.managers[manager].tasks.remove(&(attempt, task));
                    self.up(manager, Event::Task { attempt, task, state: TaskState::Canceled });
                }
            }
            Command::Trigger { attempt, checkpoint, tasks } => {
                for id in tasks {
                    let takes =
                        self.managers[manager].tasks.get_mut(&(attempt, id)).is_some_and(|task| task.triggered(checkpoint));
                    if takes {
                        self.snapshot(attempt, id, checkpoint);
                    }
                }
            }
            Command::EndSources { attempt, tasks } => {
                for task in tasks {
                    let at_ms = self.now_ms + self.delay_ms();
                    self.queue.add(at_ms, Happening::Task { attempt, task, change: Change::Drained });
                }
            }
            Command::Notify { attempt, checkpoint, completed } => self.notified(manager, attempt, checkpoint, completed),
            Command::Last { attempt } => {
                let mine = self.managers[manager].tasks.keys().filter(|(of, _)| *of == attempt);
                for (_, task) in mine.copied().collect::<Vec<_>>() {
                    self.managers[manager].tasks.remove(&(attempt, task));
                    self.up(manager, Event::Task { attempt, task, state: TaskState::Finished });
                }
            }
        }
    }
}
