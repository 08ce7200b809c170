//! The service that TaskManagers call.

use std::pin::Pin;

use futures::{Stream, stream};
use levada_common::ids::CheckpointId;
use levada_proto::convert::{self, ConvertError};
use levada_proto::v1::cluster_server::Cluster;
use levada_proto::{PROTOCOL, encoded_len, v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use tracing::warn;

use crate::dispatcher::Dispatcher;
use crate::driver::Acknowledgement;
use crate::task_managers::{self, TaskManagers, VERSION};

/// Largest piece of a state on its way to a TaskManager, in bytes.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Commands that may wait for one TaskManager.
const OUTGOING_MAX: usize = 1024;

/// Time in which a TaskManager must greet.
const HELLO_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// `levada.v1.Cluster`.
#[derive(Clone)]
pub(crate) struct ClusterService {
    pub dispatcher: Dispatcher,
    pub task_managers: TaskManagers,
    pub epoch: u64,
    pub frame_bytes: u64,
    pub heartbeat_interval_ms: u64,
    pub heartbeat_timeout_ms: u64,
    /// The readers of TaskManagers' streams.
    pub readers: TaskTracker,
    /// Cancelled when TaskManagers are to be let go.
    pub stop: CancellationToken,
}

fn invalid(error: ConvertError) -> Status {
    Status::invalid_argument(error.to_string())
}

type Commands = Pin<Box<dyn Stream<Item = Result<v1::ToTaskManager, Status>> + Send>>;
type Chunks = Pin<Box<dyn Stream<Item = Result<v1::StateChunk, Status>> + Send>>;

#[tonic::async_trait]
impl Cluster for ClusterService {
    type RegisterStream = Commands;

    async fn register(&self, request: Request<Streaming<v1::FromTaskManager>>) -> Result<Response<Commands>, Status> {
        let peer = request.remote_addr().map(|address| address.to_string()).unwrap_or_default();
        let mut messages = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, messages.message())
            .await
            .map_err(|_| Status::deadline_exceeded("the TaskManager did not greet in time"))??;
        let Some(v1::from_task_manager::Message::Hello(hello)) = first.and_then(|message| message.message) else {
            return Err(Status::invalid_argument("the first message must be the greeting"));
        };
        let introduction = task_managers::accept(&hello).inspect_err(|status| {
            warn!(peer, address = hello.data_address, "TaskManager refused: {}", status.message());
        })?;
        let (outgoing, commands) = mpsc::channel(OUTGOING_MAX);
        let welcome = v1::to_task_manager::Message::Welcome(self.welcome());
        outgoing.try_send(Ok(v1::ToTaskManager { message: Some(welcome) })).expect("the queue is new");
        let stop = self.stop.child_token();
        let registration = self.task_managers.register(introduction, outgoing.clone(), stop.clone()).await?;
        let owners = (self.task_managers.clone(), self.dispatcher.clone());
        self.readers.spawn(task_managers::serve(registration, messages, outgoing, stop, owners));
        // It ends, drained, once everyone who could send has gone.
        Ok(Response::new(Box::pin(ReceiverStream::new(commands))))
    }

    async fn acknowledge_checkpoint(
        &self,
        request: Request<v1::AcknowledgeCheckpointRequest>,
    ) -> Result<Response<v1::AcknowledgeCheckpointResponse>, Status> {
        let request = request.into_inner();
        let message_bytes = encoded_len(&request);
        let (attempt, task) = convert::task_from_ref(request.task.as_ref()).map_err(invalid)?;
        let snapshot = v1::TaskSnapshotMessage {
            vertex: task.vertex.0,
            subtask: task.subtask.0,
            finished: request.finished,
            states: request.states,
        };
        let snapshot = convert::snapshot_from_message(snapshot).map_err(invalid)?;
        let checkpoint = CheckpointId(request.checkpoint);
        let accepted = match self.dispatcher.driver(attempt.job).await {
            Some(driver) => driver.acknowledge(Acknowledgement { attempt, checkpoint, snapshot, message_bytes }).await,
            None => false,
        };
        Ok(Response::new(v1::AcknowledgeCheckpointResponse { accepted }))
    }

    async fn decline_checkpoint(
        &self,
        request: Request<v1::DeclineCheckpointRequest>,
    ) -> Result<Response<v1::DeclineCheckpointResponse>, Status> {
        let request = request.into_inner();
        let (attempt, task) = convert::task_from_ref(request.task.as_ref()).map_err(invalid)?;
        let reason = convert::decline_from_json(&request.reason_json).map_err(invalid)?;
        if let Some(driver) = self.dispatcher.driver(attempt.job).await {
            driver.decline(attempt, CheckpointId(request.checkpoint), task, reason).await;
        }
        Ok(Response::new(v1::DeclineCheckpointResponse {}))
    }

    type FetchStateStream = Chunks;

    async fn fetch_state(&self, request: Request<v1::FetchStateRequest>) -> Result<Response<Chunks>, Status> {
        let v1::FetchStateRequest { attempt, inline_id } = request.into_inner();
        let attempt = convert::attempt_from_ref(attempt.as_ref()).map_err(invalid)?;
        let bytes = match self.dispatcher.driver(attempt.job).await {
            Some(driver) => driver.fetch_state(attempt, inline_id).await,
            None => None,
        };
        let bytes = bytes.ok_or_else(|| Status::not_found(format!("{attempt} has no inline state {inline_id} to fetch")))?;
        // An empty state is no chunk at all.
        let starts = (0..bytes.len()).step_by(CHUNK_BYTES_MAX);
        let chunks = starts.map(move |start| {
            let data = bytes.slice(start..bytes.len().min(start + CHUNK_BYTES_MAX));
            Ok(v1::StateChunk { data })
        });
        Ok(Response::new(Box::pin(stream::iter(chunks))))
    }
}

impl ClusterService {
    fn welcome(&self) -> v1::Welcome {
        v1::Welcome {
            version: VERSION.into(),
            protocol: PROTOCOL,
            epoch: self.epoch,
            heartbeat_interval_ms: self.heartbeat_interval_ms,
            heartbeat_timeout_ms: self.heartbeat_timeout_ms,
            frame_size_bytes: self.frame_bytes,
        }
    }
}
