//! The driver's loop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use levada_common::checkpoint::DeclineReason;
use levada_common::ids::{AttemptId, CheckpointId, Epoch, TaskManagerId};
use levada_common::time::Watermark;
use levada_jobmanager_core::alignment::{SourceAlignment, SourceTime};
use levada_jobmanager_core::{Effect, Event as CoreEvent, JobState, Machine, Options as CoreOptions};
use levada_proto::v1;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{DriverHandle, Event, INBOX, Job};
use crate::checkpoints::Checkpoints;
use crate::clock::{Clock, sleep_until};
use crate::inline_state::InlineBudget;
use crate::status::{self, Reports};
use crate::task_managers::{Link, Resources, TaskManagers};

/// What drivers need of their process.
#[derive(Clone)]
pub(crate) struct Context {
    pub clock: Clock,
    pub epoch: Epoch,
    pub frame_bytes: u64,
    pub budget: InlineBudget,
    pub task_managers: TaskManagers,
    /// Cancelled when the JobManager stops.
    pub stop: CancellationToken,
}

/// What was done beside the loop.
pub(super) enum Done {
    Metadata { attempt: AttemptId, checkpoint: CheckpointId, result: Result<String, DeclineReason> },
    Discarded,
}

/// Whether a `DiscardSnapshot` was among an event's effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Discarded(pub bool);

/// The owner of one job.
pub(super) struct Driver {
    pub context: Context,
    pub job: Job,
    pub plan_json: Bytes,
    pub machine: Machine,
    /// TaskManagers as last seen.
    pub links: Vec<Link>,
    pub checkpoints: Checkpoints,
    /// Inline states that tasks of the current attempt may fetch.
    pub fetchable: BTreeMap<u64, Bytes>,
    pub next_inline_id: u64,
    pub reports: Reports,
    /// The sources that keep pace with each other.
    pub alignment: SourceAlignment,
    pub work: JoinSet<Done>,
    /// Where the current attempt was deployed.
    pub deployed: Option<(AttemptId, Vec<TaskManagerId>)>,
    /// TaskManagers that do not take their commands.
    pub clogged: Vec<(Link, String)>,
    /// Events that effects caused at once.
    pub caused: VecDeque<CoreEvent>,
    pub released: bool,
    /// The newest state that was logged.
    pub state: JobState,
}

/// Makes the driver of a job. The future runs it and answers its last status.
pub(crate) fn spawn(context: Context, job: Job) -> (DriverHandle, impl Future<Output = Arc<v1::JobStatus>> + Send) {
    let (tx, mut inbox) = mpsc::channel(INBOX);
    let handle = DriverHandle { tx, ended: CancellationToken::new(), last: Arc::default() };
    let plan_json = Bytes::from(serde_json::to_vec(&*job.plan).expect("a plan has string keys only"));
    let base = job.base.clone();
    let machine = Machine::new(job.id, context.epoch, Arc::clone(&job.plan), CoreOptions::default(), base);
    let checkpoints = Checkpoints::new(&job);
    let alignment = SourceAlignment::new(&job.plan);
    let driver = Driver {
        context,
        job,
        plan_json,
        machine,
        links: Vec::new(),
        checkpoints,
        fetchable: BTreeMap::new(),
        next_inline_id: 1,
        reports: Reports::default(),
        alignment,
        work: JoinSet::new(),
        deployed: None,
        clogged: Vec::new(),
        caused: VecDeque::new(),
        released: false,
        state: JobState::Scheduled,
    };
    let (ended, last) = (handle.ended.clone(), Arc::clone(&handle.last));
    let running = async move {
        let status = Arc::new(driver.run(&mut inbox, ended).await);
        // Set before the inbox goes: whoever gets no answer finds it.
        last.get_or_init(|| Arc::clone(&status));
        status
    };
    (handle, running)
}

