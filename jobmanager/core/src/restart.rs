//! What follows a failure: another attempt, or the end.

use levada_common::fault::{Failure, Fault, Retry};
use levada_common::plan::RestartSettings;

/// What is to follow a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// A new attempt after this time.
    Restart {
        /// Milliseconds to wait.
        delay_ms: u64,
    },
    /// The end.
    Fail {
        /// Why there is no new attempt, to be said after the failure.
        why: String,
    },
}

/// Counts restarts against those allowed.
#[derive(Debug)]
pub struct RestartPolicy {
    settings: RestartSettings,
    used: u32,
}

impl RestartPolicy {
    /// Nothing failed yet.
    pub fn new(settings: RestartSettings) -> Self {
        Self { settings, used: 0 }
    }

    /// Decides on a failure, and counts it. Only fault and retry of the failure are looked at.
    pub fn decide(&mut self, failure: &Failure) -> Decision {
        if failure.fault == Fault::User || failure.retry == Retry::Never {
            return Decision::Fail { why: "not restarted: it would fail the same way again".into() };
        }
        match self.settings {
            RestartSettings::None => Decision::Fail { why: "not restarted: the restart strategy is none".into() },
            RestartSettings::FixedDelay { attempts, .. } if self.used >= attempts => Decision::Fail {
                why: format!("not restarted: all {attempts} restarts since the last completed checkpoint are used up"),
            },
            RestartSettings::FixedDelay { delay_ms, .. } => {
                self.used += 1;
                Decision::Restart { delay_ms }
            }
        }
    }

    /// A checkpoint completed: the job got on, so restarts are counted anew.
    pub fn checkpoint_completed(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(attempts: u32) -> RestartPolicy {
        RestartPolicy::new(RestartSettings::FixedDelay { attempts, delay_ms: 1_000 })
    }

    #[test]
    fn restarts_are_counted_anew_after_each_checkpoint() {
        let failure = Failure::external("lost");
        let mut policy = fixed(2);
        let restart = Decision::Restart { delay_ms: 1_000 };
        assert_eq!(policy.decide(&failure), restart);
        assert_eq!(policy.decide(&failure), restart);
        policy.checkpoint_completed();
        assert_eq!(policy.decide(&failure), restart);
        assert_eq!(policy.decide(&failure), restart);
        let Decision::Fail { why } = policy.decide(&failure) else { panic!("a third restart without progress") };
        assert!(why.contains("all 2 restarts"), "{why}");
    }

    #[test]
    fn what_would_fail_again_is_not_tried_again() {
        let never = Failure { message: "x".into(), fault: Fault::Internal, retry: Retry::Never };
        assert!(matches!(fixed(10).decide(&never), Decision::Fail { .. }));
        let user = Failure { message: "x".into(), fault: Fault::User, retry: Retry::Backoff };
        assert!(matches!(fixed(10).decide(&user), Decision::Fail { .. }));
        let none = RestartPolicy::new(RestartSettings::None).decide(&Failure::internal("x"));
        assert!(matches!(none, Decision::Fail { .. }));
    }
}
