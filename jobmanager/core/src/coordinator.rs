//! Checkpoints of one job: when one begins, who has answered, whether it completed, which are kept.
//!
//! At most one is under way; where it leaves `pending` it is counted, once.
//!
//! *A metadata answer outlives its attempt.* Once every snapshot is here the checkpoint may become durable at any moment, so a
//! failure of the attempt does not give it up: the next attempt waits for the answer (at most until the checkpoint's deadline)
//! and is restored from it where it was written. No task is notified then; sinks commit what they find in the restored state.
//! A write that is not answered in time is *abandoned*: counted as failed, never restored from, and deleted when its answer comes.
//!
//! *A savepoint commits nothing, and nothing is restored from it while the job goes on*: it is the user's, who may move or delete
//! it at any time. What sinks have prepared for it is committed with the next checkpoint, or prepared anew after a failure, which
//! goes back to the newest checkpoint: each row comes out once, whatever has become of the savepoint. So no attempt waits for its
//! metadata either, which may be written beside later ones. A savepoint that stops the job is its last checkpoint: tasks are notified,
//! sinks commit, and should the attempt fail before all have, the next one is restored from it with every task marked finished, so
//! that sinks commit what they find and nothing more is read.

mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, DeclineReason, TaskSnapshot};
use levada_common::fault::Failure;
use levada_common::ids::{Attempt, AttemptId, CheckpointId, TaskId, TaskManagerId};
use levada_common::plan::{BackendKind, Plan};
use levada_common::savepoint;
use levada_common::time::Instant;

use crate::clock::Clock;
use crate::event::Effect;
use crate::execution::{Execution, describe};
use crate::health::Health;
use crate::history::History;
use crate::pending::Pending;
use crate::restore::{RestoreBase, RestorePoint};
use crate::retained::{Retained, repeats};
use crate::savepoints::{SavepointMode, SavepointRequest, SavepointStatus, Savepoints};
use crate::shared::SharedFiles;
use crate::status::{CheckpointsStatus, StartedFrom};

/// The checkpoint coordinator of one job.
#[derive(Debug)]
pub struct Coordinator {
    plan: Arc<Plan>,
    final_retry_ms: u64,
    next_id: CheckpointId,
    pending: Option<Pending>,
    /// Savepoints whose attempt has ended while their metadata is being written: the next one does not wait for them.
    left: BTreeMap<CheckpointId, Pending>,
    /// Checkpoints given up whose metadata may be written yet.
    abandoned: BTreeMap<CheckpointId, (CheckpointKind, Vec<TaskSnapshot>)>,
    retained: Retained,
    shared: SharedFiles,
    savepoints: Savepoints,
    /// Savepoints that completed: whatever still comes for one repeats what it has, and is never discarded.
    users: BTreeSet<CheckpointId>,
    /// Savepoints that were given up.
    given_up: BTreeMap<CheckpointId, CheckpointKind>,
    /// What the job began with, until it has a checkpoint of its own.
    base: Option<RestoreBase>,
    started_from: Option<StartedFrom>,
    /// The savepoint that has stopped the job.
    stopped: Option<RestoreBase>,
    /// The sources of the current attempt were told to end, for this savepoint.
    draining: Option<String>,
    history: History,
    health: Health,
    /// The current attempt, from its deployment until it fails or is ended: whom checkpoints are taken of.
    attempt: Option<AttemptId>,
    /// When the next periodic checkpoint is due.
    due: Option<Instant>,
    /// Somebody wants a checkpoint, and none has begun since.
    wanted: bool,
    /// From when on a final checkpoint may be tried.
    final_due: Instant,
    last_completed: bool,
    /// Attempts before the current one may have left shared files that no one names.
    unswept: bool,
    /// Set when the job has ended: whether its checkpoints stay.
    keep: Option<bool>,
}

/// What a metadata answer changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// A checkpoint (no savepoint) completed.
    pub completed: bool,
    /// The job fails.
    pub failure: Option<Failure>,
}

impl Coordinator {
    /// A job without checkpoints so far, which begins with `base`; a final checkpoint that failed is tried again after
    /// `final_retry_ms`. Its ids go on from those of `base`, since tasks take no older one.
    pub fn new(plan: Arc<Plan>, final_retry_ms: u64, base: Option<RestoreBase>) -> Self {
        let retained = Retained::new(plan.settings.checkpoint.num_retained);
        let started_from = base.as_ref().map(|base| StartedFrom {
            checkpoint: base.metadata.id,
            savepoint: base.metadata.savepoint,
            directory: base.directory.clone(),
        });
        Self {
            plan,
            final_retry_ms,
            next_id: base.as_ref().map_or(CheckpointId(1), |base| base.metadata.id.next()),
            pending: None,
            left: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            retained,
            shared: SharedFiles::default(),
            savepoints: Savepoints::default(),
            users: BTreeSet::new(),
            given_up: BTreeMap::new(),
            base,
            started_from,
            stopped: None,
            draining: None,
            history: History::default(),
            health: Health::default(),
            attempt: None,
            due: None,
            wanted: false,
            final_due: Instant(0),
            last_completed: false,
            unswept: false,
            keep: None,
        }
    }

