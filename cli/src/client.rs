//! The JobManager as the command line sees it: the generated client, with errors that a person can read.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use levada_proto::v1::job_manager_client::JobManagerClient;
use levada_proto::v1::{
    CancelJobRequest, CheckJobRequest, CheckpointStatus, DescribeClusterRequest, DescribeClusterResponse, DescribeJobRequest,
    JobState, JobStatus, ListCheckpointsRequest, ListJobsRequest, RetainedCheckpoint, SavepointState, SavepointStatus,
    SubmitJobRequest, TriggerCheckpointRequest, TriggerCheckpointResponse, TriggerSavepointRequest, WatchJobRequest,
};
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a lost JobManager is looked for again while a job is watched.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);

/// Times that a call is sent again.
const REPEATS_MAX: u32 = 3;

/// How long a lost JobManager is looked for.
const RECONNECT_FOR: Duration = Duration::from_secs(30);

/// Between two looks at a checkpoint or savepoint under way.
const SNAPSHOT_LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a job begins with.
#[derive(Debug, Clone, Default)]
pub struct RestoreFrom {
    /// URI of a savepoint, a checkpoint, or a job's checkpoint directory; empty = nothing.
    pub from: String,
    /// State of it to be left behind, each UID or UID/NAME.
    pub drop_state: Vec<String>,
}

/// What becomes of a job of which a savepoint is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It goes on.
    GoesOn,
    /// It ends; windows that are open stay in the savepoint.
    Stops,
    /// It ends; sources end first, and every window fires.
    Drains,
}

/// A connection to a JobManager.
#[derive(Clone)]
pub struct Client {
    address: String,
    inner: JobManagerClient<Channel>,
}

/// Whether the state is one that a job never leaves.
pub fn is_terminal(state: JobState) -> bool {
    matches!(state, JobState::Finished | JobState::Failed | JobState::Canceled)
}

/// The state as people read it.
pub fn state_name(state: JobState) -> &'static str {
    state.as_str_name().trim_start_matches("JOB_STATE_")
}

fn readable(status: &Status) -> anyhow::Error {
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::ResourceExhausted | Code::AlreadyExists => {
            anyhow!("{}", status.message())
        }
        code => anyhow!("{code:?}: {}", status.message()),
    }
}

/// Calls that carry a request id, of which one thing comes however often they are sent, are sent again a few times.
#[derive(Default)]
struct Repeats(u32);

impl Repeats {
    /// Waits until the call may be sent again.
    ///
    /// Errors: the call's own, where the JobManager was reached, or has not been too often.
    async fn wait(&mut self, status: Status) -> anyhow::Result<()> {
        if status.code() != Code::Unavailable || self.0 == REPEATS_MAX {
            return Err(readable(&status));
        }
        self.0 += 1;
        tokio::time::sleep(RECONNECT_EVERY).await;
        Ok(())
    }
}

