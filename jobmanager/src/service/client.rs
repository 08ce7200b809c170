//! The service that clients call.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use levada_common::ids::JobId;
use levada_common::storage::Storage;
use levada_jobmanager_core::{SavepointMode, SavepointRequest};
use levada_proto::v1;
use levada_proto::v1::job_manager_server::JobManager;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::watch::watch;
use crate::checkpoints;
use crate::dispatcher::{Checked, Dispatcher, JobView, Planner, REQUEST_ID_BYTES_MAX, Submission};
use crate::inline_state::InlineBudget;
use crate::status::state_name;
use crate::task_managers::{TaskManagers, VERSION, stopping};

/// Period of a watch: default, least, most.
const PERIOD_MS: (u32, u32, u32) = (1000, 100, 60_000);

/// `levada.v1.JobManager`.
#[derive(Clone)]
pub(crate) struct ClientService {
    pub dispatcher: Dispatcher,
    pub planner: Planner,
    pub task_managers: TaskManagers,
    pub budget: InlineBudget,
    pub epoch: u64,
    pub frame_bytes: u64,
    pub stop: CancellationToken,
}

fn owned(status: Arc<v1::JobStatus>) -> v1::JobStatus {
    Arc::unwrap_or_clone(status)
}

/// A status as it is listed, beside those of all other jobs: without what grows with the job or its age.
fn summary(status: Arc<v1::JobStatus>) -> v1::JobStatus {
    let mut status = owned(status);
    (status.tasks, status.nodes, status.savepoints) = Default::default();
    if let Some(checkpoints) = &mut status.checkpoints {
        checkpoints.history.clear();
    }
    status
}

/// What is asked for, checked; an empty request id is one of its own.
fn savepoint_request(request: v1::TriggerSavepointRequest) -> Result<SavepointRequest, Status> {
    let v1::TriggerSavepointRequest { directory, request_id, stop, drain, .. } = request;
    let bytes = request_id.len();
    if bytes > REQUEST_ID_BYTES_MAX {
        let text = format!("the request id has {bytes} bytes, the limit is {REQUEST_ID_BYTES_MAX}");
        return Err(Status::invalid_argument(text));
    }
    let mode = match (stop, drain) {
        (false, false) => SavepointMode::Continue,
        (true, false) => SavepointMode::Stop,
        (true, true) => SavepointMode::Drain,
        (false, true) => return Err(Status::invalid_argument("drain means nothing without stop")),
    };
    Storage::open(&directory).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let id = if request_id.is_empty() { JobId::generate().to_string() } else { request_id };
    Ok(SavepointRequest { id, directory, mode })
}

/// What has ended answers a request that it knows, and another stop with the savepoint that it was stopped with.
fn savepoint_of_ended(wanted: &SavepointRequest, status: &v1::JobStatus) -> Option<v1::SavepointStatus> {
    let known = status.savepoints.iter().find(|savepoint| savepoint.request_id == wanted.id);
    let stopped = |savepoint: &&v1::SavepointStatus| {
        wanted.mode.ends_job()
            && savepoint.mode != SavepointMode::Continue.name()
            && savepoint.state() == v1::SavepointState::Completed
    };
    known.or_else(|| status.savepoints.iter().find(stopped)).cloned()
}

/// A request that was refused at once is an error of the call.
fn answer_savepoint(
    savepoint: v1::SavepointStatus,
    status: &v1::JobStatus,
) -> Result<Response<v1::TriggerSavepointResponse>, Status> {
    if savepoint.state() == v1::SavepointState::Failed && savepoint.id == 0 {
        return Err(Status::failed_precondition(savepoint.failure));
    }
    Ok(Response::new(v1::TriggerSavepointResponse { savepoint: Some(savepoint), job_id: status.job_id.clone() }))
}

#[tonic::async_trait]
impl JobManager for ClientService {
    async fn submit_job(&self, request: Request<v1::SubmitJobRequest>) -> Result<Response<v1::SubmitJobResponse>, Status> {
        let v1::SubmitJobRequest { document, document_name, request_id, parallelism, from, drop_state } = request.into_inner();
        let submission = Submission { document, document_name, request_id, parallelism, from, drop_state };
        let job = self.dispatcher.submit(submission).await?;
        Ok(Response::new(v1::SubmitJobResponse { job_id: job.to_string() }))
    }

    async fn check_job(&self, request: Request<v1::CheckJobRequest>) -> Result<Response<v1::CheckJobResponse>, Status> {
        let v1::CheckJobRequest { document, document_name, parallelism, from, drop_state } = request.into_inner();
        let submission = Submission { document, document_name, request_id: String::new(), parallelism, from, drop_state };
        self.planner.check_sizes(&submission)?;
        let Checked { plan, notes, .. } = self.planner.check(submission).await?;
        let plan_json = serde_json::to_string(&plan).expect("a plan has string keys only");
        Ok(Response::new(v1::CheckJobResponse { execution_graph: levada_sql::explain(&plan), plan_json, notes }))
    }

