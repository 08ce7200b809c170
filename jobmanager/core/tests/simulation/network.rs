//! What can happen in the simulated world and when: the queue of things to come, with delays drawn from the seed.
//!
//! Order holds within one stream and within one channel, and nowhere else.

use std::collections::BTreeMap;

use levada_common::ids::{AttemptId, TaskId};
use levada_jobmanager_core::Event;

/// What the JobManager tells a TaskManager.
#[derive(Debug, Clone)]
pub enum Command {
    /// Start these tasks, each with its mark.
    Deploy {
        /// The attempt.
        attempt: AttemptId,
        /// Task, whether it had finished, and the shared files that it is restored from.
        tasks: Vec<(TaskId, bool, Vec<String>)>,
    },
    /// End the attempt.
    Cancel {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Put a barrier into the stream.
    Trigger {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: u64,
        /// Whose.
        tasks: Vec<TaskId>,
    },
    /// The data of these sources ends.
    EndSources {
        /// The attempt.
        attempt: AttemptId,
        /// Whose.
        tasks: Vec<TaskId>,
    },
    /// A checkpoint completed, or was given up.
    Notify {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: u64,
        /// Completed.
        completed: bool,
    },
    /// The final checkpoint completed.
    Last {
        /// The attempt.
        attempt: AttemptId,
    },
}

/// What flows between tasks.
#[derive(Debug, Clone, Copy)]
pub enum Element {
    /// A barrier.
    Barrier(u64),
    /// The end of data.
    End,
}

/// What a task goes through by itself.
#[derive(Debug, Clone)]
pub enum Change {
    /// It has restored.
    Restored,
    /// Its data has ended and it has drained.
    Drained,
    /// It fails.
    Fails(&'static str),
}

/// Something to come.
#[derive(Debug, Clone)]
pub enum Happening {
    /// A message on a TaskManager's stream to the JobManager.
    Up {
        /// Whose.
        manager: usize,
        /// Of which of its streams.
        session: u64,
        /// What.
        event: Event,
    },
    /// A message on the JobManager's stream to a TaskManager.
    Down {
        /// To whom.
        manager: usize,
        /// On which of its streams.
        session: u64,
        /// What.
        command: Command,
    },
    /// A call to the JobManager, or the answer of its storage: in no order with anything.
    Call(Event),
    /// Something on a channel between tasks.
    Channel {
        /// The attempt.
        attempt: AttemptId,
        /// From.
        from: TaskId,
        /// To.
        to: TaskId,
        /// What.
        element: Element,
    },
    /// A task changes.
    Task {
        /// The attempt.
        attempt: AttemptId,
        /// Which.
        task: TaskId,
        /// How.
        change: Change,
    },
    /// A TaskManager is killed or cut off; then the next loss is drawn.
    Loss,
    /// A task fails; then the next failure is drawn.
    Failure,
    /// Someone wants a savepoint; then the next wish is drawn.
    Savepoint,
    /// The JobManager notices that a stream is broken.
    Noticed {
        /// Whose.
        manager: usize,
        /// Which stream.
        session: u64,
    },
    /// A TaskManager registers (again).
    Registers {
        /// Which.
        manager: usize,
    },
    /// Faults stop.
    Heal,
}

/// The queue of things to come.
#[derive(Debug, Default)]
pub struct Queue {
    sequence: u64,
    things: BTreeMap<(u64, u64), Happening>,
}

impl Queue {
    /// Adds something at a time, in milliseconds; things of one time happen in the order in which they were added.
    pub fn add(&mut self, at_ms: u64, happening: Happening) {
        self.sequence += 1;
        self.things.insert((at_ms, self.sequence), happening);
    }

    /// When the next thing happens.
    pub fn next_ms(&self) -> Option<u64> {
        self.things.keys().next().map(|(at_ms, _)| *at_ms)
    }

    /// Takes the next thing.
    pub fn pop(&mut self) -> Option<Happening> {
        self.things.pop_first().map(|(_, happening)| happening)
    }
}
