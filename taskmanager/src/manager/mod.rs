//! The manager: owns the attempts that have tasks here, and nobody else does.
//!
//! One inbox, one closed event, one owner; it never waits for anything. Whatever is stale falls at one place, `current`.
//! Must never know: rows, gRPC streams, how a snapshot is made.

mod attempt;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use levada_common::fault::Failure;
use levada_common::ids::{Attempt, AttemptId, CheckpointId, Epoch, JobId, TaskId};
use levada_common::time::Watermark;
use levada_engine::element::Barrier;
use levada_proto::convert::{attempt_from_ref, failure_to_info, kind_from_target, task_of_index, task_to_ref};
use levada_proto::v1;
use levada_proto::v1::to_task_manager::Message;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::board::Board;
use crate::databases::Databases;
use crate::deploy;
use crate::inbox::Control;
use crate::net::client::Peers;
use crate::net::registry::Registry;
use crate::restore::Restored;
use crate::rpc::JobManager;
use crate::runner::Surroundings;
use crate::task::TaskState;

use attempt::Running;

/// Time that a cancelled task has to end, before it is reported as cancelled and left to itself.
const CANCEL_PATIENCE: Duration = Duration::from_millis(900);

/// Jobs whose newest attempt is remembered after it ended.
const JOBS_REMEMBERED_MAX: usize = 4096;

/// What can happen to the manager.
pub enum Event {
    /// A registration begins; those before it are over.
    Registered(Uplink),
    /// The JobManager wants something.
    Command(Box<Message>),
    /// A task's state was restored, or could not be.
    Restored {
        /// Its attempt.
        attempt: AttemptId,
        /// The task.
        task: TaskId,
        /// What it had.
        restored: Result<Restored, Failure>,
    },
    /// A task says something of itself.
    Task {
        /// Its attempt.
        attempt: AttemptId,
        /// The task.
        task: TaskId,
        /// What.
        state: TaskState,
    },
    /// Tasks of a cancelled attempt have had their time.
    Overdue(AttemptId),
    /// The JobManager has said nothing for the orphan timeout.
    Orphaned,
    /// Cancel everything; answer when every task has ended.
    Shutdown(oneshot::Sender<()>),
}

/// The way to the JobManager of one registration.
pub struct Uplink {
    /// Messages up the stream.
    pub messages: Sender<v1::FromTaskManager>,
    /// Calls.
    pub job_manager: JobManager,
}

/// What the manager works with.
pub struct Tools {
    /// Slots of this TaskManager.
    pub slots: u32,
    /// What tasks share.
    pub surroundings: Surroundings,
    /// The runtime of the data plane.
    pub data: Handle,
    /// The runtime of snapshots and restores.
    pub snapshots: Handle,
    /// The databases of this TaskManager.
    pub databases: Arc<Databases>,
    /// Channels that wait for their stream.
    pub registry: Arc<Registry>,
    /// Connections to other TaskManagers.
    pub peers: Arc<Peers>,
    /// The tasks, for those who look.
    pub board: Arc<Board>,
    /// The manager's own inbox. Unbounded, as task threads must not wait: a task says a handful of things in its life, and
    /// the JobManager's commands are taken as fast as they come.
    pub events: UnboundedSender<Event>,
}

/// The manager.
pub struct Manager {
    tools: Tools,
    uplink: Option<Uplink>,
    attempts: HashMap<AttemptId, Running>,
    /// The newest attempt of each job; an older one is stale.
    newest: HashMap<JobId, (Epoch, Attempt)>,
    leaving: Option<oneshot::Sender<()>>,
}

impl Manager {
    /// A manager without tasks.
    pub fn new(tools: Tools) -> Self {
        Self { tools, uplink: None, attempts: HashMap::new(), newest: HashMap::new(), leaving: None }
    }