impl Client {
    /// Connects to `address` (`host:port`).
    pub async fn connect(address: &str) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .with_context(|| format!("\"{address}\" is not host:port (an IPv6 address stands in brackets: [::1]:6123)"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_while_idle(true);
        let channel = endpoint
            .connect()
            .await
            .with_context(|| format!("no JobManager answers at {address}; is it running, and is --jobmanager right?"))?;
        Ok(Self { address: address.into(), inner: JobManagerClient::new(channel).max_decoding_message_size(64 << 20) })
    }

    /// Submits a document; answers the job's id.
    ///
    /// Sent again under the same request id where the connection broke, so that one job comes of it.
    pub async fn submit(&mut self, document: &str, document_name: &str, parallelism: u32) -> anyhow::Result<String> {
        self.submit_from(document, document_name, parallelism, RestoreFrom::default()).await
    }

    /// As `submit`, restored from a snapshot.
    pub async fn submit_from(
        &mut self,
        document: &str,
        document_name: &str,
        parallelism: u32,
        restore: RestoreFrom,
    ) -> anyhow::Result<String> {
        let request = SubmitJobRequest {
            document: document.into(),
            document_name: document_name.into(),
            request_id: uuid::Uuid::new_v4().simple().to_string(),
            parallelism,
            from: restore.from,
            drop_state: restore.drop_state,
        };
        let mut repeats = Repeats::default();
        loop {
            match self.inner.submit_job(request.clone()).await {
                Ok(response) => return Ok(response.into_inner().job_id),
                Err(status) => repeats.wait(status).await?,
            }
        }
    }

    /// Checks a document; answers its execution graph and its plan as JSON.
    pub async fn check(&mut self, document: &str, document_name: &str, parallelism: u32) -> anyhow::Result<(String, String)> {
        let (document, document_name) = (document.into(), document_name.into());
        let request = CheckJobRequest { document, document_name, parallelism, ..CheckJobRequest::default() };
        let response = self.inner.check_job(request).await.map_err(|status| readable(&status))?.into_inner();
        Ok((response.execution_graph, response.plan_json))
    }

    /// Asks for a savepoint of a job below the directory of this URI. Answers the job's id and the savepoint as it is now: the one
    /// asked for, or the one that ends the job already.
    ///
    /// Sent again under the same request id where the connection broke, so that one savepoint comes of it.
    pub async fn trigger_savepoint(
        &mut self,
        job: &str,
        directory: &str,
        request_id: &str,
        afterwards: Afterwards,
    ) -> anyhow::Result<(String, SavepointStatus)> {
        let request = TriggerSavepointRequest {
            job: job.into(),
            directory: directory.into(),
            request_id: request_id.into(),
            stop: afterwards != Afterwards::GoesOn,
            drain: afterwards == Afterwards::Drains,
        };
        let mut repeats = Repeats::default();
        let response = loop {
            match self.inner.trigger_savepoint(request.clone()).await {
                Ok(response) => break response.into_inner(),
                Err(status) => repeats.wait(status).await?,
            }
        };
        let savepoint = response.savepoint.context("the JobManager answered without a savepoint")?;
        Ok((response.job_id, savepoint))
    }

    /// Takes a savepoint and waits for its end. Errors: it failed.
    pub async fn savepoint(&mut self, job: &str, directory: &str, afterwards: Afterwards) -> anyhow::Result<SavepointStatus> {
        let request_id = uuid::Uuid::new_v4().simple().to_string();
        let (job, mut savepoint) = self.trigger_savepoint(job, directory, &request_id, afterwards).await?;
        loop {
            match savepoint.state() {
                SavepointState::Completed => return Ok(savepoint),
                SavepointState::Failed => bail!("the savepoint of job {job} failed: {}", savepoint.failure),
                _ => tokio::time::sleep(SNAPSHOT_LOOK_EVERY).await,
            }
            let status = self.describe(&job).await?;
            let known = status.savepoints.into_iter().find(|known| known.request_id == savepoint.request_id);
            savepoint = known.with_context(|| format!("job {job} has forgotten its savepoint {}", savepoint.request_id))?;
        }
    }

    /// Takes a checkpoint and waits for its end. Errors: it failed.
    pub async fn checkpoint(&mut self, job: &str) -> anyhow::Result<CheckpointStatus> {
        let response = self.inner.trigger_checkpoint(TriggerCheckpointRequest { job: job.into() }).await;
        let TriggerCheckpointResponse { job_id, checkpoint_id } = response.map_err(|status| readable(&status))?.into_inner();
        loop {
            let status = self.describe(&job_id).await?;
            let is_terminal = is_terminal(status.state());
            let history = status.checkpoints.unwrap_or_default().history;
            match history.into_iter().rev().find(|ended| !ended.savepoint && ended.id >= checkpoint_id) {
                Some(ended) if ended.failure.is_empty() => return Ok(ended),
                Some(ended) => bail!("checkpoint {} of job {job_id} failed: {}", ended.id, ended.failure),
                None if is_terminal => bail!("job {job_id} ended before its checkpoint began"),
                None => tokio::time::sleep(SNAPSHOT_LOOK_EVERY).await,
            }
        }
    }

    /// The completed checkpoints of a job that are kept, newest first.
    pub async fn checkpoints(&mut self, job: &str) -> anyhow::Result<Vec<RetainedCheckpoint>> {
        let response = self.inner.list_checkpoints(ListCheckpointsRequest { job: job.into() }).await;
        Ok(response.map_err(|status| readable(&status))?.into_inner().checkpoints)
    }

    /// All jobs.
    pub async fn list(&mut self) -> anyhow::Result<Vec<JobStatus>> {
        Ok(self.inner.list_jobs(ListJobsRequest {}).await.map_err(|status| readable(&status))?.into_inner().jobs)
    }

    /// One job, by id or name.
    pub async fn describe(&mut self, job: &str) -> anyhow::Result<JobStatus> {
        let response = self.inner.describe_job(DescribeJobRequest { job: job.into() }).await;
        response.map_err(|status| readable(&status))?.into_inner().job.context("the JobManager answered without a job")
    }

    /// The cluster.
    pub async fn describe_cluster(&mut self) -> anyhow::Result<DescribeClusterResponse> {
        let response = self.inner.describe_cluster(DescribeClusterRequest {}).await;
        Ok(response.map_err(|status| readable(&status))?.into_inner())
    }

    /// Cancels a job; `false` where it had ended already.
    pub async fn cancel(&mut self, job: &str) -> anyhow::Result<(bool, JobStatus)> {
        let response = self.inner.cancel_job(CancelJobRequest { job: job.into() }).await.map_err(|status| readable(&status))?;
        let response = response.into_inner();
        Ok((response.accepted, response.job.context("the JobManager answered without a job")?))
    }

    /// Shows every status of a job to `each` until it is terminal, and answers the last.
    ///
    /// A JobManager that is lost on the way is looked for again for 30 seconds.
    pub async fn watch(&mut self, job: &str, period_ms: u32, mut each: impl FnMut(&JobStatus)) -> anyhow::Result<JobStatus> {
        let mut lost_at: Option<tokio::time::Instant> = None;
        loop {
            match self.inner.watch_job(WatchJobRequest { job: job.into(), period_ms }).await {
                Ok(response) => {
                    lost_at = None;
                    let mut statuses = response.into_inner();
                    while let Some(Ok(message)) = statuses.next().await {
                        let Some(status) = message.job else { continue };
                        each(&status);
                        if is_terminal(status.state()) {
                            return Ok(status);
                        }
                    }
                }
                Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) => {}
                Err(status) => return Err(readable(&status)),
            }
            let since = *lost_at.get_or_insert_with(tokio::time::Instant::now);
            if since.elapsed() > RECONNECT_FOR {
                bail!("lost the JobManager at {} and could not reach it again for {} s", self.address, RECONNECT_FOR.as_secs());
            }
            tokio::time::sleep(RECONNECT_EVERY).await;
        }
    }
}
