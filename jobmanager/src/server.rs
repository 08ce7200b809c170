//! The whole JobManager: its loops, its servers, their start and their end.

use std::net::SocketAddr;
use std::time::Duration;

use levada_common::config::{HostPort, JobManagerConfig};
use levada_common::declaration::Declarations;
use levada_common::ids::Epoch;
use levada_common::keep_alive::KeepAlive;
use levada_proto::FILE_DESCRIPTOR_SET;
use levada_proto::v1::cluster_server::ClusterServer;
use levada_proto::v1::job_manager_server::JobManagerServer;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::server::TcpIncoming;
use tracing::{error, info};

use crate::clock::Clock;
use crate::dispatcher::{Limits, Loop, Planner};
use crate::driver::Context;
use crate::error::JobManagerError;
use crate::http;
use crate::inline_state::InlineBudget;
use crate::service::{ClientService, ClusterService};
use crate::task_managers::Registry;

/// Without an HA store there is one leader, ever.
const EPOCH: Epoch = Epoch(1);

/// HTTP/2 windows: acknowledgements of several tasks share a connection.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;

/// Calls that one connection may have open.
const STREAMS_MAX: u32 = 4096;

/// Largest job graph, in bytes of text; never more than a frame.
const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Jobs that may run at a time.
const RUNNING_JOBS_MAX: usize = 1000;

/// Jobs that ended and are remembered, with their request ids.
const ENDED_JOBS_MAX: usize = 1000;

/// How long the parts of a stopping JobManager are waited for, each.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A JobManager.
pub struct JobManager;

/// A running JobManager. It stops when `shutdown` is called or this is dropped.
pub struct JobManagerHandle {
    grpc: SocketAddr,
    http: SocketAddr,
    /// Cancelled first: jobs end.
    stop: CancellationToken,
    /// Cancelled then: TaskManagers are let go, servers end.
    stop_servers: CancellationToken,
    readers: TaskTracker,
    dispatcher: JoinSet<()>,
    rest: JoinSet<&'static str>,
}