    /// Handles events until it was told to shut down and every task has ended.
    pub async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        while let Some(event) = events.recv().await {
            self.handle(event);
            if self.attempts.is_empty()
                && let Some(leaving) = self.leaving.take()
            {
                let _ = leaving.send(());
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Registered(uplink) => {
                self.cancel_all("a new registration began");
                self.uplink = Some(uplink);
            }
            Event::Command(command) => self.command(*command),
            Event::Restored { attempt, task, restored } => self.restored(attempt, task, restored),
            Event::Task { attempt, task, state } => self.task_said(attempt, task, state),
            Event::Overdue(attempt) => self.overdue(attempt),
            Event::Orphaned => self.cancel_all("the JobManager has been silent for the orphan timeout"),
            Event::Shutdown(answer) => {
                self.cancel_all("the TaskManager is shutting down");
                self.leaving = Some(answer);
            }
        }
    }

    fn command(&mut self, command: Message) {
        match command {
            Message::Deploy(message) => self.deploy(message),
            Message::Cancel(message) => {
                if let Some(attempt) = self.current(message.attempt.as_ref()) {
                    self.cancel(attempt, "the JobManager said so");
                }
            }
            Message::Trigger(message) => self.trigger(message),
            Message::EndSources(message) => self.end_sources(&message),
            Message::PaceSources(message) => self.pace_sources(&message),
            Message::Notify(message) => self.notify(&message),
            // The registration's own.
            Message::Welcome(_) | Message::Heartbeat(_) => {}
        }
    }

