//! What failed checkpoints mean for the job: how many in a row fail it, and when it counts as DEGRADED.
//!
//! A decline for size comes again with the next checkpoint, so it never restarts the job: it goes on, DEGRADED, until a
//! checkpoint completes. Only a final checkpoint has nothing to go on to: there such a decline counts, and ends the job.

use levada_common::checkpoint::DeclineReason;
use levada_common::fault::{Failure, Fault, Retry};
use levada_common::ids::CheckpointId;
use levada_common::plan::CheckpointSettings;
use levada_common::time::Instant;

/// The newest completed checkpoint may be this many times older than the time between two.
const AGE_FACTOR_MAX: u64 = 3;

/// How a job fares with its checkpoints.
#[derive(Debug, Default)]
pub struct Health {
    consecutive_failures: u32,
    declined: Option<String>,
    running_since: Option<Instant>,
    newest_triggered: Option<Instant>,
}

impl Health {
    /// A new attempt: failures of the one before are no longer in a row with its own.
    pub fn attempt_deployed(&mut self) {
        self.consecutive_failures = 0;
    }

    /// Every task works: from the first time on checkpoints are expected.
    pub fn attempt_running(&mut self, now: Instant) {
        self.running_since.get_or_insert(now);
    }

    /// A checkpoint that was triggered at this time completed.
    pub fn completed(&mut self, triggered: Instant) {
        self.consecutive_failures = 0;
        self.declined = None;
        self.newest_triggered = Some(triggered);
    }

    /// A checkpoint failed while its attempt went on. Answers the failure of the job, if it is one.
    pub fn failed(&mut self, id: CheckpointId, reason: &DeclineReason, last: bool, tolerable: u32) -> Option<Failure> {
        let deterministic = reason.is_deterministic();
        if deterministic {
            self.declined = Some(format!("checkpoint {id} was declined: {reason}"));
            if !last {
                return None;
            }
        }
        self.consecutive_failures += 1;
        (self.consecutive_failures > tolerable).then(|| Failure {
            message: format!(
                "{} checkpoints failed in a row, {tolerable} are tolerated (checkpoint.tolerable-failures); the last was {}checkpoint {id}: {reason}",
                self.consecutive_failures,
                if last { "the final " } else { "" },
            ),
            fault: Fault::External,
            // What other jobs hold of a budget they may give back.
            retry: match reason {
                DeclineReason::InlineBudget { .. } => Retry::Backoff,
                _ if deterministic => Retry::Never,
                _ => Retry::Backoff,
            },
        })
    }

    /// Failures in a row that count.
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    /// Milliseconds since the newest completed checkpoint was triggered.
    pub fn age_ms(&self, now: Instant) -> Option<u64> {
        self.newest_triggered.map(|triggered| now.since(triggered))
    }

    /// Why the job is DEGRADED, where it is.
    pub fn degraded(&self, now: Instant, settings: &CheckpointSettings) -> Option<String> {
        self.declined.clone().or_else(|| {
            let between_ms = settings.interval_ms?.max(settings.min_pause_ms);
            let age_ms = now.since(self.newest_triggered.or(self.running_since)?);
            (age_ms > between_ms.saturating_mul(AGE_FACTOR_MAX)).then(|| {
                let what = if self.newest_triggered.is_some() {
                    "the newest completed checkpoint is"
                } else {
                    "no checkpoint completed for"
                };
                format!(
                    "{what} {age_ms} ms{}, over {AGE_FACTOR_MAX} × {between_ms} ms",
                    if self.newest_triggered.is_some() { " old" } else { "" }
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use levada_common::ids::{SubtaskIndex, Uid};

    use super::*;
    use crate::testing::settings;

    fn too_large() -> DeclineReason {
        DeclineReason::StateTooLarge {
            uid: Uid::new("counts"),
            state: "groups".into(),
            subtask: SubtaskIndex(1),
            size_bytes: 6,
            limit_bytes: 5,
        }
    }

    #[test]
    fn a_decline_for_size_degrades_and_never_fails_a_job_that_goes_on() {
        let mut health = Health::default();
        for id in 1..100 {
            assert_eq!(health.failed(CheckpointId(id), &too_large(), false, 0), None);
        }
        let text = health.degraded(Instant(0), &settings()).expect("degraded");
        assert!(text.contains("counts") && text.contains("checkpoint 99"), "{text}");
        health.completed(Instant(0));
        assert_eq!(health.degraded(Instant(0), &settings()), None);
    }

    #[test]
    fn a_final_checkpoint_declined_for_size_ends_the_job_for_good() {
        let mut health = Health::default();
        assert_eq!(health.failed(CheckpointId(1), &too_large(), true, 1), None);
        let failure = health.failed(CheckpointId(2), &too_large(), true, 1).expect("over the tolerable number");
        assert_eq!(failure.retry, Retry::Never);
    }

    #[test]
    fn what_other_jobs_hold_of_the_budget_may_be_free_the_next_time() {
        let mut health = Health::default();
        let reason = DeclineReason::InlineBudget { size_bytes: 6, used_bytes: 8, limit_bytes: 10, largest: "counts".into() };
        assert_eq!(health.failed(CheckpointId(1), &reason, false, 0), None, "a job that goes on does so");
        let failure = health.failed(CheckpointId(2), &reason, true, 0).expect("over the tolerable number");
        assert_eq!(failure.retry, Retry::Backoff);
    }

    #[test]
    fn tolerable_failures_are_counted_in_a_row() {
        let mut health = Health::default();
        let reason = DeclineReason::Declined("no".into());
        for round in 0..3 {
            for id in 0..3 {
                assert_eq!(health.failed(CheckpointId(round * 10 + id), &reason, false, 3), None);
            }
            health.completed(Instant(0));
        }
        let failed: Vec<bool> = (0..4).map(|id| health.failed(CheckpointId(id), &reason, false, 3).is_some()).collect();
        assert_eq!(failed, [false, false, false, true]);
    }

    #[test]
    fn an_old_newest_checkpoint_degrades() {
        let mut health = Health::default();
        let settings = settings();
        let interval_ms = settings.interval_ms.expect("set");
        assert_eq!(health.degraded(Instant(u64::MAX), &settings), None, "never ran");
        health.attempt_running(Instant(0));
        assert_eq!(health.degraded(Instant(3 * interval_ms), &settings), None);
        assert!(health.degraded(Instant(3 * interval_ms + 1), &settings).is_some());
        health.completed(Instant(3 * interval_ms));
        assert_eq!(health.degraded(Instant(6 * interval_ms), &settings), None);
        assert!(health.degraded(Instant(6 * interval_ms + 1), &settings).is_some());
    }
}