    async fn list_jobs(&self, _: Request<v1::ListJobsRequest>) -> Result<Response<v1::ListJobsResponse>, Status> {
        let views = self.dispatcher.list().await?;
        let statuses = futures::future::join_all(views.into_iter().map(|view| self.dispatcher.status(view))).await;
        // A job that was forgotten meanwhile is not in the list any more.
        Ok(Response::new(v1::ListJobsResponse { jobs: statuses.into_iter().flatten().map(summary).collect() }))
    }

    async fn describe_job(&self, request: Request<v1::DescribeJobRequest>) -> Result<Response<v1::DescribeJobResponse>, Status> {
        let view = self.dispatcher.find(request.into_inner().job).await?;
        let status = self.dispatcher.status(view).await?;
        Ok(Response::new(v1::DescribeJobResponse { job: Some(owned(status)) }))
    }

    type WatchJobStream = Pin<Box<dyn Stream<Item = Result<v1::DescribeJobResponse, Status>> + Send>>;

    async fn watch_job(&self, request: Request<v1::WatchJobRequest>) -> Result<Response<Self::WatchJobStream>, Status> {
        let v1::WatchJobRequest { job, period_ms } = request.into_inner();
        let (default, least, most) = PERIOD_MS;
        let period_ms = if period_ms == 0 { default } else { period_ms };
        if !(least..=most).contains(&period_ms) {
            return Err(Status::invalid_argument(format!("period_ms is {period_ms}; allowed: 0 or {least} to {most}")));
        }
        let view = self.dispatcher.find(job).await?;
        let period = Duration::from_millis(period_ms.into());
        Ok(Response::new(Box::pin(watch(self.dispatcher.clone(), view, period, self.stop.clone()))))
    }

    async fn cancel_job(&self, request: Request<v1::CancelJobRequest>) -> Result<Response<v1::CancelJobResponse>, Status> {
        let view = self.dispatcher.find(request.into_inner().job).await?;
        if let JobView::Driven(driver) = &view
            && let Some((accepted, status)) = driver.cancel().await
        {
            return Ok(Response::new(v1::CancelJobResponse { accepted, job: Some(status) }));
        }
        let status = self.dispatcher.status(view).await?;
        Ok(Response::new(v1::CancelJobResponse { accepted: false, job: Some(owned(status)) }))
    }

    async fn trigger_savepoint(
        &self,
        request: Request<v1::TriggerSavepointRequest>,
    ) -> Result<Response<v1::TriggerSavepointResponse>, Status> {
        let request = request.into_inner();
        let view = self.dispatcher.find(request.job.clone()).await?;
        let wanted = savepoint_request(request)?;
        if let JobView::Driven(driver) = &view {
            let directory = wanted.directory.as_str();
            checkpoints::probe(directory).await.map_err(|cause| {
                Status::failed_precondition(format!("the savepoint directory \"{directory}\" cannot be used: {cause}"))
            })?;
            if let Some(answer) = driver.savepoint(wanted.clone()).await {
                let savepoint = answer.ok_or_else(|| Status::resource_exhausted("too many savepoints of this job wait"))?;
                return answer_savepoint(savepoint, &*self.dispatcher.status(view).await?);
            }
        }
        let status = self.dispatcher.status(view).await?;
        match savepoint_of_ended(&wanted, &status) {
            Some(savepoint) => answer_savepoint(savepoint, &status),
            None => Err(Status::failed_precondition(format!("the job has ended: it is {}", state_name(&status)))),
        }
    }

    async fn trigger_checkpoint(
        &self,
        request: Request<v1::TriggerCheckpointRequest>,
    ) -> Result<Response<v1::TriggerCheckpointResponse>, Status> {
        let view = self.dispatcher.find(request.into_inner().job).await?;
        let answer = match &view {
            JobView::Driven(driver) => driver.checkpoint().await,
            JobView::Ended(_) => None,
        };
        let status = self.dispatcher.status(view).await?;
        let ended = || Err(format!("the job has ended: it is {}", state_name(&status)));
        let least = answer.unwrap_or_else(ended).map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::TriggerCheckpointResponse { job_id: status.job_id.clone(), checkpoint_id: least.0 }))
    }

    async fn list_checkpoints(
        &self,
        request: Request<v1::ListCheckpointsRequest>,
    ) -> Result<Response<v1::ListCheckpointsResponse>, Status> {
        let view = self.dispatcher.find(request.into_inner().job).await?;
        if let JobView::Driven(driver) = &view
            && let Some(checkpoints) = driver.retained().await
        {
            return Ok(Response::new(v1::ListCheckpointsResponse { checkpoints }));
        }
        let status = self.dispatcher.status(view).await?;
        let text = format!("the job has ended: it is {}; what it left is in its folder in checkpoint.dir", state_name(&status));
        Err(Status::failed_precondition(text))
    }

    async fn describe_cluster(
        &self,
        _: Request<v1::DescribeClusterRequest>,
    ) -> Result<Response<v1::DescribeClusterResponse>, Status> {
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        Ok(Response::new(v1::DescribeClusterResponse {
            version: VERSION.into(),
            epoch: self.epoch,
            task_managers: self.task_managers.describe().await,
            frame_size_bytes: self.frame_bytes,
            inline_budget_bytes: self.budget.limit_bytes(),
            inline_used_bytes: self.budget.used_bytes(),
        }))
    }
}
