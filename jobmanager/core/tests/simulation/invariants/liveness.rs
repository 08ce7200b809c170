//! Once faults stop the job gets where it should: finished, or running with checkpoints completing; one that is to stop has
//! stopped; a cancelled job ends in time.

use levada_common::plan::RestartSettings;
use levada_jobmanager_core::{Event, JobState};

use super::{End, Invariant, Step, was_stopped};
use crate::faults::{Faults, HEAL_AT_MS};

/// Time that a job has to end after a cancel, in milliseconds.
const CANCEL_MS_MAX: u64 = 5_000;

/// Checkpoints that an endless job completes after faults have stopped, at the least.
const COMPLETED_COUNT_MIN: u64 = 5;

/// How the job got on.
#[derive(Debug)]
pub struct Liveness {
    faults: Faults,
    cancelled_ms: Option<u64>,
    completed_at_heal: u64,
}

impl Liveness {
    /// Watches a job under these faults.
    pub fn new(faults: Faults) -> Self {
        Self { faults, cancelled_ms: None, completed_at_heal: 0 }
    }

    fn may_fail(&self, failure: &str) -> bool {
        let limited = match self.faults.restart {
            RestartSettings::None => true,
            RestartSettings::FixedDelay { attempts, .. } => attempts < 100,
        };
        limited || failure.contains("the final checkpoint")
    }
}

impl Invariant for Liveness {
    fn step(&mut self, step: &Step<'_>) {
        if step.now_ms <= HEAL_AT_MS {
            self.completed_at_heal = step.after.checkpoints.completed;
        }
        if *step.event == Event::Cancel && !step.before.state.is_terminal() {
            self.cancelled_ms.get_or_insert(step.now_ms);
        }
        if let Some(at_ms) = self.cancelled_ms {
            let state = step.after.state;
            assert!(state.is_terminal() || step.now_ms < at_ms + CANCEL_MS_MAX, "{state}, cancelled at {at_ms} ms");
            assert!(!matches!(state, JobState::Deploying | JobState::Running | JobState::Restarting), "{state} after a cancel");
        }
    }

    fn end(&mut self, end: &End<'_>) {
        let status = end.status;
        match status.state {
            JobState::Finished => {
                assert!(
                    self.faults.source_ms_max.is_some() || was_stopped(status),
                    "an endless job finished: {:#?}",
                    status.savepoints
                );
            }
            JobState::Canceled => assert!(self.cancelled_ms.is_some(), "no one cancelled"),
            JobState::Failed => {
                let failure = status.failure.as_deref().expect("a failed job has a cause");
                assert!(self.may_fail(failure), "{failure}");
            }
            JobState::Running if self.faults.source_ms_max.is_none() => {
                assert!(self.faults.stop_at_ms.is_none(), "it was to stop: {:#?}", status.savepoints);
                let completed = status.checkpoints.completed - self.completed_at_heal;
                assert!(completed >= COMPLETED_COUNT_MIN, "{completed} checkpoints since faults stopped: {status:#?}");
                assert_eq!(status.degraded, None);
            }
            state => panic!("{state} at the end: {status:#?}"),
        }
        let open = status.savepoints.iter().find(|savepoint| savepoint.is_open());
        assert!(open.is_none() || !status.state.is_terminal(), "{open:?} of a job that has ended");
        let ended = status.state.is_terminal();
        assert_eq!(status.ended_at_ms.is_some(), ended);
        assert_eq!(status.waiting_for, None);
    }
}
