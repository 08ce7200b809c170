//! The jobs of this JobManager: one loop owns which there are, who drives each, and what became of those that ended.
//!
//! Must never know: how a job runs.

mod jobs;
mod refusal;
mod run;
mod submission;

use std::sync::Arc;

use levada_common::ids::JobId;
use levada_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

pub(crate) use run::{Limits, Loop};
pub(crate) use submission::{Checked, Planner, REQUEST_ID_BYTES_MAX, Submission};

use crate::driver::DriverHandle;
use crate::task_managers::stopping;

/// A job, driven or ended.
#[derive(Debug, Clone)]
pub(crate) enum JobView {
    Driven(DriverHandle),
    Ended(Arc<v1::JobStatus>),
}

/// What the dispatcher hears.
enum Event {
    Submit { submission: Submission, reply: oneshot::Sender<Result<JobId, Status>> },
    Find { job: String, reply: oneshot::Sender<Result<JobView, Status>> },
    Driver { job: JobId, reply: oneshot::Sender<Option<DriverHandle>> },
    List(oneshot::Sender<Vec<JobView>>),
}

/// The dispatcher as others see it.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    tx: mpsc::Sender<Event>,
}

impl Dispatcher {
    async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.tx.send(event(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }

    /// Checks and starts a job.
    pub(crate) async fn submit(&self, submission: Submission) -> Result<JobId, Status> {
        self.ask(|reply| Event::Submit { submission, reply }).await?
    }

    /// The job of this id or name.
    pub(crate) async fn find(&self, job: String) -> Result<JobView, Status> {
        self.ask(|reply| Event::Find { job, reply }).await?
    }

    /// The driver of a job, where it has one.
    pub(crate) async fn driver(&self, job: JobId) -> Option<DriverHandle> {
        self.ask(|reply| Event::Driver { job, reply }).await.ok().flatten()
    }

    /// All jobs, newest first.
    pub(crate) async fn list(&self) -> Result<Vec<JobView>, Status> {
        self.ask(Event::List).await
    }

    /// The status of a job that was looked up.
    pub(crate) async fn status(&self, view: JobView) -> Result<Arc<v1::JobStatus>, Status> {
        match view {
            JobView::Ended(status) => Ok(status),
            JobView::Driven(driver) => driver.describe().await.ok_or_else(stopping),
        }
    }
}
