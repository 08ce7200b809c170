//! Counters of checkpoints add up at every moment, and never go back; restarts are attempts after the first.

use levada_jobmanager_core::SavepointPhase;

use super::{Invariant, Step};

/// Needs no memory.
#[derive(Debug)]
pub struct Counters;

impl Invariant for Counters {
    fn step(&mut self, step: &Step<'_>) {
        let (before, after) = (&step.before.checkpoints, &step.after.checkpoints);
        assert_eq!(after.triggered, after.completed + after.failed + after.in_progress, "{after:?}");
        // A savepoint whose attempt has ended may be written beside the next checkpoint.
        let savepoints = step.after.savepoints.iter().filter(|savepoint| savepoint.phase == SavepointPhase::InProgress).count();
        assert!(after.in_progress <= 1 + savepoints as u64, "{after:?}");
        assert!(after.history.len() <= 20, "{after:?}");
        assert!(after.triggered >= before.triggered && after.completed >= before.completed && after.failed >= before.failed);
        assert_eq!(step.after.restarts, step.after.attempt.0.saturating_sub(1));
        let ended = after.completed + after.failed;
        assert_eq!(after.history.len() as u64, ended.min(20), "each that ended is in the history");
    }
}
