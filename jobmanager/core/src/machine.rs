//! A job from its start to its end: takes events, keeps the state, says what is to be done.
//!
//! The unit of restart is the whole job: whatever fails, its attempt is cancelled everywhere, and the next one is deployed once
//! nothing of the old one is left (its tasks have reported their end or their TaskManagers are lost), or a bounded time after:
//! acknowledgement and commit are fenced by the attempt, so an overlap does no harm.
//!
//! Invariant: stale messages end in `admit`, nowhere else; time-driven changes happen in `advance`, after every event.

mod ending;

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointMetadata, DeclineReason, TaskSnapshot};
use levada_common::fault::Failure;
use levada_common::ids::{Attempt, AttemptId, CheckpointId, Epoch, JobId, TaskId, TaskManagerId};
use levada_common::plan::Plan;
use levada_common::time::Instant;

use crate::clock::Clock;
use crate::coordinator::Coordinator;
use crate::deployment::deployments;
use crate::event::{Effect, Event, TaskManagerInfo, TaskState};
use crate::execution::{Execution, tasks};
use crate::placement::{Placement, PlacementError, place};
use crate::restart::RestartPolicy;
use crate::restore::RestoreBase;
use crate::savepoints::{SavepointRequest, SavepointStatus};
use crate::status::{JobSnapshot, JobState, TaskPhase, TaskStatus};

/// Bounds that are the JobManager's and not the job's.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long an ended attempt's tasks are waited for, in milliseconds, before they are left to themselves (they are fenced).
    pub end_wait_ms: u64,
    /// Time between two tries at a final checkpoint, in milliseconds.
    pub final_retry_ms: u64,
}

impl Default for Options {
    /// 4 s, so that a cancelled job is CANCELED within 5; 1 s.
    fn default() -> Self {
        Self { end_wait_ms: 4_000, final_retry_ms: 1_000 }
    }
}

/// One job.
#[derive(Debug)]
pub struct Machine {
    plan: Arc<Plan>,
    options: Options,
    state: JobState,
    attempt: AttemptId,
    /// Each source's splits; `None` before the start.
    splits: Option<BTreeMap<u32, Vec<String>>>,
    /// What the newest attempt was restored from.
    restored: Option<CheckpointId>,
    resources: Vec<TaskManagerInfo>,
    /// A TaskManager was lost, and what is there instead was not said yet.
    awaits_resources: bool,
    /// Slots were offered since they were last asked for: some may have been granted.
    may_hold_slots: bool,
    /// The newest attempt.
    execution: Option<Execution>,
    coordinator: Coordinator,
    restart: RestartPolicy,
    /// Restarting: when the next attempt may be deployed.
    retry_at: Instant,
    /// Restarting, failing, cancelling: when the old attempt is no longer waited for.
    end_by: Instant,
    /// TaskManagers that were lost with tasks on them, and of which attempt: should one come back, it is told to end them.
    cut_off: BTreeMap<TaskManagerId, AttemptId>,
    failure: Option<String>,
    waiting_for: Option<String>,
    ended_at_ms: Option<u64>,
}

impl Machine {
    /// A job that waits for `Event::Start` and begins with `base`, or from nothing.
    ///
    /// Contract: `plan` has at least one vertex.
    pub fn new(job: JobId, epoch: Epoch, plan: Arc<Plan>, options: Options, base: Option<RestoreBase>) -> Self {
        assert!(plan.slots() > 0, "a plan has tasks");
        Self {
            state: JobState::Scheduled,
            attempt: AttemptId { job, attempt: Attempt(0), epoch },
            splits: None,
            restored: None,
            resources: Vec::new(),
            awaits_resources: false,
            may_hold_slots: false,
            execution: None,
            coordinator: Coordinator::new(Arc::clone(&plan), options.final_retry_ms, base),
            restart: RestartPolicy::new(plan.settings.restart.clone()),
            retry_at: Instant(0),
            end_by: Instant(0),
            cut_off: BTreeMap::new(),
            failure: None,
            waiting_for: Some("its start".into()),
            ended_at_ms: None,
            plan,
            options,
        }
    }

    /// Takes an event; `effects` gets what is to be done, in order.
    ///
    /// Units: `wall_ms` in milliseconds since 1970, for people only.
    /// Contract: `now` never goes back. An effect's result comes back as an event.
    pub fn handle(&mut self, now: Instant, wall_ms: u64, event: Event, effects: &mut Vec<Effect>) {
        let clock = Clock { now, wall_ms };
        if let Some(event) = self.admit(event, effects) {
            self.apply(clock, event, effects);
        }
        self.advance(clock, effects);
    }

