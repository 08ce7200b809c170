//! Checkpoints of one job: when one begins, who has answered, whether it completed, which are kept.
//!
//! At most one is under way; where it leaves `pending` it is counted, once.
//!
//! *A metadata answer outlives its attempt.* Once every snapshot is here the checkpoint may become durable at any moment, so a
//! failure of the attempt does not give it up: the next attempt waits for the answer (at most until the checkpoint's deadline)
//! and is restored from it where it was written. No task is notified then; sinks commit what they find in the restored state.
//! A write that is not answered in time is *abandoned*: counted as failed, never restored from, and deleted when its answer comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointMetadata, DeclineReason, TaskSnapshot};
use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, TaskId, TaskManagerId};
use levada_common::plan::{BackendKind, Plan};
use levada_common::time::Instant;

use crate::clock::Clock;
use crate::event::Effect;
use crate::execution::{Execution, describe};
use crate::health::Health;
use crate::history::History;
use crate::pending::Pending;
use crate::retained::{Retained, repeats};
use crate::status::CheckpointsStatus;

/// The checkpoint coordinator of one job.
#[derive(Debug)]
pub struct Coordinator {
    plan: Arc<Plan>,
    final_retry_ms: u64,
    next_id: CheckpointId,
    pending: Option<Pending>,
    /// Checkpoints given up whose metadata may be written yet.
    abandoned: BTreeMap<CheckpointId, Vec<TaskSnapshot>>,
    retained: Retained,
    history: History,
    health: Health,
    /// The current attempt, from its deployment until it fails or is ended: whom checkpoints are taken of.
    attempt: Option<AttemptId>,
    /// When the next periodic checkpoint is due.
    due: Option<Instant>,
    /// From when on a final checkpoint may be tried.
    final_due: Instant,
    last_completed: bool,
    /// Set when the job has ended: whether its checkpoints stay.
    keep: Option<bool>,
}

/// What a metadata answer changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The checkpoint completed.
    pub completed: bool,
    /// The job fails.
    pub failure: Option<Failure>,
}

impl Coordinator {
    /// A job without checkpoints so far; a final one that failed is tried again after `final_retry_ms`.
    pub fn new(plan: Arc<Plan>, final_retry_ms: u64) -> Self {
        let retained = Retained::new(plan.settings.checkpoint.num_retained);
        Self {
            plan,
            final_retry_ms,
            next_id: CheckpointId(1),
            pending: None,
            abandoned: BTreeMap::new(),
            retained,
            history: History::default(),
            health: Health::default(),
            attempt: None,
            due: None,
            final_due: Instant(0),
            last_completed: false,
            keep: None,
        }
    }

    /// A new attempt is deployed. Contract: no checkpoint is under way.
    pub fn attempt_deployed(&mut self, attempt: AttemptId) {
        assert!(self.pending.is_none(), "an attempt waits for the checkpoint of the one before");
        self.attempt = Some(attempt);
        self.due = None;
        self.final_due = Instant(0);
        self.last_completed = false;
        self.health.attempt_deployed();
    }

    /// Every task of the attempt works: the first checkpoint is an interval away.
    pub fn attempt_running(&mut self, now: Instant) {
        self.due = self.plan.settings.checkpoint.interval_ms.map(|interval_ms| now.plus_ms(interval_ms));
        self.health.attempt_running(now);
    }

    /// The attempt failed or is being ended: its checkpoint is given up, unless its metadata is being written.
    pub fn attempt_ended(&mut self, clock: Clock, why: &str, effects: &mut Vec<Effect>) {
        self.attempt = None;
        self.due = None;
        if let Some(pending) = self.pending.take_if(|pending| !pending.is_acknowledged()) {
            self.give_up(pending, clock, &DeclineReason::AttemptEnded(why.into()), None, effects);
        }
    }

    /// The job has ended. Its checkpoints stay where `keep` says so.
    pub fn job_ended(&mut self, keep: bool, effects: &mut Vec<Effect>) {
        self.keep = Some(keep);
        if !keep {
            self.retained.discard_all(effects);
        }
    }

    /// Does what time asks for: gives up, begins. Answers the failure of the job where too many checkpoints failed.
    pub fn tick(&mut self, clock: Clock, execution: Option<&Execution>, effects: &mut Vec<Effect>) -> Option<Failure> {
        if let Some(pending) = self.pending.take_if(|pending| pending.deadline <= clock.now) {
            let reason = pending.expiry(&self.plan, self.plan.settings.checkpoint.timeout_ms);
            if pending.is_acknowledged() {
                self.abandoned.insert(pending.id, pending.snapshots());
            }
            let failure = self.give_up(pending, clock, &reason, execution, effects);
            if failure.is_some() {
                return failure;
            }
        }
        if let Some(execution) = execution
            && self.begins_at(execution).is_some_and(|at| at <= clock.now)
        {
            self.trigger(clock, execution, effects);
        }
        None
    }

