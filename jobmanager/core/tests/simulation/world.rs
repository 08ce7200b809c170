//! The simulated world of one run: TaskManagers with their tasks, the streams to them, and the job's machine in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointKind, TaskSnapshot};
use levada_common::ids::{AttemptId, CheckpointId, Epoch, JobId, TaskId, TaskManagerId};
use levada_common::plan::Plan;
use levada_common::time::Instant;
use levada_jobmanager_core::{Event, Machine, Options, SavepointMode, SavepointRequest};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::faults::{END_AT_MS, Faults, HEAL_AT_MS};
use crate::invariants::{Step, Watch};
use crate::managers::Manager;
use crate::network::{Command, Happening, Queue};
use crate::plan::plan;
use crate::tally::Tally;

/// One run.
#[derive(Debug)]
pub struct World {
    /// The job's plan.
    pub plan: Arc<Plan>,
    /// What goes wrong now.
    pub faults: Faults,
    /// The seed's numbers.
    pub rng: StdRng,
    /// Now, in milliseconds.
    pub now_ms: u64,
    /// Things to come.
    pub queue: Queue,
    /// The TaskManagers.
    pub managers: Vec<Manager>,
    /// Files that acknowledgements brought and no one has deleted.
    pub storage: BTreeSet<String>,
    /// The job.
    pub machine: Machine,
    /// When the last thing arrives on each channel.
    pub channels: BTreeMap<(AttemptId, TaskId, TaskId), u64>,
    /// TaskManager processes started.
    pub processes: u128,
    /// Files written.
    pub files: u64,
    /// What each checkpoint is taken for.
    pub kinds: BTreeMap<CheckpointId, CheckpointKind>,
    /// What happened.
    pub tally: Tally,
    wishes: u64,
    delivered: BTreeSet<String>,
    watch: Watch,
}

impl World {
    /// The world of this seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let faults = Faults::draw(&mut rng);
        let plan = Arc::new(plan(&faults));
        let machine = Machine::new(JobId::from_u128(seed.into()), Epoch(1), Arc::clone(&plan), Options::default(), None);
        let mut world = Self {
            watch: Watch::new(Arc::clone(&plan), faults.clone()),
            plan,
            faults,
            rng,
            now_ms: 0,
            queue: Queue::default(),
            managers: Vec::new(),
            storage: BTreeSet::new(),
            machine,
            delivered: BTreeSet::new(),
            channels: BTreeMap::new(),
            processes: 0,
            files: 0,
            kinds: BTreeMap::new(),
            wishes: 0,
            tally: Tally::default(),
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        for manager in 0..self.faults.task_managers as usize {
            self.managers.push(Manager::default());
            let at_ms = self.delay_ms() * 3;
            self.queue.add(at_ms, Happening::Registers { manager });
        }
        let sources = self.plan.vertices.iter().filter(|vertex| vertex.source.is_some());
        let splits = sources.map(|vertex| (vertex.id.0, (0..5).map(|split| format!("split {split}")).collect())).collect();
        self.queue.add(self.rng.random_range(0..200), Happening::Call(Event::Start { splits }));
        if let Some(at_ms) = self.faults.cancel_at_ms {
            self.queue.add(at_ms, Happening::Call(Event::Cancel));
            self.queue.add(at_ms + self.rng.random_range(0..2_000), Happening::Call(Event::Cancel));
        }
        if let Some(at_ms) = self.faults.stop_at_ms {
            let mode = if self.faults.drain { SavepointMode::Drain } else { SavepointMode::Stop };
            for (number, at_ms) in (at_ms..END_AT_MS - 5_000).step_by(1_500).enumerate() {
                let request = SavepointRequest { id: format!("stop {number}"), directory: "file:///sp".into(), mode };
                self.queue.add(at_ms, Happening::Call(Event::Savepoint(request)));
            }
        }
        self.queue.add(HEAL_AT_MS, Happening::Heal);
        self.draw_next(self.faults.savepoint_every_ms, Happening::Savepoint);
        self.draw_next(self.faults.loss_every_ms, Happening::Loss);
        self.draw_next(self.faults.failure_every_ms, Happening::Failure);
    }

    /// Lets something happen after about this time, if it is to happen at all.
    pub fn draw_next(&mut self, every_ms: u64, happening: Happening) {
        if every_ms > 0 {
            let at_ms = self.now_ms + self.rng.random_range(1..=2 * every_ms);
            self.queue.add(at_ms, happening);
        }
    }

