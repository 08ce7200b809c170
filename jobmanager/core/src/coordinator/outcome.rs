//! How a checkpoint ends: it is durable, or given up.

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, DeclineReason};
use levada_common::fault::Failure;
use levada_common::time::Instant;

use super::{Coordinator, delete_shared};
use crate::clock::Clock;
use crate::event::Effect;
use crate::execution::Execution;
use crate::pending::Pending;
use crate::restore::RestoreBase;

/// Savepoints that were given up whose folders are remembered, for acknowledgements that come late.
const GIVEN_UP_COUNT_MAX: usize = 64;

impl Coordinator {
    /// The checkpoint is durable: counts, tells the tasks, keeps it and discards what is too many. A savepoint is its user's; only
    /// one that stops the job means something to the tasks.
    pub(super) fn complete(
        &mut self,
        pending: Pending,
        clock: Clock,
        uri: String,
        execution: Option<&Execution>,
        effects: &mut Vec<Effect>,
    ) {
        let record = pending.record(clock.now, None, uri);
        self.savepoints.ended(pending.id, None, record.duration_ms, record.bytes);
        self.history.ended(record);
        self.pause(clock.now);
        let is_checkpoint = pending.kind == CheckpointKind::Checkpoint;
        if self.attempt == Some(pending.attempt) && (is_checkpoint || pending.last) {
            self.last_completed = pending.last;
            effects.extend(notify(&pending, true, execution));
        }
        let metadata = pending.metadata(&self.plan);
        match &pending.kind {
            CheckpointKind::Checkpoint => {
                self.health.completed(pending.triggered.now);
                self.keep_checkpoint(metadata, effects);
            }
            CheckpointKind::Savepoint { directory, stops } => {
                let files = self.shared.release(&metadata.tasks);
                delete_shared(files, effects);
                self.users.insert(metadata.id);
                self.stopped = stops.then(|| RestoreBase { metadata, directory: directory.to_string() });
            }
        }
    }

    fn keep_checkpoint(&mut self, metadata: CheckpointMetadata, effects: &mut Vec<Effect>) {
        if let Some(base) = self.base.take() {
            effects.push(Effect::ForgetBase { checkpoint: base.metadata.id });
        }
        let files = self.shared.completed(&metadata);
        for old in self.retained.push(metadata) {
            self.discard(old, effects);
        }
        delete_shared(files, effects);
        if self.unswept && self.attempt.is_some() {
            self.sweep_shared(self.attempt, effects);
        }
        if self.keep.is_some() {
            // It completed after the job's end: nothing is built on it.
            let files = self.shared.ended();
            delete_shared(files, effects);
        }
        if self.keep == Some(false) {
            self.discard_retained(effects);
        }
    }

    /// The checkpoint failed: counts, tells the tasks, deletes what it holds unless that may be durable yet.
    pub(super) fn give_up(
        &mut self,
        pending: Pending,
        clock: Clock,
        reason: &DeclineReason,
        execution: Option<&Execution>,
        effects: &mut Vec<Effect>,
    ) -> Option<Failure> {
        let record = pending.record(clock.now, Some(reason.to_string()), String::new());
        self.savepoints.ended(pending.id, record.failure.clone(), record.duration_ms, record.bytes);
        self.history.ended(record);
        self.pause(clock.now);
        let mut failure = None;
        if self.attempt == Some(pending.attempt) {
            effects.extend(notify(&pending, false, execution));
            failure = self.count_failure(&pending, clock.now, reason);
        }
        if pending.kind != CheckpointKind::Checkpoint {
            self.given_up.insert(pending.id, pending.kind.clone());
            if self.given_up.len() > GIVEN_UP_COUNT_MAX {
                self.given_up.pop_first();
            }
        }
        if !self.abandoned.contains_key(&pending.id) {
            let tasks = pending.snapshots();
            let files = self.shared.release(&tasks);
            effects.push(Effect::DiscardCheckpoint { checkpoint: pending.id, kind: pending.kind, tasks });
            delete_shared(files, effects);
        }
        failure
    }

    /// A savepoint that failed is its user's matter, and the job goes on: where its sources were ended for it, from its newest
    /// checkpoint, which is from before that.
    fn count_failure(&mut self, pending: &Pending, now: Instant, reason: &DeclineReason) -> Option<Failure> {
        if pending.last {
            self.final_due = now.plus_ms(self.final_retry_ms);
        }
        if pending.kind != CheckpointKind::Checkpoint {
            let drained = self.draining.take()?;
            return Some(Failure::external(format!(
                "the sources were ended for savepoint request {drained}, which failed: {reason}"
            )));
        }
        let tolerable = self.plan.settings.checkpoint.tolerable_failures;
        self.health.failed(pending.id, reason, pending.last, tolerable)
    }

    /// Keeps the least pause after a checkpoint that has just ended.
    fn pause(&mut self, now: Instant) {
        let earliest = now.plus_ms(self.plan.settings.checkpoint.min_pause_ms);
        self.due = self.due.map(|due| due.max(earliest));
    }
}

fn notify(pending: &Pending, completed: bool, execution: Option<&Execution>) -> Option<Effect> {
    let task_managers = execution?.task_managers();
    let last = pending.last && completed;
    Some(Effect::NotifyCheckpoint { attempt: pending.attempt, checkpoint: pending.id, completed, last, task_managers })
}
