//! One attempt at a time: whatever is asked of tasks is asked of the newest attempt, a new one is deployed only when the old one's
//! tasks have ended, are lost, or had time to; a job that has ended asks nothing more.

use std::collections::BTreeSet;

use levada_common::ids::{AttemptId, TaskId, TaskManagerId};
use levada_jobmanager_core::event::TaskState;
use levada_jobmanager_core::{Effect, Event, Options};

use super::{Invariant, Step};

/// The newest attempt and those of its tasks that may run.
#[derive(Debug, Default)]
pub struct Fencing {
    attempt: Option<AttemptId>,
    running: BTreeSet<(TaskManagerId, TaskId)>,
    cancelled_ms: Option<u64>,
}

impl Invariant for Fencing {
    fn step(&mut self, step: &Step<'_>) {
        match step.event {
            Event::Task { attempt, task, state } if Some(*attempt) == self.attempt => {
                if matches!(state, TaskState::Finished | TaskState::Failed(_) | TaskState::Canceled) {
                    self.running.retain(|(_, running)| running != task);
                }
            }
            Event::TaskManagerLost { id, .. } => self.running.retain(|(on, _)| on != id),
            _ => {}
        }
        for effect in step.effects {
            match effect {
                Effect::Deploy { attempt, tasks, .. } => {
                    let waited = self.cancelled_ms.is_some_and(|at| step.now_ms >= at + Options::default().end_wait_ms);
                    assert!(self.running.is_empty() || waited, "{attempt} is deployed over {:?}", self.running);
                    assert!(!step.before.state.is_terminal(), "{attempt} is deployed after the end");
                    self.attempt = Some(*attempt);
                    self.cancelled_ms = None;
                    self.running = tasks.iter().map(|task| (task.task_manager, task.task)).collect();
                    assert_eq!(self.running.len(), step.after.tasks.len(), "every task is deployed, once");
                }
                Effect::CancelAttempt { attempt, .. } if Some(*attempt) == self.attempt => {
                    self.cancelled_ms.get_or_insert(step.now_ms);
                }
                Effect::TriggerCheckpoint { attempt, .. }
                | Effect::EndSources { attempt, .. }
                | Effect::NotifyCheckpoint { attempt, .. } => {
                    assert_eq!(Some(*attempt), self.attempt, "{effect:?}");
                    assert_eq!(self.cancelled_ms, None, "{effect:?} after the attempt was cancelled");
                    assert!(!step.before.state.is_terminal(), "{effect:?} after the end");
                }
                _ => {}
            }
        }
        assert!(!step.before.state.is_terminal() || step.after.state == step.before.state, "an ended job goes on");
    }
}