    /// Runs to the end and answers what happened.
    pub fn run(mut self) -> Tally {
        loop {
            let next_ms = self.queue.next_ms().unwrap_or(u64::MAX);
            let deadline_ms = self.machine.deadline().map_or(u64::MAX, |deadline| deadline.0);
            let at_ms = next_ms.min(deadline_ms);
            if at_ms > END_AT_MS {
                break;
            }
            self.now_ms = self.now_ms.max(at_ms);
            if deadline_ms < next_ms {
                self.feed(Event::Tick);
                let after = self.machine.deadline();
                assert!(
                    after.is_none_or(|after| after.0 > self.now_ms),
                    "a tick at its deadline does nothing: {:?}",
                    self.machine
                );
            } else if let Some(happening) = self.queue.pop() {
                self.happen(happening);
            }
        }
        let status = self.machine.status(Instant(self.now_ms));
        self.watch.end(&status, &self.storage);
        self.tally.add(&self.watch.tally());
        self.tally
    }

    /// Hands an event to the machine, lets the invariants look, performs the effects.
    pub fn feed(&mut self, event: Event) {
        self.tally.events += 1;
        let mut repeated = false;
        if let Event::SnapshotTaken { snapshot, .. } = &event {
            for path in shared_paths(snapshot) {
                if self.delivered.insert(path.clone()) {
                    self.storage.insert(path);
                }
            }
            for path in paths(snapshot) {
                if self.delivered.insert(path.clone()) {
                    self.storage.insert(path);
                } else {
                    repeated = true;
                }
            }
        }
        let before = self.machine.status(Instant(self.now_ms));
        let mut effects = Vec::new();
        self.machine.handle(Instant(self.now_ms), 1_700_000_000_000 + self.now_ms, event.clone(), &mut effects);
        let after = self.machine.status(Instant(self.now_ms));
        self.tally.repeats += u64::from(repeated && effects.is_empty());
        self.watch.step(&Step { now_ms: self.now_ms, event: &event, effects: &effects, before: &before, after: &after });
        for effect in effects {
            self.perform(effect);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Up { manager, session, event } => {
                if self.managers[manager].registered && self.managers[manager].session == session {
                    self.feed(event);
                }
            }
            Happening::Down { manager, session, command } => {
                let to = &self.managers[manager];
                if to.alive && to.reachable && to.session == session {
                    self.obey(manager, command);
                }
            }
            Happening::Call(event) => self.feed(event),
            Happening::Channel { attempt, from, to, element } => self.arrive(attempt, from, to, element),
            Happening::Task { attempt, task, change } => self.change(attempt, task, change),
            Happening::Loss => self.loss(),
            Happening::Failure => self.failure(),
            Happening::Savepoint => self.wish(),
            Happening::Noticed { manager, session } => self.noticed(manager, session),
            Happening::Registers { manager } => self.registers(manager),
            Happening::Heal => self.faults = self.faults.healed(),
        }
    }

    /// Someone wants a savepoint, or now and then a checkpoint.
    fn wish(&mut self) {
        self.wishes += 1;
        if self.wishes.is_multiple_of(3) {
            self.feed(Event::Checkpoint);
        }
        let id = format!("wish {}", self.wishes);
        self.feed(Event::Savepoint(SavepointRequest { id, directory: "file:///sp".into(), mode: SavepointMode::Continue }));
        if self.now_ms < HEAL_AT_MS {
            self.draw_next(self.faults.savepoint_every_ms, Happening::Savepoint);
        }
    }

    /// A delay of one message.
    pub fn delay_ms(&mut self) -> u64 {
        self.rng.random_range(1..=self.faults.delay_ms_max)
    }

    /// Whether something of this chance, out of 1000, comes about.
    pub fn chance(&mut self, of_1000: u32) -> bool {
        of_1000 > 0 && self.rng.random_ratio(of_1000, 1_000)
    }

    /// Sends an event on the TaskManager's stream.
    pub fn up(&mut self, manager: usize, event: Event) {
        let at_ms = (self.now_ms + self.delay_ms()).max(self.managers[manager].up_last_ms);
        self.managers[manager].up_last_ms = at_ms;
        let session = self.managers[manager].session;
        self.queue.add(at_ms, Happening::Up { manager, session, event });
    }

    /// Sends a command on the TaskManager's stream, where it has one.
    pub fn down(&mut self, id: TaskManagerId, command: Command) {
        let Some(manager) = self.managers.iter().position(|manager| manager.id == Some(id) && manager.registered) else { return };
        let at_ms = (self.now_ms + self.delay_ms()).max(self.managers[manager].down_last_ms);
        self.managers[manager].down_last_ms = at_ms;
        let session = self.managers[manager].session;
        self.queue.add(at_ms, Happening::Down { manager, session, command });
    }
}

/// The files of a snapshot that are its own.
pub fn paths(snapshot: &TaskSnapshot) -> impl Iterator<Item = String> {
    snapshot.states.iter().flat_map(|state| state.handle.own_paths()).map(str::to_owned)
}

/// The files of a snapshot that others may share.
pub fn shared_paths(snapshot: &TaskSnapshot) -> impl Iterator<Item = String> {
    snapshot.states.iter().flat_map(|state| state.handle.shared_paths()).map(str::to_owned)
}