impl JobManager {
    /// Starts a JobManager on the current runtime, which should be its own: what computes belongs on another.
    ///
    /// `declarations` are the connectors built in; TaskManagers bring their own with their registration.
    /// Errors: `Listen` where a port cannot be had.
    pub async fn start(config: JobManagerConfig, declarations: Declarations) -> Result<JobManagerHandle, JobManagerError> {
        config.storage.install();
        let grpc_listener = listen("gRPC", &config.bind, config.port).await?;
        let http_listener = listen("HTTP", &config.bind, config.http_port).await?;
        let (grpc, http) = (local_address("gRPC", &grpc_listener)?, local_address("HTTP", &http_listener)?);

        let (stop, stop_servers) = (CancellationToken::new(), CancellationToken::new());
        let clock = Clock::start();
        let frame_bytes = config.frame_size_bytes;
        let budget = InlineBudget::new(config.inline_budget_bytes);
        let (registry, task_managers) = Registry::new(clock, millis(config.heartbeat_timeout), declarations);
        let context = Context {
            clock,
            epoch: EPOCH,
            frame_bytes,
            budget: budget.clone(),
            task_managers: task_managers.clone(),
            stop: stop.clone(),
        };
        let planner = Planner::new(task_managers.clone(), DOCUMENT_BYTES_MAX);
        let limits = Limits { running_max: RUNNING_JOBS_MAX, ended_max: ENDED_JOBS_MAX };
        let (dispatcher_loop, dispatcher) = Loop::new(planner.clone(), context, limits);

        let readers = TaskTracker::new();
        let client = ClientService {
            dispatcher: dispatcher.clone(),
            planner,
            task_managers: task_managers.clone(),
            budget: budget.clone(),
            epoch: EPOCH.0,
            frame_bytes,
            stop: stop.clone(),
        };
        let cluster = ClusterService {
            dispatcher: dispatcher.clone(),
            task_managers: task_managers.clone(),
            epoch: EPOCH.0,
            frame_bytes,
            heartbeat_interval_ms: millis(config.heartbeat_interval),
            heartbeat_timeout_ms: millis(config.heartbeat_timeout),
            readers: readers.clone(),
            stop: stop_servers.clone(),
        };
        let routes = routes(client, cluster, usize::try_from(frame_bytes).unwrap_or(usize::MAX)).await?;
        let shown = http::Shown { dispatcher: dispatcher.clone(), task_managers, budget };

        let mut dispatchers = JoinSet::new();
        dispatchers.spawn(dispatcher_loop.run());
        let mut rest = JoinSet::new();
        rest.spawn(until("registry", registry.run(stop_servers.clone())));
        let keep_alive = KeepAlive::of(config.heartbeat_timeout);
        rest.spawn(until("gRPC server", serve_grpc(grpc_listener, routes, keep_alive, stop_servers.clone())));
        rest.spawn(until("HTTP server", serve_http(http_listener, shown, stop_servers.clone())));
        let reached_at = HostPort::new(&config.advertise, grpc.port());
        info!(%grpc, %http, %reached_at, version = env!("CARGO_PKG_VERSION"), "JobManager started");
        Ok(JobManagerHandle { grpc, http, stop, stop_servers, readers, dispatcher: dispatchers, rest })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn until(what: &'static str, running: impl Future<Output = ()>) -> &'static str {
    running.await;
    what
}

async fn listen(what: &'static str, host: &str, port: u16) -> Result<TcpListener, JobManagerError> {
    TcpListener::bind((host, port)).await.map_err(|source| JobManagerError::Listen {
        what,
        address: format!("{host}:{port}"),
        source,
    })
}

fn local_address(what: &'static str, listener: &TcpListener) -> Result<SocketAddr, JobManagerError> {
    listener.local_addr().map_err(|source| JobManagerError::Listen { what, address: "?".into(), source })
}

/// The services: ours, health, reflection. A message is at most a frame.
async fn routes(client: ClientService, cluster: ClusterService, frame_bytes: usize) -> Result<Routes, JobManagerError> {
    let client = JobManagerServer::new(client).max_decoding_message_size(frame_bytes);
    let cluster = ClusterServer::new(cluster).max_decoding_message_size(frame_bytes).max_encoding_message_size(frame_bytes);
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<JobManagerServer<ClientService>>().await;
    health.set_serving::<ClusterServer<ClusterService>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(client)
        .add_service(cluster)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(routes.routes())
}

async fn serve_grpc(listener: TcpListener, routes: Routes, keep_alive: KeepAlive, stop: CancellationToken) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(keep_alive.interval))
        .http2_keepalive_timeout(Some(keep_alive.timeout))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await;
    if let Err(failure) = served {
        error!("gRPC server: {failure}");
    }
}

async fn serve_http(listener: TcpListener, shown: http::Shown, stop: CancellationToken) {
    if let Err(failure) = axum::serve(listener, http::router(shown)).with_graceful_shutdown(stop.cancelled_owned()).await {
        error!("HTTP server: {failure}");
    }
}

impl JobManagerHandle {
    /// Where gRPC is served.
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc
    }

    /// Where HTTP is served.
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Waits until a part of the JobManager ends by itself, which none should.
    pub async fn failed(&mut self) -> JobManagerError {
        tokio::select! {
            _ = self.dispatcher.join_next() => JobManagerError::LoopEnded { what: "dispatcher" },
            ended = self.rest.join_next() => {
                let what = ended.and_then(Result::ok).unwrap_or("registry or a server");
                JobManagerError::LoopEnded { what }
            }
        }
    }

    /// Stops: jobs' tasks are told to end, TaskManagers are let go, servers finish what they answer.
    pub async fn shutdown(mut self) {
        info!("JobManager is stopping");
        self.stop.cancel();
        wait("jobs", async { while self.dispatcher.join_next().await.is_some() {} }).await;
        self.stop_servers.cancel();
        self.readers.close();
        wait("streams of TaskManagers", self.readers.wait()).await;
        wait("servers", async { while self.rest.join_next().await.is_some() {} }).await;
        info!("JobManager stopped");
    }
}

impl Drop for JobManagerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        self.stop_servers.cancel();
    }
}

async fn wait(what: &str, ending: impl Future<Output = ()>) {
    if tokio::time::timeout(STOP_TIMEOUT, ending).await.is_err() {
        info!("{what} did not end within {} s", STOP_TIMEOUT.as_secs());
    }
}