    /// When `Event::Tick` is next wanted. A tick too early or too many does no harm.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match self.state {
            JobState::Scheduled | JobState::Deploying => None,
            JobState::Running => self.coordinator.deadline(self.execution.as_ref()),
            JobState::Restarting if self.coordinator.writing().is_some() => self.coordinator.deadline(None),
            JobState::Restarting if self.awaits_resources => None,
            JobState::Restarting => Some(if self.attempt_is_gone() { self.retry_at } else { self.retry_at.max(self.end_by) }),
            JobState::Failing | JobState::Cancelling => Some(self.end_by),
            JobState::Finished | JobState::Failed | JobState::Canceled => self.coordinator.deadline(None),
        };
        own.into_iter().chain(self.coordinator.left_deadline()).min()
    }

    /// Where the job is in its life.
    pub fn state(&self) -> JobState {
        self.state
    }

    /// The newest attempt; number 0 before the first was deployed.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Whether the job has ended. Events may still come (a metadata answer, late acknowledgements) and are worth handing over.
    pub fn is_terminal(&self) -> bool {
        self.state.is_terminal()
    }

    /// Whether an acknowledgement repeats one that was taken and whose files are held, be its attempt ever so old.
    ///
    /// Contract: such a one is answered "accepted", before any limit or budget is looked at: a sender that hears "discard" deletes
    /// its files, which belong to a checkpoint that the job may be restored from.
    pub fn holds(&self, checkpoint: CheckpointId, snapshot: &TaskSnapshot) -> bool {
        self.coordinator.holds(checkpoint, snapshot)
    }

    /// The id that a checkpoint has at least which is wanted now by `Event::Checkpoint`; or why there can be none.
    pub fn next_checkpoint(&self) -> Result<CheckpointId, String> {
        if self.plan.settings.checkpoint.interval_ms.is_none() {
            return Err("checkpointing is off; settings.checkpoint.interval switches it on".into());
        }
        match self.refuses_snapshots("a checkpoint") {
            Some(why) => Err(why),
            None => Ok(self.coordinator.next_id()),
        }
    }

    /// Why no snapshot can be taken now, where that is so.
    fn refuses_snapshots(&self, what: &str) -> Option<String> {
        match self.state {
            JobState::Running if !self.coordinator.is_last_completed() => None,
            JobState::Running => Some("the job is finishing: its final checkpoint is complete".into()),
            state => Some(format!("the job is {state}; {what} is taken of a RUNNING job only")),
        }
    }

    /// The savepoint of this request.
    pub fn savepoint(&self, request: &str) -> Option<&SavepointStatus> {
        self.coordinator.savepoint(request)
    }

    /// The savepoint that ends, or has ended, the job: a second wish to stop it is answered with this one.
    pub fn ending_savepoint(&self) -> Option<&SavepointStatus> {
        self.coordinator.ending_savepoint()
    }

    /// The completed checkpoints that are kept, oldest first.
    pub fn retained(&self) -> impl Iterator<Item = &CheckpointMetadata> {
        self.coordinator.retained()
    }

    /// The job as it is now.
    pub fn status(&self, now: Instant) -> JobSnapshot {
        JobSnapshot {
            state: self.state,
            attempt: self.attempt.attempt,
            restarts: self.attempt.attempt.0.saturating_sub(1),
            failure: self.failure.clone(),
            degraded: self.coordinator.degraded(now),
            waiting_for: self.waiting_for.clone(),
            ended_at_ms: self.ended_at_ms,
            checkpoints: self.coordinator.status(now),
            savepoints: self.coordinator.savepoints(),
            started_from: self.coordinator.started_from().cloned(),
            restored: self.restored,
            tasks: tasks(&self.plan).map(|task| self.task_status(task)).collect(),
        }
    }

    fn task_status(&self, task: TaskId) -> TaskStatus {
        let execution = self.execution.as_ref();
        TaskStatus {
            task,
            name: self.plan.vertex(task.vertex).name.clone(),
            phase: execution.and_then(|execution| execution.phase(task)).unwrap_or(TaskPhase::Created),
            task_manager: execution.and_then(|execution| execution.task_manager(task)),
        }
    }

    /// The one place where messages of old attempts end.
    fn admit(&mut self, event: Event, effects: &mut Vec<Effect>) -> Option<Event> {
        let current = self.execution.as_ref().map(Execution::id);
        match event {
            Event::Task { attempt, .. } | Event::SnapshotDeclined { attempt, .. } if Some(attempt) != current => None,
            Event::SnapshotTaken { attempt, checkpoint, snapshot } if Some(attempt) != current => {
                self.coordinator.refuse(checkpoint, snapshot, effects);
                None
            }
            event => Some(event),
        }
    }

    fn apply(&mut self, clock: Clock, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Start { splits } => {
                self.splits.get_or_insert(splits);
            }
            Event::Resources(task_managers) => self.resources_changed(task_managers, effects),
            Event::TaskManagerLost { id, reason } => self.task_manager_lost(clock, id, &reason, effects),
            Event::Task { task, state, .. } => self.task_changed(clock, task, state, effects),
            Event::SnapshotTaken { checkpoint, snapshot, .. } => self.snapshot_taken(clock, checkpoint, snapshot, effects),
            Event::SnapshotDeclined { checkpoint, task, reason, .. } => {
                self.snapshot_declined(clock, checkpoint, task, reason, effects);
            }
            Event::MetadataWritten { checkpoint, result, .. } => self.metadata_written(clock, checkpoint, result, effects),
            Event::Savepoint(request) => self.savepoint_wanted(clock, request),
            Event::Checkpoint if self.next_checkpoint().is_ok() => self.coordinator.checkpoint_wanted(),
            Event::Checkpoint => {}
            Event::Cancel => self.cancel(clock, effects),
            Event::Tick => {}
        }
    }

    /// Goes on as far as time and what is known allow.
    fn advance(&mut self, clock: Clock, effects: &mut Vec<Effect>) {
        self.coordinator.abandon_left(clock, effects);
        match self.state {
            JobState::Scheduled => self.schedule(clock, effects),
            JobState::Restarting => {
                self.coordinator.tick(clock, None, effects);
                let ended = self.attempt_is_gone() || self.end_by <= clock.now;
                let written = self.coordinator.writing();
                self.waiting_for = written.map(|id| format!("the metadata of checkpoint {id} to be written"));
                if ended && self.retry_at <= clock.now && written.is_none() {
                    self.schedule(clock, effects);
                }
            }
            JobState::Failing | JobState::Cancelling if self.attempt_is_gone() || self.end_by <= clock.now => {
                let published =
                    self.coordinator.is_last_completed() && self.execution.as_ref().is_some_and(Execution::is_finished);
                let state = match self.state {
                    JobState::Failing => JobState::Failed,
                    // The cancel came too late: everything was published.
                    _ if published => JobState::Finished,
                    _ => JobState::Canceled,
                };
                self.end(clock, state, effects);
            }
            JobState::Deploying | JobState::Running => self.advance_attempt(clock, effects),
            JobState::Failing | JobState::Cancelling => {}
            JobState::Finished | JobState::Failed | JobState::Canceled => {
                self.coordinator.tick(clock, None, effects);
            }
        }
    }

    fn advance_attempt(&mut self, clock: Clock, effects: &mut Vec<Effect>) {
        let execution = self.execution.as_ref().expect("a deployed job has an execution");
        if self.state == JobState::Deploying {
            if !execution.is_live() {
                return;
            }
            self.state = JobState::Running;
            self.coordinator.attempt_running(clock.now);
        }
        if execution.is_finished() {
            self.end(clock, JobState::Finished, effects);
        } else if let Some(failure) = self.coordinator.tick(clock, Some(execution), effects) {
            self.fail(clock, failure, effects);
            self.advance(clock, effects);
        }
    }

    /// Deploys the next attempt, or waits for slots.
    fn schedule(&mut self, clock: Clock, effects: &mut Vec<Effect>) {
        if self.splits.is_none() || self.awaits_resources {
            return;
        }
        match place(&self.plan, &self.resources) {
            Ok(placement) => self.deploy(clock, &placement, effects),
            Err(error @ PlacementError::TooFewSlots { .. }) => {
                self.state = JobState::Scheduled;
                self.waiting_for = Some(error.to_string());
                // What was granted of a TaskManager that is lost since, or of others beside it, is for those who can use it.
                if std::mem::take(&mut self.may_hold_slots) {
                    effects.push(Effect::ReleaseSlots);
                }
            }
            Err(error @ PlacementError::NetworkMemory { .. }) => {
                self.failure = Some(error.to_string());
                self.end(clock, JobState::Failed, effects);
            }
        }
    }

    fn deploy(&mut self, clock: Clock, placement: &Placement, effects: &mut Vec<Effect>) {
        let point = self.coordinator.restore_point();
        let splits = self.splits.as_ref().expect("only a started job is deployed");
        let tasks = match deployments(&self.plan, placement, point, splits) {
            Ok(tasks) => tasks,
            Err(error) => {
                self.failure = Some(error.to_string());
                return self.end(clock, JobState::Failed, effects);
            }
        };
        self.attempt.attempt = self.attempt.attempt.next();
        self.restored = point.map(|point| point.metadata.id);
        effects.push(Effect::Deploy {
            attempt: self.attempt,
            restored: self.restored,
            directory: point.and_then(|point| point.directory).map(str::to_owned),
            channel_window_bytes: placement.channel_window_bytes,
            tasks,
        });
        self.execution = Some(Execution::new(self.attempt, &self.plan, placement, &self.resources));
        self.coordinator.attempt_deployed(self.attempt);
        self.state = JobState::Deploying;
        self.waiting_for = None;
    }

    fn resources_changed(&mut self, task_managers: Vec<TaskManagerInfo>, effects: &mut Vec<Effect>) {
        for info in &task_managers {
            if let Some(attempt) = self.cut_off.remove(&info.id) {
                effects.push(Effect::CancelAttempt { attempt, task_managers: vec![info.id] });
            }
        }
        self.resources = task_managers;
        (self.awaits_resources, self.may_hold_slots) = (false, true);
    }

    fn task_changed(&mut self, clock: Clock, task: TaskId, state: TaskState, effects: &mut Vec<Effect>) {
        let execution = self.execution.as_mut().expect("an admitted event has an execution");
        let phase = match &state {
            TaskState::Running => TaskPhase::Running,
            TaskState::Finishing => TaskPhase::Finishing,
            TaskState::Finished => TaskPhase::Finished,
            TaskState::Failed(_) => TaskPhase::Failed,
            TaskState::Canceled => TaskPhase::Canceled,
        };
        if !execution.advance(task, phase) {
            return;
        }
        match state {
            TaskState::Running => {}
            TaskState::Finishing => self.coordinator.task_finishing(task, execution, effects),
            TaskState::Finished if self.coordinator.is_last_completed() => {}
            TaskState::Finished => {
                self.fail_task(clock, task, Failure::internal("it finished before the final checkpoint"), effects);
            }
            TaskState::Failed(failure) => self.fail_task(clock, task, failure, effects),
            TaskState::Canceled => self.fail_task(clock, task, Failure::external("it was ended by its TaskManager"), effects),
        }
    }

    fn snapshot_taken(&mut self, clock: Clock, checkpoint: CheckpointId, snapshot: TaskSnapshot, effects: &mut Vec<Effect>) {
        let execution = self.execution.as_ref().expect("an admitted event has an execution");
        if let Some(failure) = self.coordinator.acknowledge(clock, checkpoint, snapshot, execution, effects) {
            self.fail(clock, failure, effects);
        }
    }

    /// A savepoint needs every task; whoever asks at another time is told so, and asks again.
    fn savepoint_wanted(&mut self, clock: Clock, request: SavepointRequest) {
        let refused = self.refuses_snapshots("a savepoint");
        self.coordinator.savepoint_wanted(request, clock.wall_ms, refused);
    }

    fn snapshot_declined(
        &mut self,
        clock: Clock,
        checkpoint: CheckpointId,
        task: TaskId,
        reason: DeclineReason,
        effects: &mut Vec<Effect>,
    ) {
        let execution = self.execution.as_ref().expect("an admitted event has an execution");
        if let Some(failure) = self.coordinator.decline(clock, (checkpoint, task), reason, execution, effects) {
            self.fail(clock, failure, effects);
        }
    }

    fn metadata_written(
        &mut self,
        clock: Clock,
        checkpoint: CheckpointId,
        result: Result<String, DeclineReason>,
        effects: &mut Vec<Effect>,
    ) {
        let answered = self.coordinator.metadata_written(clock, checkpoint, result, self.execution.as_ref(), effects);
        if answered.completed {
            self.restart.checkpoint_completed();
        }
        if let Some(failure) = answered.failure {
            self.fail(clock, failure, effects);
        }
    }

    /// Whether nothing of the newest attempt is left anywhere, as far as one can know.
    fn attempt_is_gone(&self) -> bool {
        self.execution.as_ref().is_none_or(Execution::is_ended)
    }

    fn end(&mut self, clock: Clock, state: JobState, effects: &mut Vec<Effect>) {
        self.state = state;
        self.ended_at_ms = Some(clock.wall_ms);
        self.waiting_for = None;
        let keep = state != JobState::Finished && self.plan.settings.checkpoint.retain;
        self.coordinator.job_ended(keep, effects);
        effects.push(Effect::ReleaseSlots);
    }
}

#[cfg(test)]
mod tests;
