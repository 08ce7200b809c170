//! What happened in the runs, so that a simulation in which nothing happens fails.

/// Counts over one run or many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events handled.
    pub events: u64,
    /// Checkpoints completed.
    pub completed: u64,
    /// Checkpoints failed.
    pub failed: u64,
    /// Of those, expired.
    pub expired: u64,
    /// Checkpoints whose metadata answer came too late.
    pub abandoned: u64,
    /// Checkpoints that completed after their attempt had failed.
    pub completed_after_failure: u64,
    /// Attempts after the first.
    pub restarts: u64,
    /// Of those, restored from a checkpoint.
    pub restored: u64,
    /// Deployments with a task that had finished before.
    pub restored_finished: u64,
    /// TaskManagers killed or cut off.
    pub losses: u64,
    /// Cut-off TaskManagers that came back.
    pub returns: u64,
    /// Acknowledgements that came again and were taken for what they are.
    pub repeats: u64,
    /// Acknowledgements refused.
    pub refused: u64,
    /// Times that a finishing task was told of a checkpoint under way.
    pub told_finishing: u64,
    /// Times that a job had too few slots.
    pub waits: u64,
    /// Jobs seen DEGRADED.
    pub degraded: u64,
    /// Savepoints completed.
    pub savepoints: u64,
    /// Savepoints that failed.
    pub savepoints_failed: u64,
    /// Jobs that a savepoint stopped.
    pub stopped: u64,
    /// Attempts that only committed what such a savepoint had.
    pub restored_stopped: u64,
    /// Shared files that a further snapshot named.
    pub shared_reused: u64,
    /// Shared files deleted.
    pub shared_deleted: u64,
    /// Shared files that a killed task left, swept up.
    pub shared_swept: u64,
    /// Jobs that finished.
    pub finished: u64,
    /// Jobs that failed for good.
    pub failed_jobs: u64,
    /// Jobs cancelled: while running or deploying, restarting, waiting, ended.
    pub cancelled_in: [u64; 4],
}

impl Tally {
    /// Sums up.
    pub fn add(&mut self, other: &Self) {
        let mut sums = self.numbers();
        for (sum, number) in sums.iter_mut().zip(other.clone().numbers()) {
            **sum += *number;
        }
    }

    fn numbers(&mut self) -> Vec<&mut u64> {
        let mut numbers = vec![
            &mut self.events,
            &mut self.completed,
            &mut self.failed,
            &mut self.expired,
            &mut self.abandoned,
            &mut self.completed_after_failure,
            &mut self.restarts,
            &mut self.restored,
            &mut self.restored_finished,
            &mut self.losses,
            &mut self.returns,
            &mut self.repeats,
            &mut self.refused,
            &mut self.told_finishing,
            &mut self.waits,
            &mut self.degraded,
            &mut self.savepoints,
            &mut self.savepoints_failed,
            &mut self.stopped,
            &mut self.restored_stopped,
            &mut self.shared_reused,
            &mut self.shared_deleted,
            &mut self.shared_swept,
            &mut self.finished,
            &mut self.failed_jobs,
        ];
        numbers.extend(self.cancelled_in.iter_mut());
        numbers
    }

    /// Asserts that enough of everything happened in `runs` runs.
    pub fn assert_not_empty(mut self, runs: u64) {
        assert!(self.events > 300 * runs, "{self:#?}");
        assert!(self.completed > 20 * runs && self.failed > 2 * runs && self.restarts > 2 * runs, "{self:#?}");
        let snapshot = self.clone();
        for (place, number) in self.numbers().into_iter().enumerate() {
            assert!(*number >= 3, "number {place} is {number}: {snapshot:#?}");
        }
    }
}