impl Driver {
    async fn run(mut self, inbox: &mut mpsc::Receiver<Event>, ended: CancellationToken) -> v1::JobStatus {
        info!(job = %self.job.id, name = self.job.plan.name, slots = self.job.plan.slots(), "job accepted");
        let splits = self.job.splits.clone();
        let Some(mut resources) = self.context.task_managers.join(self.job.id, self.job.plan.slots()).await else {
            return self.status();
        };
        self.apply(CoreEvent::Start { splits });
        resources.mark_changed();
        while !self.is_done(&ended).await {
            let deadline = self.machine.deadline().map(|at| self.context.clock.timer(at));
            let stop = self.context.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {
                    self.abandon();
                    break;
                }
                Some(done) = self.work.join_next() => self.done(done),
                changed = resources.changed(), if !self.machine.is_terminal() => match changed {
                    Ok(()) => self.look(&mut resources),
                    // The registry ends only when the JobManager stops.
                    Err(_) => {
                        self.abandon();
                        break;
                    }
                },
                Some(event) = inbox.recv() => self.hear(event),
                () = sleep_until(deadline) => {
                    self.apply(CoreEvent::Tick);
                }
            }
        }
        self.context.budget.release_job(self.job.id);
        self.status()
    }

    /// Tells the registry what the last events caused there, says once that the job has ended, and answers whether nothing is
    /// left to do.
    async fn is_done(&mut self, ended: &CancellationToken) -> bool {
        self.settle().await;
        let terminal = self.machine.is_terminal();
        if terminal && !ended.is_cancelled() {
            info!(job = %self.job.id, name = self.job.plan.name, state = %self.state, "job ended");
            self.fetchable.clear();
            // A TaskManager that is lost hears of it once nobody can send to it any more.
            self.links.clear();
            self.context.task_managers.leave(self.job.id).await;
            ended.cancel();
        }
        terminal && self.work.is_empty()
    }

    pub(super) fn now(&self) -> levada_common::time::Instant {
        self.context.clock.now()
    }

    pub(super) fn status(&self) -> v1::JobStatus {
        let wall_ms = self.context.clock.wall_ms();
        status::job_status(&self.job, &self.machine.status(self.now()), &self.reports, wall_ms)
    }

    /// Hands an event to the core and performs what follows.
    pub(super) fn apply(&mut self, event: CoreEvent) -> Discarded {
        let mut discarded = false;
        let mut next = Some(event);
        while let Some(event) = next {
            let mut effects = Vec::new();
            self.machine.handle(self.context.clock.now(), self.context.clock.wall_ms(), event, &mut effects);
            self.log_change();
            if self.state == JobState::Running {
                // Every task has been restored.
                self.fetchable.clear();
            }
            for effect in effects {
                discarded |= matches!(effect, Effect::DiscardSnapshot { .. });
                self.perform(effect);
            }
            next = self.caused.pop_front();
        }
        Discarded(discarded)
    }

    /// Tells the registry what the last events caused there.
    async fn settle(&mut self) {
        for (link, reason) in std::mem::take(&mut self.clogged) {
            self.context.task_managers.gone(link.registration, reason).await;
        }
        if std::mem::take(&mut self.released) && !self.machine.is_terminal() {
            self.context.task_managers.release(self.job.id).await;
        }
    }

    /// Sees which TaskManagers came and went.
    fn look(&mut self, resources: &mut watch::Receiver<Resources>) {
        let seen = resources.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.links, seen.links);
        for old in before {
            if !self.links.iter().any(|link| link.registration == old.registration) {
                let lost = seen.losses.iter().rev().find(|(registration, _)| *registration == old.registration);
                let reason = lost.map_or_else(|| "it is not registered any more".into(), |(_, reason)| reason.clone());
                self.apply(CoreEvent::TaskManagerLost { id: old.registration.id, reason });
            }
        }
        let infos = self.links.iter().map(|link| link.info.clone()).collect();
        self.apply(CoreEvent::Resources(infos));
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done.expect("work beside the loop neither panics nor is aborted") {
            Done::Metadata { attempt, checkpoint, result } => {
                self.apply(CoreEvent::MetadataWritten { attempt, checkpoint, result });
            }
            Done::Discarded => self.checkpoints.discarded(),
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Task { attempt, task, state } => {
                self.apply(CoreEvent::Task { attempt, task, state });
            }
            Event::Reports(reports) => self.take_reports(reports),
            Event::SourceTime { attempt, task, time } => {
                if attempt == self.machine.attempt() {
                    self.alignment.heard(task, time);
                    self.pace_sources(attempt);
                }
            }
            Event::Acknowledge { acknowledgement, reply } => {
                let accepted = self.acknowledge(acknowledgement);
                let _ = reply.send(accepted);
            }
            Event::Decline { attempt, checkpoint, task, reason, reply } => {
                self.apply(CoreEvent::SnapshotDeclined { attempt, checkpoint, task, reason });
                let _ = reply.send(());
            }
            Event::FetchState { attempt, inline_id, reply } => {
                let current = attempt == self.machine.attempt();
                let _ = reply.send(self.fetchable.get(&inline_id).filter(|_| current).cloned());
            }
            Event::Savepoint { request, reply } => {
                let _ = reply.send(self.savepoint(request));
            }
            Event::Checkpoint(reply) => {
                let next = self.machine.next_checkpoint();
                self.apply(CoreEvent::Checkpoint);
                let _ = reply.send(next);
            }
            Event::Retained(reply) => {
                let _ = reply.send(status::retained(self.machine.retained(), self.checkpoints.directory()));
            }
            Event::Cancel(reply) => {
                let accepted = !self.machine.is_terminal();
                if accepted {
                    info!(job = %self.job.id, "cancel requested");
                    self.apply(CoreEvent::Cancel);
                }
                let _ = reply.send((accepted, self.status()));
            }
            Event::Describe(reply) => {
                let _ = reply.send(self.status());
            }
        }
    }

    fn take_reports(&mut self, reports: Vec<(AttemptId, levada_common::ids::TaskId, v1::TaskReport)>) {
        let current = self.machine.attempt();
        for (attempt, task, report) in reports {
            if attempt == current {
                let (watermark, idle) = (Watermark(report.watermark_ms), report.idle);
                self.alignment.heard(task, SourceTime { watermark, idle });
                self.reports.take(task, report);
            }
        }
        self.pace_sources(current);
    }
}