    /// When `tick` is next wanted.
    pub fn deadline(&self, execution: Option<&Execution>) -> Option<Instant> {
        match &self.pending {
            Some(pending) => Some(pending.deadline),
            None => self.begins_at(execution?),
        }
    }

    /// When the next checkpoint may begin, as things are.
    fn begins_at(&self, execution: &Execution) -> Option<Instant> {
        if self.pending.is_some() || self.last_completed || self.attempt != Some(execution.id()) || !execution.is_live() {
            None
        } else if execution.is_finishing() {
            Some(self.final_due)
        } else {
            self.due
        }
    }

    fn trigger(&mut self, clock: Clock, execution: &Execution, effects: &mut Vec<Effect>) {
        let id = self.next_id;
        self.next_id = id.next();
        let settings = &self.plan.settings.checkpoint;
        self.due = settings.interval_ms.map(|interval_ms| clock.now.plus_ms(interval_ms));
        let pending = Pending::new(id, execution, clock, settings.timeout_ms);
        effects.push(self.trigger_effect(&pending, execution.without_live_input(&self.plan)));
        self.pending = Some(pending);
        self.history.triggered();
    }

    fn trigger_effect(&self, pending: &Pending, tasks: Vec<(TaskManagerId, TaskId)>) -> Effect {
        let settings = &self.plan.settings;
        let inline = settings.backend == BackendKind::Memory || settings.checkpoint.interval_ms.is_none();
        Effect::TriggerCheckpoint { attempt: pending.attempt, checkpoint: pending.id, tasks, inline }
    }

    /// The task has seen the end of its data: no barrier will reach it any more, so it is told of the checkpoint under way.
    pub fn task_finishing(&mut self, task: TaskId, execution: &Execution, effects: &mut Vec<Effect>) {
        if let Some(pending) = &self.pending
            && self.attempt == Some(pending.attempt)
            && pending.wants(task)
            && let Some(task_manager) = execution.task_manager(task)
        {
            effects.push(self.trigger_effect(pending, vec![(task_manager, task)]));
        }
    }

    /// A task of the current attempt acknowledged.
    pub fn acknowledge(&mut self, clock: Clock, checkpoint: CheckpointId, snapshot: TaskSnapshot, effects: &mut Vec<Effect>) {
        let current = self.attempt;
        let wanting = self
            .pending
            .as_mut()
            .filter(|pending| pending.id == checkpoint && Some(pending.attempt) == current && pending.wants(snapshot.task));
        let Some(pending) = wanting else { return self.refuse(checkpoint, snapshot, effects) };
        pending.take(snapshot);
        if pending.is_acknowledged() {
            effects.push(Effect::WriteMetadata {
                attempt: pending.attempt,
                metadata: pending.metadata(self.plan.max_parallelism),
                within_ms: pending.deadline.since(clock.now),
            });
        }
    }

    /// Discards a late, unknown or stale acknowledgement, but none that repeats one whose files are held.
    pub fn refuse(&mut self, checkpoint: CheckpointId, snapshot: TaskSnapshot, effects: &mut Vec<Effect>) {
        if !self.holds(checkpoint, &snapshot) {
            effects.push(Effect::DiscardSnapshot { checkpoint, snapshot });
        }
    }

    /// Whether the snapshot repeats one that was taken and is held: under way, being written, or retained.
    pub fn holds(&self, checkpoint: CheckpointId, snapshot: &TaskSnapshot) -> bool {
        let among = |tasks: &[TaskSnapshot]| tasks.iter().any(|held| repeats(held, snapshot));
        let pending = self.pending.as_ref().filter(|pending| pending.id == checkpoint);
        pending.and_then(|pending| pending.taken(snapshot.task)).is_some_and(|held| repeats(held, snapshot))
            || self.retained.get(checkpoint).is_some_and(|metadata| among(&metadata.tasks))
            || self.abandoned.get(&checkpoint).is_some_and(|tasks| among(tasks))
    }

