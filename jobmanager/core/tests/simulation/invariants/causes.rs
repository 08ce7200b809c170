//! The failure that a job shows is of the attempt that failed, never of an older one.

use levada_jobmanager_core::JobState;

use super::{Invariant, Step};

/// Needs no memory.
#[derive(Debug)]
pub struct Causes;

impl Invariant for Causes {
    fn step(&mut self, step: &Step<'_>) {
        let failing = matches!(step.after.state, JobState::Restarting | JobState::Failing);
        if !failing || step.before.state == step.after.state {
            return;
        }
        let text = step.after.failure.as_deref().expect("a job that failed has a cause");
        if let Some(attempt) = text.split_once("in attempt ").map(|(_, rest)| rest.split(' ').next().unwrap_or(rest)) {
            assert_eq!(attempt, step.after.attempt.to_string(), "{text}");
        }
    }
}
