//! What the core wants done, done.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata};
use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, TaskId, TaskManagerId};
use levada_common::time::Watermark;
use levada_jobmanager_core::event::{TaskDeployment, TaskState};
use levada_jobmanager_core::{Effect, Event as CoreEvent};
use levada_proto::convert::{attempt_to_ref, kind_to_target, task_index};
use levada_proto::v1::to_task_manager::Message;
use levada_proto::{COMMAND_BYTES_MAX, encoded_len, v1};
use tokio::sync::mpsc::error::TrySendError;
use tracing::{debug, info, warn};

use super::deploy::{Deployment, Numbering};
use super::run::{Done, Driver};

impl Driver {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Deploy { attempt, restored, directory, channel_window_bytes, tasks } => {
                // It has its slots, whatever was to be given back before.
                self.released = false;
                self.deploy(attempt, (restored, directory), channel_window_bytes, tasks);
            }
            Effect::CancelAttempt { attempt, task_managers } => self.cancel(attempt, &task_managers),
            Effect::TriggerCheckpoint { attempt, checkpoint, kind, tasks, inline } => {
                self.trigger(attempt, (checkpoint, &kind), &tasks, inline);
            }
            Effect::EndSources { attempt, tasks } => self.end_sources(attempt, &tasks),
            Effect::WriteMetadata { attempt, metadata, kind, within_ms } => {
                self.write_metadata(attempt, metadata, &kind, within_ms);
            }
            Effect::NotifyCheckpoint { attempt, checkpoint, completed, last, task_managers } => {
                let attempt = Some(attempt_to_ref(attempt));
                let notify = v1::NotifyCheckpoint { attempt, checkpoint: checkpoint.0, completed, r#final: last };
                for id in task_managers {
                    self.send(id, Message::Notify(notify.clone()));
                }
            }
            Effect::DiscardCheckpoint { checkpoint, kind, tasks } => {
                self.context.budget.release_checkpoint(self.job.id, checkpoint);
                let deleting = self.checkpoints.discard(checkpoint, &kind, &tasks, true);
                self.discard(deleting);
            }
            Effect::DiscardSnapshot { checkpoint, kind, snapshot } => {
                let deleting = self.checkpoints.discard(checkpoint, &kind, &[snapshot], false);
                self.discard(deleting);
            }
            Effect::ForgetBase { checkpoint } => self.context.budget.release_checkpoint(self.job.id, checkpoint),
            Effect::DeleteShared { files } => {
                let deleting = self.checkpoints.delete_shared(files);
                self.discard(deleting);
            }
            Effect::SweepShared { before, keep } => {
                let sweeping = self.checkpoints.sweep_shared(before.map(|attempt| (attempt.epoch, attempt.attempt)), keep);
                self.discard(sweeping);
            }
            Effect::ReleaseSlots => self.released = true,
        }
    }

    /// Deploys what is restored from this checkpoint below this directory (`None` = the job's own).
    fn deploy(
        &mut self,
        attempt: AttemptId,
        (restored, directory): (Option<CheckpointId>, Option<String>),
        window_bytes: u64,
        tasks: Vec<TaskDeployment>,
    ) {
        let restored_text = restored.map_or_else(|| "none".into(), |id| id.to_string());
        info!(job = %self.job.id, attempt = %attempt.attempt, tasks = tasks.len(), restored = restored_text, "deploying");
        self.reports.clear();
        self.alignment.restart();
        let addresses: BTreeMap<TaskManagerId, String> =
            self.links.iter().map(|link| (link.info.id, link.info.data_address.clone())).collect();
        let deployment = Deployment {
            attempt,
            plan_json: self.plan_json.clone(),
            restored,
            channel_window_bytes: window_bytes,
            directory: directory.or_else(|| self.checkpoints.directory().map(str::to_owned)).unwrap_or_default(),
            max_parallelism: self.job.plan.max_parallelism,
            addresses: &addresses,
        };
        let mut numbering = Numbering::new(self.next_inline_id);
        let messages = deployment.messages(tasks, &mut numbering);
        self.next_inline_id = numbering.next();
        self.fetchable = numbering.bytes;
        self.deployed = Some((attempt, messages.keys().copied().collect()));
        for (id, message) in messages {
            if let Some(text) = too_large(encoded_len(&message), self.context.frame_bytes) {
                let task = TaskId::new(levada_common::ids::VertexId(message.tasks[0].vertex), message.tasks[0].subtask);
                let state = TaskState::Failed(Failure::user(text));
                self.caused.push_back(CoreEvent::Task { attempt, task, state });
                return;
            }
            self.send(id, Message::Deploy(message));
        }
    }

    fn cancel(&mut self, attempt: AttemptId, task_managers: &[TaskManagerId]) {
        let cancel = v1::CancelAttempt { attempt: Some(attempt_to_ref(attempt)) };
        for id in task_managers {
            self.send(*id, Message::Cancel(cancel.clone()));
        }
    }

    fn trigger(
        &mut self,
        attempt: AttemptId,
        (checkpoint, kind): (CheckpointId, &CheckpointKind),
        tasks: &[(TaskManagerId, TaskId)],
        inline: bool,
    ) {
        debug!(job = %self.job.id, %checkpoint, tasks = tasks.len(), "checkpoint triggered");
        let directory = if inline { None } else { self.checkpoints.directory() }.unwrap_or_default().to_string();
        let mut messages: BTreeMap<TaskManagerId, v1::TriggerCheckpoint> = BTreeMap::new();
        for (id, task) in tasks {
            let message = messages.entry(*id).or_insert_with(|| v1::TriggerCheckpoint {
                attempt: Some(attempt_to_ref(attempt)),
                checkpoint: checkpoint.0,
                tasks: Vec::new(),
                directory: directory.clone(),
                savepoint: kind_to_target(kind),
            });
            message.tasks.push(task_index(*task));
        }
        for (id, message) in messages {
            self.send(id, Message::Trigger(message));
        }
    }

    fn end_sources(&mut self, attempt: AttemptId, tasks: &[(TaskManagerId, TaskId)]) {
        let mut messages: BTreeMap<TaskManagerId, v1::EndSources> = BTreeMap::new();
        for (id, task) in tasks {
            let message = messages.entry(*id).or_default();
            message.attempt = Some(attempt_to_ref(attempt));
            message.tasks.push(task_index(*task));
        }
        for (id, message) in messages {
            self.send(id, Message::EndSources(message));
        }
    }

    /// Tells sources that keep pace with others how far they may go, where that is news.
    pub(super) fn pace_sources(&mut self, attempt: AttemptId) {
        if self.deployed.as_ref().is_none_or(|(deployed, _)| *deployed != attempt) {
            return;
        }
        let limits = self.alignment.limits();
        if limits.is_empty() {
            return;
        }
        let task_managers = self.deployed.as_ref().map(|(_, task_managers)| task_managers.clone()).unwrap_or_default();
        let limit =
            |(task, watermark): (TaskId, Watermark)| v1::SourceLimit { task: Some(task_index(task)), watermark_ms: watermark.0 };
        let limits = limits.into_iter().map(limit).collect();
        let message = v1::PaceSources { attempt: Some(attempt_to_ref(attempt)), limits };
        for id in task_managers {
            self.send(id, Message::PaceSources(message.clone()));
        }
    }

    fn write_metadata(&mut self, attempt: AttemptId, metadata: CheckpointMetadata, kind: &CheckpointKind, within_ms: u64) {
        let checkpoint = metadata.id;
        match self.checkpoints.write(metadata, kind, within_ms) {
            Some(writing) => {
                self.work.spawn(async move { Done::Metadata { attempt, checkpoint, result: writing.await } });
            }
            None => self.caused.push_back(CoreEvent::MetadataWritten { attempt, checkpoint, result: Ok(String::new()) }),
        }
    }

    fn discard(&mut self, deleting: Option<impl Future<Output = ()> + Send + 'static>) {
        if let Some(deleting) = deleting {
            self.work.spawn(async move {
                deleting.await;
                Done::Discarded
            });
        }
    }

    /// Queues a command. A TaskManager that takes none is lost; one that has gone needs none.
    fn send(&mut self, id: TaskManagerId, message: Message) {
        let Some(link) = self.links.iter().find(|link| link.info.id == id) else { return };
        match link.outgoing.try_send(Ok(v1::ToTaskManager { message: Some(message) })) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                let reason = format!("it does not take its commands: {} are waiting", link.outgoing.max_capacity());
                self.clogged.push((link.clone(), reason));
            }
        }
    }

    /// The JobManager stops: tasks are told to end, without waiting for it.
    pub(super) fn abandon(&mut self) {
        if let Some((attempt, task_managers)) = self.deployed.take().filter(|_| !self.machine.is_terminal()) {
            warn!(job = %self.job.id, name = self.job.plan.name, "job abandoned: the JobManager is stopping");
            let task_managers: BTreeSet<TaskManagerId> = task_managers.into_iter().collect();
            self.cancel(attempt, &task_managers.into_iter().collect::<Vec<_>>());
        }
    }

    /// Logs a job's change of state.
    pub(super) fn log_change(&mut self) {
        let before = std::mem::replace(&mut self.state, self.machine.state());
        if self.state != before {
            let status = self.machine.status(self.now());
            let failure = status.failure.as_deref().unwrap_or("");
            let waiting_for = status.waiting_for.as_deref().unwrap_or("");
            info!(job = %self.job.id, attempt = %status.attempt, from = %before, to = %status.state, failure, waiting_for, "state");
        }
    }
}

/// Why a deployment of so many bytes is not sent: the TaskManager would give up the stream that brings it.
fn too_large(bytes: u64, frame_bytes: u64) -> Option<String> {
    if bytes > COMMAND_BYTES_MAX {
        let remedy = "use less parallelism or more TaskManagers";
        return Some(format!(
            "the deployment of {bytes} bytes is over the {COMMAND_BYTES_MAX} bytes that a TaskManager takes; {remedy}"
        ));
    }
    let text = || format!("the deployment of {bytes} bytes is over the frame size of {frame_bytes} bytes; raise rpc.frame-size");
    (bytes > frame_bytes).then(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_fits_the_frame_and_what_a_task_manager_takes() {
        let (small, large) = (10 << 20, 1 << 30);
        assert_eq!(too_large(small, small), None);
        assert!(too_large(small + 1, small).is_some_and(|text| text.contains("frame size of 10485760")));
        assert_eq!(too_large(COMMAND_BYTES_MAX, large), None);
        let text = too_large(COMMAND_BYTES_MAX + 1, large).unwrap();
        assert!(text.contains("268435457 bytes") && text.contains("268435456 bytes that a TaskManager takes"), "{text}");
    }
}
