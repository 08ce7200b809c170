//! The dispatcher's loop.

use std::collections::HashMap;
use std::sync::Arc;

use levada_common::ids::JobId;
use levada_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tonic::Status;
use tracing::{info, warn};

use super::jobs::Jobs;
use super::refusal::Refusal;
use super::submission::Accepted;
use super::{Dispatcher, Event, JobView, Planner, Submission};
use crate::driver::{self, Context, Job};

/// Events that wait for the dispatcher.
const INBOX: usize = 1024;

/// How many jobs there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub running_max: usize,
    pub ended_max: usize,
}

type Reply = oneshot::Sender<Result<JobId, Status>>;

/// Which submission: those with the same request id are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Request(String),
    Anonymous(u64),
}

/// What was done beside the loop.
enum Done {
    Planned { key: Key, result: Result<Accepted, Refusal> },
    Ended { job: JobId, status: Arc<v1::JobStatus> },
}

/// The owner of all jobs.
pub(crate) struct Loop {
    inbox: mpsc::Receiver<Event>,
    planner: Planner,
    context: Context,
    limits: Limits,
    jobs: Jobs,
    /// Submissions that are being planned, and who waits for each.
    planning: HashMap<Key, Vec<Reply>>,
    next_anonymous: u64,
    work: JoinSet<Done>,
}

impl Loop {
    /// A dispatcher without jobs.
    pub(crate) fn new(planner: Planner, context: Context, limits: Limits) -> (Self, Dispatcher) {
        let (tx, inbox) = mpsc::channel(INBOX);
        let jobs = Jobs::new(limits.ended_max);
        let planning = HashMap::new();
        let this = Self { inbox, planner, context, limits, jobs, planning, next_anonymous: 0, work: JoinSet::new() };
        (this, Dispatcher { tx })
    }

    /// Runs until the JobManager stops and every driver has ended.
    pub(crate) async fn run(mut self) {
        let stop = self.context.stop.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.inbox.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
                Some(done) = self.work.join_next() => self.done(done.expect("neither drivers nor planning panic")),
            }
        }
        while let Some(done) = self.work.join_next().await {
            if let Ok(Done::Ended { job, .. }) = done {
                info!(%job, "driver stopped");
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Submit { submission, reply } => self.submit(submission, reply),
            Event::Find { job, reply } => {
                let found = self.jobs.find(&job).cloned().map_err(|error| Status::not_found(error.to_string()));
                let _ = reply.send(found);
            }
            Event::Driver { job, reply } => {
                let driver = match self.jobs.get(job) {
                    Some(JobView::Driven(driver)) => Some(driver.clone()),
                    _ => None,
                };
                let _ = reply.send(driver);
            }
            Event::List(reply) => {
                let _ = reply.send(self.jobs.all().cloned().collect());
            }
        }
    }

    fn submit(&mut self, submission: Submission, reply: Reply) {
        if let Some(job) = self.jobs.of_request(&submission.request_id) {
            let _ = reply.send(Ok(job));
            return;
        }
        let limit = self.limits.running_max;
        let jobs = self.jobs.running() + self.planning.len();
        let checked = self.planner.check_sizes(&submission);
        if let Err(refusal) = checked.and(if jobs < limit { Ok(()) } else { Err(Refusal::TooManyJobs { jobs, limit }) }) {
            let _ = reply.send(Err(refusal.into()));
            return;
        }
        let key = self.key(&submission.request_id);
        let waiting = self.planning.entry(key.clone()).or_default();
        waiting.push(reply);
        if waiting.len() == 1 {
            let planner = self.planner.clone();
            self.work.spawn(async move { Done::Planned { key, result: planner.accept(submission).await } });
        }
    }

    fn key(&mut self, request_id: &str) -> Key {
        if request_id.is_empty() {
            self.next_anonymous += 1;
            Key::Anonymous(self.next_anonymous)
        } else {
            Key::Request(request_id.into())
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Planned { key, result } => {
                let replies = self.planning.remove(&key).unwrap_or_default();
                let answer = match result {
                    Ok(accepted) => self.start(key, accepted).map_err(Status::from),
                    Err(refusal) => Err(Status::from(refusal)),
                };
                for reply in replies {
                    let _ = reply.send(answer.clone());
                }
            }
            Done::Ended { job, status } => self.jobs.end(job, status),
        }
    }

    /// Starts the job. Errors: the inline state of what it begins with does not fit; the job does not exist then.
    fn start(&mut self, key: Key, accepted: Accepted) -> Result<JobId, Refusal> {
        let id = JobId::generate();
        self.reserve(id, &accepted)?;
        let name = accepted.plan.name.clone();
        for warning in &accepted.plan.warnings {
            warn!(job = %id, name, "{warning}");
        }
        for note in &accepted.notes {
            info!(job = %id, name, "{note}");
        }
        let submitted_at_ms = self.context.clock.wall_ms();
        let Accepted { plan, splits, base, .. } = accepted;
        let job = Job { id, submitted_at_ms, plan, splits, base };
        let (handle, running) = driver::spawn(self.context.clone(), job);
        let request_id = match key {
            Key::Request(id) => id,
            Key::Anonymous(_) => String::new(),
        };
        self.jobs.insert(id, name, request_id, JobView::Driven(handle));
        self.work.spawn(async move { Done::Ended { job: id, status: running.await } });
        Ok(id)
    }

    /// Takes into account what a job begins with, as far as it stays in this process until the job has a checkpoint of its own.
    fn reserve(&self, job: JobId, accepted: &Accepted) -> Result<(), Refusal> {
        let Some(metadata) = accepted.base.as_ref().map(|base| &base.metadata) else { return Ok(()) };
        let budget = &self.context.budget;
        let reserved = metadata.tasks.iter().try_for_each(|snapshot| budget.reserve(job, metadata.id, snapshot));
        reserved.map_err(|reason| {
            budget.release_job(job);
            Refusal::InlineBudget(reason.to_string())
        })
    }
}