    /// A new attempt is deployed. Contract: no checkpoint is under way.
    pub fn attempt_deployed(&mut self, attempt: AttemptId) {
        assert!(self.pending.is_none(), "an attempt waits for the checkpoint of the one before");
        self.attempt = Some(attempt);
        self.unswept = attempt.attempt > Attempt(1);
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
        self.draining = None;
        self.savepoints.fail_waiting(&format!("the attempt ended: {why}"));
        if let Some(pending) = self.pending.take_if(|pending| !pending.is_acknowledged()) {
            self.give_up(pending, clock, &DeclineReason::AttemptEnded(why.into()), None, effects);
        }
        if let Some(pending) = self.pending.take_if(|pending| pending.is_only_users()) {
            self.left.insert(pending.id, pending);
        }
    }

    /// The job has ended. Its checkpoints stay where `keep` says so.
    pub fn job_ended(&mut self, keep: bool, effects: &mut Vec<Effect>) {
        self.keep = Some(keep);
        self.savepoints.fail_waiting("the job has ended");
        if !keep {
            self.discard_retained(effects);
        }
        let files = self.shared.ended();
        delete_shared(files, effects);
        self.sweep_shared(None, effects);
    }

    /// Has what no snapshot names deleted, of attempts before this one.
    fn sweep_shared(&mut self, before: Option<AttemptId>, effects: &mut Vec<Effect>) {
        self.unswept = false;
        if self.plan.settings.backend == BackendKind::Rocksdb {
            effects.push(Effect::SweepShared { before, keep: self.shared.held() });
        }
    }

    fn discard_retained(&mut self, effects: &mut Vec<Effect>) {
        for metadata in self.retained.take_all() {
            self.discard(metadata, effects);
        }
    }

    /// Discards a checkpoint that was retained.
    fn discard(&mut self, metadata: CheckpointMetadata, effects: &mut Vec<Effect>) {
        let files = self.shared.release(&metadata.tasks);
        let kind = CheckpointKind::Checkpoint;
        effects.push(Effect::DiscardCheckpoint { checkpoint: metadata.id, kind, tasks: metadata.tasks });
        delete_shared(files, effects);
    }

    /// Somebody wants a checkpoint: the next begins as soon as none is under way.
    pub fn checkpoint_wanted(&mut self) {
        self.wanted = true;
    }

    /// The id of the next checkpoint that begins.
    pub fn next_id(&self) -> CheckpointId {
        self.next_id
    }

    /// Somebody wants a savepoint; `refused` where it cannot be had now. A request that is known changes nothing.
    pub fn savepoint_wanted(&mut self, request: SavepointRequest, wall_ms: u64, refused: Option<String>) {
        let ending = self.savepoints.ending().map(|ending| format!("the job ends with savepoint request {}", ending.request.id));
        self.savepoints.request(request, wall_ms, refused.or(ending));
    }

    /// The savepoint of this request.
    pub fn savepoint(&self, request: &str) -> Option<&SavepointStatus> {
        self.savepoints.find(request)
    }

    /// The savepoint that ends, or has ended, the job.
    pub fn ending_savepoint(&self) -> Option<&SavepointStatus> {
        self.savepoints.ending()
    }

    /// All savepoints, newest first.
    pub fn savepoints(&self) -> Vec<SavepointStatus> {
        self.savepoints.all()
    }

    /// The snapshot that the job was submitted with.
    pub fn started_from(&self) -> Option<&StartedFrom> {
        self.started_from.as_ref()
    }

    /// The completed checkpoints that are kept, oldest first.
    pub fn retained(&self) -> impl Iterator<Item = &CheckpointMetadata> {
        self.retained.iter()
    }

    /// Does what time asks for: gives up, begins. Answers the failure of the job where too many checkpoints failed.
    pub fn tick(&mut self, clock: Clock, execution: Option<&Execution>, effects: &mut Vec<Effect>) -> Option<Failure> {
        if let Some(pending) = self.pending.take_if(|pending| pending.deadline <= clock.now) {
            let failure = self.expire(pending, clock, execution, effects);
            if failure.is_some() {
                return failure;
            }
        }
        if let Some(execution) = execution {
            self.drain(execution, effects);
            if self.begins_at(execution).is_some_and(|at| at <= clock.now) {
                self.trigger(clock, execution, effects);
            }
        }
        None
    }