    /// The attempt that a command is about, if it runs here: what is about another one is stale, or too late.
    fn current(&self, message: Option<&v1::AttemptRef>) -> Option<AttemptId> {
        match attempt_from_ref(message) {
            Ok(attempt) if self.attempts.contains_key(&attempt) => Some(attempt),
            Ok(attempt) => {
                tracing::debug!(%attempt, "a command for an attempt that does not run here was dropped");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "a command of the JobManager cannot be read");
                None
            }
        }
    }

    fn deploy(&mut self, message: v1::Deploy) {
        let (attempt, tasks) = match deploy::addressees(&message) {
            Ok(addressees) => addressees,
            Err(error) => return tracing::warn!(%error, "a deployment cannot be read"),
        };
        let order = (attempt.epoch, attempt.attempt);
        if self.newest.get(&attempt.job).is_some_and(|newest| *newest >= order) {
            return tracing::debug!(%attempt, "a stale deployment was dropped");
        }
        if self.newest.len() >= JOBS_REMEMBERED_MAX {
            let here: Vec<JobId> = self.attempts.keys().map(|attempt| attempt.job).collect();
            self.newest.retain(|job, _| here.contains(job));
        }
        self.newest.insert(attempt.job, order);
        let older: Vec<AttemptId> = self.attempts.keys().filter(|other| other.job == attempt.job).copied().collect();
        for other in older {
            self.cancel(other, "a newer attempt was deployed");
        }
        let Some(uplink) = &self.uplink else { return };
        let free = self.tools.slots.saturating_sub(self.attempts.values().map(Running::slots).sum());
        let started = if self.leaving.is_some() {
            Err(Failure::external("the TaskManager is shutting down"))
        } else {
            deploy::read(attempt, message)
                .and_then(|deployment| Running::start(&self.tools, deployment, uplink.job_manager.clone(), free))
        };
        match started {
            Ok(running) => {
                self.attempts.insert(attempt, running);
            }
            Err(failure) => {
                tracing::warn!(%attempt, %failure, "a deployment was refused");
                for task in tasks {
                    self.report(attempt, task, &TaskState::Failed(failure.clone()));
                }
            }
        }
    }

    fn trigger(&mut self, message: v1::TriggerCheckpoint) {
        let Some(attempt) = self.current(message.attempt.as_ref()) else { return };
        let kind = match kind_from_target(message.savepoint) {
            Ok(kind) => kind,
            Err(error) => return tracing::warn!(%attempt, %error, "a trigger cannot be read"),
        };
        let barrier = Barrier { checkpoint: CheckpointId(message.checkpoint), kind };
        let running = &self.attempts[&attempt];
        for task in message.tasks.iter().map(task_of_index) {
            running.tell(task, Control::Trigger(barrier.clone()));
        }
    }

    fn end_sources(&mut self, message: &v1::EndSources) {
        let Some(attempt) = self.current(message.attempt.as_ref()) else { return };
        let running = &self.attempts[&attempt];
        message.tasks.iter().map(task_of_index).for_each(|task| running.tell(task, Control::EndSource));
    }

    fn pace_sources(&mut self, message: &v1::PaceSources) {
        let Some(attempt) = self.current(message.attempt.as_ref()) else { return };
        let running = &self.attempts[&attempt];
        for limit in &message.limits {
            if let Some(task) = &limit.task {
                running.tell(task_of_index(task), Control::Pace(Watermark(limit.watermark_ms)));
            }
        }
    }

    fn notify(&mut self, message: &v1::NotifyCheckpoint) {
        let Some(attempt) = self.current(message.attempt.as_ref()) else { return };
        let (checkpoint, completed, last) = (CheckpointId(message.checkpoint), message.completed, message.r#final);
        self.attempts[&attempt].notify(checkpoint, completed, last);
    }

    fn restored(&mut self, attempt: AttemptId, task: TaskId, restored: Result<Restored, Failure>) {
        if let Some(running) = self.attempts.get_mut(&attempt) {
            running.launch(&self.tools, task, restored);
        }
    }

    fn task_said(&mut self, attempt: AttemptId, task: TaskId, state: TaskState) {
        let Some(running) = self.attempts.get_mut(&attempt) else { return };
        if let Some(state) = running.said(task, state) {
            self.report(attempt, task, &state);
        }
        self.forget_if_over(attempt);
    }

    fn overdue(&mut self, attempt: AttemptId) {
        let Some(running) = self.attempts.get_mut(&attempt) else { return };
        for task in running.abandon() {
            tracing::warn!(%attempt, %task, "a cancelled task has not ended in time; its thread is left to itself");
            self.report(attempt, task, &TaskState::Canceled);
        }
        self.forget_if_over(attempt);
    }

    fn cancel(&mut self, attempt: AttemptId, why: &str) {
        let Some(running) = self.attempts.get_mut(&attempt) else { return };
        if running.is_cancelling() {
            return;
        }
        tracing::info!(%attempt, why, "cancelling");
        self.tools.registry.remove(attempt);
        for task in running.cancel() {
            self.report(attempt, task, &TaskState::Canceled);
        }
        let events = self.tools.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CANCEL_PATIENCE).await;
            let _ = events.send(Event::Overdue(attempt));
        });
        self.forget_if_over(attempt);
    }

    fn cancel_all(&mut self, why: &str) {
        for attempt in self.attempts.keys().copied().collect::<Vec<_>>() {
            self.cancel(attempt, why);
        }
    }

    /// An attempt whose tasks have all ended is gone, unless one failed: then its channels stay until it is cancelled, so
    /// that the tasks at their other ends do not fail for it before the JobManager has heard why.
    fn forget_if_over(&mut self, attempt: AttemptId) {
        if self.attempts.get(&attempt).is_some_and(Running::is_over) {
            self.attempts.remove(&attempt);
            self.tools.registry.remove(attempt);
            self.tools.board.remove(attempt);
        }
    }

    fn report(&self, attempt: AttemptId, task: TaskId, state: &TaskState) {
        let Some(uplink) = &self.uplink else { return };
        let (state, failure) = match state {
            TaskState::Running => (v1::task_event::State::Running, None),
            TaskState::Finishing => (v1::task_event::State::Finishing, None),
            TaskState::Finished => (v1::task_event::State::Finished, None),
            TaskState::Failed(failure) => (v1::task_event::State::Failed, Some(failure_to_info(failure))),
            TaskState::Canceled => (v1::task_event::State::Canceled, None),
        };
        let handle = self.tools.board.tasks().into_iter().find(|handle| (handle.attempt, handle.task) == (attempt, task));
        let report = handle.map(|handle| handle.report());
        let event = v1::TaskEvent { task: Some(task_to_ref(attempt, task)), state: state.into(), failure, report };
        let message = v1::FromTaskManager { message: Some(v1::from_task_manager::Message::TaskEvent(event)) };
        if uplink.messages.try_send(message).is_err() {
            tracing::warn!(%attempt, %task, "the stream to the JobManager takes nothing more; an event was lost with it");
        }
    }
}

#[cfg(test)]
mod tests;
