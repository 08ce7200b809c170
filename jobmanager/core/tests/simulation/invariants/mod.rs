//! What must hold in every run. An invariant sees each event with its effects, and the end; it knows nothing of the core's inside.

mod causes;
mod completion;
mod counters;
mod fencing;
mod ids;
mod ledger;
mod liveness;
mod restoring;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use levada_common::plan::Plan;
use levada_jobmanager_core::{Effect, Event, JobSnapshot, JobState, SavepointPhase, SavepointStatus};

use crate::faults::Faults;
use crate::tally::Tally;

/// Whether a savepoint has stopped the job.
fn was_stopped(status: &JobSnapshot) -> bool {
    let stopped = |savepoint: &SavepointStatus| savepoint.request.mode.ends_job() && savepoint.phase == SavepointPhase::Completed;
    status.savepoints.iter().any(stopped)
}

/// One event, what it led to, and the job before and after.
pub struct Step<'a> {
    /// When, in milliseconds.
    pub now_ms: u64,
    /// The event.
    pub event: &'a Event,
    /// The effects.
    pub effects: &'a [Effect],
    /// The job before.
    pub before: &'a JobSnapshot,
    /// The job after.
    pub after: &'a JobSnapshot,
}

/// The end of a run.
pub struct End<'a> {
    /// The job.
    pub status: &'a JobSnapshot,
    /// Files that are left.
    pub storage: &'a BTreeSet<String>,
}

/// Something that must hold. It panics where it does not.
trait Invariant: Debug {
    /// Looks at an event.
    fn step(&mut self, step: &Step<'_>);

    /// Looks at the end.
    fn end(&mut self, _end: &End<'_>) {}
}

/// All invariants, watching one run.
#[derive(Debug)]
pub struct Watch {
    invariants: Vec<Box<dyn Invariant>>,
    tally: Tally,
}

impl Watch {
    /// Watches a run of `plan` under `faults`.
    pub fn new(plan: Arc<Plan>, faults: Faults) -> Self {
        let invariants: Vec<Box<dyn Invariant>> = vec![
            Box::new(ids::Ids::default()),
            Box::new(completion::Completion::new(Arc::clone(&plan))),
            Box::new(fencing::Fencing::default()),
            Box::new(ledger::Ledger::new(faults.retain)),
            Box::new(counters::Counters),
            Box::new(restoring::Restoring::new(plan)),
            Box::new(causes::Causes),
            Box::new(liveness::Liveness::new(faults)),
        ];
        Self { invariants, tally: Tally::default() }
    }

    /// Looks at an event.
    pub fn step(&mut self, step: &Step<'_>) {
        for invariant in &mut self.invariants {
            invariant.step(step);
        }
        self.count(step);
    }

    /// Looks at the end.
    pub fn end(&mut self, status: &JobSnapshot, storage: &BTreeSet<String>) {
        for invariant in &mut self.invariants {
            invariant.end(&End { status, storage });
        }
        self.tally.completed += status.checkpoints.completed;
        self.tally.failed += status.checkpoints.failed;
        self.tally.restarts += u64::from(status.restarts);
        let phases = || status.savepoints.iter().map(|savepoint| &savepoint.phase);
        self.tally.savepoints += phases().filter(|phase| **phase == SavepointPhase::Completed).count() as u64;
        self.tally.savepoints_failed += phases().filter(|phase| matches!(phase, SavepointPhase::Failed(_))).count() as u64;
        self.tally.stopped += u64::from(status.state == JobState::Finished && was_stopped(status));
        self.tally.finished += u64::from(status.state == JobState::Finished);
        self.tally.failed_jobs += u64::from(status.state == JobState::Failed);
    }

    /// What was seen.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    fn count(&mut self, step: &Step<'_>) {
        let (before, after) = (step.before, step.after);
        let tally = &mut self.tally;
        match step.event {
            Event::MetadataWritten { .. } => {
                let completed = after.checkpoints.completed > before.checkpoints.completed;
                tally.completed_after_failure += u64::from(completed && before.state == JobState::Restarting);
                let uncounted = after.checkpoints.completed + after.checkpoints.failed
                    == before.checkpoints.completed + before.checkpoints.failed;
                tally.abandoned += u64::from(uncounted);
            }
            Event::Cancel => {
                let place = match before.state {
                    JobState::Deploying | JobState::Running => 0,
                    JobState::Restarting => 1,
                    JobState::Scheduled => 2,
                    _ => 3,
                };
                tally.cancelled_in[place] += 1;
            }
            _ => {}
        }
        for effect in step.effects {
            match effect {
                Effect::Deploy { restored, tasks, .. } => {
                    tally.restored += u64::from(restored.is_some());
                    tally.restored_stopped += u64::from(was_stopped(before));
                    tally.restored_finished += u64::from(tasks.iter().any(|task| task.finished));
                }
                Effect::TriggerCheckpoint { .. } if before.checkpoints.triggered == after.checkpoints.triggered => {
                    tally.told_finishing += 1;
                }
                _ => {}
            }
        }
        let waits = after.state == JobState::Scheduled && before.state == JobState::Restarting;
        tally.waits += u64::from(waits);
        tally.degraded += u64::from(after.degraded.is_some() && before.degraded.is_none());
        let newly_failed = after.checkpoints.failed > before.checkpoints.failed;
        let reason = after.checkpoints.last_failed.as_ref().and_then(|record| record.failure.as_deref());
        tally.expired += u64::from(newly_failed && reason.is_some_and(|reason| reason.starts_with("expired")));
    }
}
