//! A job from its start to its end: takes events, keeps the state, says what is to be done.

use std::sync::Arc;

use levada_common::ids::{Attempt, AttemptId, Epoch, JobId};
use levada_common::plan::Plan;
use levada_common::time::Instant;

use crate::event::{Effect, Event};
use crate::status::{CheckpointsStatus, JobSnapshot, JobState};

/// Bounds that are the JobManager's and not the job's.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long an ended attempt's tasks are waited for, in milliseconds, before they are left to themselves (they are fenced).
    pub end_wait_ms: u64,
    /// Time between two tries at a final checkpoint, in milliseconds.
    pub final_retry_ms: u64,
}

impl Default for Options {
    /// 4 s, so that a cancelled job is CANCELED within 5; 1 s.
    fn default() -> Self {
        Self { end_wait_ms: 4_000, final_retry_ms: 1_000 }
    }
}

/// One job.
#[derive(Debug)]
pub struct Machine {
    attempt: AttemptId,
    _plan: Arc<Plan>,
    state: JobState,
    _options: Options,
}

impl Machine {
    /// A job that waits for `Event::Start`.
    pub fn new(job: JobId, epoch: Epoch, plan: Arc<Plan>, options: Options) -> Self {
        let attempt = AttemptId { job, attempt: Attempt(0), epoch };
        Self { attempt, _plan: plan, state: JobState::Scheduled, _options: options }
    }

    /// Takes an event; `effects` gets what is to be done, in order.
    ///
    /// Units: `wall_ms` in milliseconds since 1970, for people only.
    /// Contract: `now` never goes back. An effect's result comes back as an event.
    pub fn handle(&mut self, now: Instant, wall_ms: u64, event: Event, effects: &mut Vec<Effect>) {
        let _ = (now, wall_ms, event, effects);
    }

    /// When `Event::Tick` is next wanted. A tick too early or too many does no harm.
    pub fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The job as it is now.
    pub fn status(&self, now: Instant) -> JobSnapshot {
        let _ = now;
        JobSnapshot {
            state: self.state,
            attempt: self.attempt.attempt,
            restarts: 0,
            failure: None,
            degraded: None,
            waiting_for: None,
            ended_at_ms: None,
            checkpoints: CheckpointsStatus::default(),
            tasks: Vec::new(),
        }
    }

    /// The newest attempt; number 0 before the first was deployed.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Whether the job has ended. Events may still come (a metadata answer, late acknowledgements) and are worth handing over.
    pub fn is_terminal(&self) -> bool {
        self.state.is_terminal()
    }
}
