//! How an attempt ends before its time: a TaskManager is lost, a task fails, the user cancels.

use levada_common::fault::Failure;
use levada_common::ids::{TaskId, TaskManagerId};

use super::Machine;
use crate::clock::Clock;
use crate::event::Effect;
use crate::execution::describe;
use crate::restart::Decision;
use crate::status::JobState;

/// TaskManagers remembered to be told of a lost attempt should they come back; beyond it the oldest is forgotten.
const CUT_OFF_COUNT_MAX: usize = 1_024;

impl Machine {
    pub(super) fn task_manager_lost(&mut self, clock: Clock, id: TaskManagerId, reason: &str, effects: &mut Vec<Effect>) {
        self.resources.retain(|info| info.id != id);
        self.awaits_resources = true;
        let Some(execution) = &mut self.execution else { return };
        let (had_tasks, first) = execution.lose(id);
        if !had_tasks {
            return;
        }
        self.cut_off.insert(id, execution.id());
        if self.cut_off.len() > CUT_OFF_COUNT_MAX {
            self.cut_off.pop_first();
        }
        if let Some(task) = first {
            let address = execution.address(id);
            let task = describe(&self.plan, task);
            let message = format!("TaskManager {address} is lost, and with it task {task}: {reason}");
            self.fail(clock, Failure::external(message), effects);
        }
    }

    pub(super) fn fail_task(&mut self, clock: Clock, task: TaskId, failure: Failure, effects: &mut Vec<Effect>) {
        let execution = self.execution.as_ref().expect("a task has an execution");
        let address = execution.task_manager(task).map_or("?", |id| execution.address(id));
        let message = format!("task {} on TaskManager {address}: {}", describe(&self.plan, task), failure.message);
        self.fail(clock, Failure { message, ..failure }, effects);
    }

    /// Ends the attempt for this failure. The first failure of an attempt is its cause; those that follow are consequences.
    pub(super) fn fail(&mut self, clock: Clock, failure: Failure, effects: &mut Vec<Effect>) {
        if !matches!(self.state, JobState::Deploying | JobState::Running) {
            return;
        }
        self.stop_attempt(clock, &failure.message, effects);
        match self.restart.decide(&failure) {
            Decision::Restart { delay_ms } => {
                self.state = JobState::Restarting;
                self.retry_at = clock.now.plus_ms(delay_ms);
                self.failure = Some(failure.message);
            }
            Decision::Fail { why } => {
                self.state = JobState::Failing;
                self.failure = Some(format!("{} ({why})", failure.message));
            }
        }
    }

    pub(super) fn cancel(&mut self, clock: Clock, effects: &mut Vec<Effect>) {
        match self.state {
            JobState::Scheduled => self.end(clock, JobState::Canceled, effects),
            JobState::Deploying | JobState::Running => {
                self.stop_attempt(clock, "the job was cancelled", effects);
                self.state = JobState::Cancelling;
            }
            JobState::Restarting => self.state = JobState::Cancelling,
            JobState::Failing | JobState::Cancelling | JobState::Finished | JobState::Failed | JobState::Canceled => {}
        }
    }

    fn stop_attempt(&mut self, clock: Clock, why: &str, effects: &mut Vec<Effect>) {
        let execution = self.execution.as_ref().expect("a running attempt has an execution");
        let task_managers = execution.task_managers();
        if !task_managers.is_empty() {
            effects.push(Effect::CancelAttempt { attempt: execution.id(), task_managers });
        }
        self.coordinator.attempt_ended(clock, why, effects);
        self.end_by = clock.now.plus_ms(self.options.end_wait_ms);
    }
}
