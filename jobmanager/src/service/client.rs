//! The service that clients call.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use levada_proto::v1;
use levada_proto::v1::job_manager_server::JobManager;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::watch::watch;
use crate::dispatcher::{Dispatcher, JobView, Planner, Submission};
use crate::inline_state::InlineBudget;
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

#[tonic::async_trait]
impl JobManager for ClientService {
    async fn submit_job(&self, request: Request<v1::SubmitJobRequest>) -> Result<Response<v1::SubmitJobResponse>, Status> {
        let v1::SubmitJobRequest { document, document_name, request_id, parallelism } = request.into_inner();
        let job = self.dispatcher.submit(Submission { document, document_name, request_id, parallelism }).await?;
        Ok(Response::new(v1::SubmitJobResponse { job_id: job.to_string() }))
    }

    async fn check_job(&self, request: Request<v1::CheckJobRequest>) -> Result<Response<v1::CheckJobResponse>, Status> {
        let v1::CheckJobRequest { document, document_name, parallelism } = request.into_inner();
        let submission = Submission { document, document_name, request_id: String::new(), parallelism };
        self.planner.check_sizes(&submission)?;
        let plan = self.planner.check(submission).await?;
        let plan_json = serde_json::to_string(&plan).expect("a plan has string keys only");
        Ok(Response::new(v1::CheckJobResponse { execution_graph: levada_sql::explain(&plan), plan_json }))
    }

    async fn list_jobs(&self, _: Request<v1::ListJobsRequest>) -> Result<Response<v1::ListJobsResponse>, Status> {
        let views = self.dispatcher.list().await?;
        let statuses = futures::future::join_all(views.into_iter().map(|view| self.dispatcher.status(view))).await;
        // A job that was forgotten meanwhile is not in the list any more.
        Ok(Response::new(v1::ListJobsResponse { jobs: statuses.into_iter().flatten().map(owned).collect() }))
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