    /// A task of the current attempt declined, or the JobManager did for it. Answers the failure of the job, if it is one.
    pub fn decline(
        &mut self,
        clock: Clock,
        declined: (CheckpointId, TaskId),
        reason: DeclineReason,
        execution: &Execution,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        let (checkpoint, task) = declined;
        let pending = self.pending.take_if(|pending| pending.id == checkpoint && pending.wants(task))?;
        let reason = match reason {
            DeclineReason::Declined(text) => DeclineReason::Declined(format!("{}: {text}", describe(&self.plan, task))),
            other => other,
        };
        self.give_up(pending, clock, &reason, Some(execution), effects)
    }

    /// The metadata was written, or not; `execution` is the current attempt's, if there is one.
    pub fn metadata_written(
        &mut self,
        clock: Clock,
        checkpoint: CheckpointId,
        result: Result<String, DeclineReason>,
        execution: Option<&Execution>,
        effects: &mut Vec<Effect>,
    ) -> Answered {
        if let Some(tasks) = self.abandoned.remove(&checkpoint) {
            effects.push(Effect::DiscardCheckpoint { checkpoint, tasks });
            return Answered::default();
        }
        let Some(pending) = self.pending.take_if(|pending| pending.id == checkpoint && pending.is_acknowledged()) else {
            return Answered::default();
        };
        match result {
            Ok(uri) => {
                self.complete(pending, clock, uri, execution, effects);
                Answered { completed: true, failure: None }
            }
            Err(reason) => Answered { completed: false, failure: self.give_up(pending, clock, &reason, execution, effects) },
        }
    }

    /// The checkpoint is durable: counts, tells the tasks, keeps it and discards what is too many.
    fn complete(
        &mut self,
        pending: Pending,
        clock: Clock,
        uri: String,
        execution: Option<&Execution>,
        effects: &mut Vec<Effect>,
    ) {
        self.history.ended(pending.record(clock.now, None, uri));
        self.health.completed(pending.triggered.now);
        self.pause(clock.now);
        if self.attempt == Some(pending.attempt) {
            self.last_completed = pending.last;
            effects.extend(notify(&pending, true, execution));
        }
        self.retained.push(pending.metadata(self.plan.max_parallelism), effects);
        if self.keep == Some(false) {
            self.retained.discard_all(effects);
        }
    }

    /// The checkpoint failed: counts, tells the tasks, deletes what it holds unless that may be durable yet.
    fn give_up(
        &mut self,
        pending: Pending,
        clock: Clock,
        reason: &DeclineReason,
        execution: Option<&Execution>,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        self.history.ended(pending.record(clock.now, Some(reason.to_string()), String::new()));
        self.pause(clock.now);
        let mut failure = None;
        if self.attempt == Some(pending.attempt) {
            effects.extend(notify(&pending, false, execution));
            if pending.last {
                self.final_due = clock.now.plus_ms(self.final_retry_ms);
            }
            let tolerable = self.plan.settings.checkpoint.tolerable_failures;
            failure = self.health.failed(pending.id, reason, pending.last, tolerable);
        }
        if !self.abandoned.contains_key(&pending.id) {
            effects.push(Effect::DiscardCheckpoint { checkpoint: pending.id, tasks: pending.snapshots() });
        }
        failure
    }

    /// Keeps the least pause after a checkpoint that has just ended.
    fn pause(&mut self, now: Instant) {
        let earliest = now.plus_ms(self.plan.settings.checkpoint.min_pause_ms);
        self.due = self.due.map(|due| due.max(earliest));
    }

    /// The newest completed checkpoint, from which the job is restored.
    pub fn restore_point(&self) -> Option<&CheckpointMetadata> {
        self.retained.newest()
    }

    /// Whether a checkpoint's metadata is being written.
    pub fn is_writing(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_acknowledged)
    }

    /// Whether the current attempt's final checkpoint completed, so that its tasks may finish.
    pub fn is_last_completed(&self) -> bool {
        self.last_completed
    }

    /// Why the job is DEGRADED, where it is.
    pub fn degraded(&self, now: Instant) -> Option<String> {
        if self.keep.is_some() || self.last_completed {
            return None;
        }
        self.health.degraded(now, &self.plan.settings.checkpoint)
    }

    /// Counters and history.
    pub fn status(&self, now: Instant) -> CheckpointsStatus {
        CheckpointsStatus {
            consecutive_failures: self.health.consecutive_failures(),
            age_ms: self.health.age_ms(now),
            ..self.history.status(u64::from(self.pending.is_some()))
        }
    }
}

fn notify(pending: &Pending, completed: bool, execution: Option<&Execution>) -> Option<Effect> {
    let task_managers = execution?.task_managers();
    let last = pending.last && completed;
    Some(Effect::NotifyCheckpoint { attempt: pending.attempt, checkpoint: pending.id, completed, last, task_managers })
}