    /// Gives up savepoints of attempts that have ended whose metadata is not written in time.
    pub fn abandon_left(&mut self, clock: Clock, effects: &mut Vec<Effect>) {
        let late: Vec<Pending> =
            self.left.extract_if(.., |_, pending| pending.deadline <= clock.now).map(|(_, late)| late).collect();
        for pending in late {
            self.expire(pending, clock, None, effects);
        }
    }

    /// When `abandon_left` is next wanted.
    pub fn left_deadline(&self) -> Option<Instant> {
        self.left.values().map(|pending| pending.deadline).min()
    }

    fn expire(
        &mut self,
        pending: Pending,
        clock: Clock,
        execution: Option<&Execution>,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        let reason = pending.expiry(&self.plan, self.plan.settings.checkpoint.timeout_ms);
        if pending.is_acknowledged() {
            self.abandoned.insert(pending.id, (pending.kind.clone(), pending.snapshots()));
        }
        self.give_up(pending, clock, &reason, execution, effects)
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
        } else if self.draining.is_some() {
            // A checkpoint of sources of which some were ended is none to go back to.
            None
        } else if self.savepoints.next().is_some() || self.wanted {
            Some(Instant(0))
        } else {
            self.due
        }
    }

    /// Ends the sources where a drain is next; its savepoint is the job's final checkpoint, and until then there is no other.
    fn drain(&mut self, execution: &Execution, effects: &mut Vec<Effect>) {
        let next = self.savepoints.next().filter(|next| next.mode == SavepointMode::Drain);
        let Some(request) = next.filter(|_| self.draining.is_none() && execution.is_live() && self.pending.is_none()) else {
            return;
        };
        self.draining = Some(request.id.clone());
        let tasks = execution.sources(&self.plan);
        effects.push(Effect::EndSources { attempt: execution.id(), tasks });
    }

    /// What the next checkpoint is taken for, and which request that answers.
    fn next_kind(&self, id: CheckpointId, execution: &Execution) -> (CheckpointKind, Option<String>) {
        let job = execution.id().job;
        match self.savepoints.next() {
            Some(next) if next.mode != SavepointMode::Drain || execution.is_finishing() => {
                let directory = savepoint::folder(&next.directory, job, id).into();
                (CheckpointKind::Savepoint { directory, stops: next.mode.ends_job() }, Some(next.id.clone()))
            }
            _ => (CheckpointKind::Checkpoint, None),
        }
    }

    fn trigger(&mut self, clock: Clock, execution: &Execution, effects: &mut Vec<Effect>) {
        let id = self.next_id;
        self.next_id = id.next();
        let (kind, request) = self.next_kind(id, execution);
        let settings = &self.plan.settings.checkpoint;
        match (request, kind.savepoint()) {
            (Some(request), Some(folder)) => self.savepoints.begun(&request, id, folder.to_string()),
            _ => {
                self.due = settings.interval_ms.map(|interval_ms| clock.now.plus_ms(interval_ms));
                self.wanted = false;
            }
        }
        let pending = Pending::new(id, kind, execution, clock, settings.timeout_ms);
        effects.push(self.trigger_effect(&pending, execution.without_live_input(&self.plan)));
        self.pending = Some(pending);
        self.history.triggered();
    }

    fn trigger_effect(&self, pending: &Pending, tasks: Vec<(TaskManagerId, TaskId)>) -> Effect {
        let settings = &self.plan.settings;
        let kind = pending.kind.clone();
        let in_memory = settings.backend == BackendKind::Memory || settings.checkpoint.interval_ms.is_none();
        let inline = in_memory && kind == CheckpointKind::Checkpoint;
        Effect::TriggerCheckpoint { attempt: pending.attempt, checkpoint: pending.id, kind, tasks, inline }
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

    /// A task of the current attempt acknowledged. One that builds on a file that is gone is as good as declined: answers the
    /// failure of the job, if that is one.
    pub fn acknowledge(
        &mut self,
        clock: Clock,
        checkpoint: CheckpointId,
        snapshot: TaskSnapshot,
        execution: &Execution,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        let current = self.attempt;
        let wanting = self
            .pending
            .as_mut()
            .filter(|pending| pending.id == checkpoint && Some(pending.attempt) == current && pending.wants(snapshot.task));
        let Some(pending) = wanting else {
            self.refuse(checkpoint, snapshot, effects);
            return None;
        };
        if let Some(file) = self.shared.missing(&snapshot) {
            let reason = DeclineReason::Declined(format!("its snapshot needs the shared file \"{file}\", which was deleted"));
            let task = snapshot.task;
            self.refuse(checkpoint, snapshot, effects);
            return self.decline(clock, (checkpoint, task), reason, execution, effects);
        }
        self.shared.hold(&snapshot);
        pending.take(snapshot);
        if pending.is_acknowledged() {
            effects.push(Effect::WriteMetadata {
                attempt: pending.attempt,
                metadata: pending.metadata(&self.plan),
                kind: pending.kind.clone(),
                within_ms: pending.deadline.since(clock.now),
            });
        }
        None
    }

    /// Discards a late, unknown or stale acknowledgement, but none that repeats one whose files are held.
    pub fn refuse(&mut self, checkpoint: CheckpointId, snapshot: TaskSnapshot, effects: &mut Vec<Effect>) {
        if !self.holds(checkpoint, &snapshot) {
            let files = self.shared.refuse(&snapshot);
            let kind = self.kind_of(checkpoint);
            effects.push(Effect::DiscardSnapshot { checkpoint, kind, snapshot });
            delete_shared(files, effects);
        }
    }

    /// What a checkpoint was taken for, as far as it is known.
    fn kind_of(&self, checkpoint: CheckpointId) -> CheckpointKind {
        let pending = self.under_way(checkpoint).map(|pending| &pending.kind);
        let abandoned = || self.abandoned.get(&checkpoint).map(|(kind, _)| kind);
        pending.or_else(abandoned).or_else(|| self.given_up.get(&checkpoint)).cloned().unwrap_or_default()
    }

    /// The checkpoint of this id, where it has neither completed nor failed.
    fn under_way(&self, checkpoint: CheckpointId) -> Option<&Pending> {
        self.pending.as_ref().filter(|pending| pending.id == checkpoint).or_else(|| self.left.get(&checkpoint))
    }

    /// Whether the snapshot repeats one that was taken and is held: under way, being written, or retained.
    pub fn holds(&self, checkpoint: CheckpointId, snapshot: &TaskSnapshot) -> bool {
        let among = |tasks: &[TaskSnapshot]| tasks.iter().any(|held| repeats(held, snapshot));
        self.under_way(checkpoint).and_then(|pending| pending.taken(snapshot.task)).is_some_and(|held| repeats(held, snapshot))
            || self.retained.get(checkpoint).is_some_and(|metadata| among(&metadata.tasks))
            || self.abandoned.get(&checkpoint).is_some_and(|(_, tasks)| among(tasks))
            || self.users.contains(&checkpoint)
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
        if let Some((kind, tasks)) = self.abandoned.remove(&checkpoint) {
            let files = self.shared.release(&tasks);
            effects.push(Effect::DiscardCheckpoint { checkpoint, kind, tasks });
            delete_shared(files, effects);
            return Answered::default();
        }
        let written = self.pending.take_if(|pending| pending.id == checkpoint && pending.is_acknowledged());
        let Some(pending) = written.or_else(|| self.left.remove(&checkpoint)) else { return Answered::default() };
        match result {
            Ok(uri) => {
                let completed = pending.kind == CheckpointKind::Checkpoint;
                self.complete(pending, clock, uri, execution, effects);
                Answered { completed, failure: None }
            }
            Err(reason) => Answered { completed: false, failure: self.give_up(pending, clock, &reason, execution, effects) },
        }
    }

    /// What the job is restored from: its newest completed checkpoint, the savepoint that stopped it where that is newer, and
    /// before it has any what it began with.
    pub fn restore_point(&self) -> Option<RestorePoint<'_>> {
        let own = self.retained.newest();
        let stopped = self.stopped.as_ref().filter(|base| own.is_none_or(|own| own.id < base.metadata.id));
        if let Some(RestoreBase { metadata, directory }) = stopped {
            return Some(RestorePoint { metadata, directory: Some(directory), stopped: true });
        }
        let base = || {
            let RestoreBase { metadata, directory } = self.base.as_ref()?;
            Some(RestorePoint { metadata, directory: Some(directory), stopped: false })
        };
        own.map(|metadata| RestorePoint { metadata, directory: None, stopped: false }).or_else(base)
    }

    /// The checkpoint, or savepoint that stops the job, whose metadata is being written: the job may be restored from it.
    pub fn writing(&self) -> Option<CheckpointId> {
        self.pending.as_ref().filter(|pending| pending.is_acknowledged()).map(|pending| pending.id)
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
            ..self.history.status(u64::from(self.pending.is_some()) + self.left.len() as u64)
        }
    }
}

fn delete_shared(files: Vec<String>, effects: &mut Vec<Effect>) {
    if !files.is_empty() {
        effects.push(Effect::DeleteShared { files });
    }
}
