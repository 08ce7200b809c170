//! The data port: takes the streams that other TaskManagers push, and answers health and reflection.
//!
//! Back-pressure is a stream that is not read: its HTTP/2 window fills, those of other streams do not. Invariant: a claimed
//! channel that ends in any way but with `EndOfData` fails its task, unless the attempt is being cancelled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use levada_common::ids::AttemptId;
use levada_common::keep_alive::KeepAlive;
use levada_proto::convert;
use levada_proto::frame::{self, DataExchange, DataExchangeServer, Frame};
use levada_proto::{FILE_DESCRIPTOR_SET, PROTOCOL, v1};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::frame::is_end_of_data;
use super::preface;
use super::registry::{Inbound, Registry};
use super::remote::ChannelKey;
use super::{CONNECTION_WINDOW_BYTES, STREAMS_MAX, channel_window};
use crate::rpc::status_text;

/// Time that a stream has for its first message, and a connection for its first bytes.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a stream waits for its receiver to be deployed.
const RECEIVER_PATIENCE: Duration = Duration::from_secs(60);

/// The service behind the data port.
struct Exchange {
    registry: Arc<Registry>,
}

/// A claimed channel; dropping it before the end of data is a failure.
struct Claimed {
    inbound: Inbound,
    ended: bool,
    how: String,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if !self.ended && !self.inbound.cancelled.is_cancelled() {
            self.inbound.inbox.fail(self.inbound.name.broken(&self.how));
        }
    }
}

impl Claimed {
    fn new(inbound: Inbound) -> Self {
        Self { inbound, ended: false, how: "the stream was reset".into() }
    }

    /// Takes frames until the end of data.
    async fn receive(&mut self, mut frames: Streaming<Bytes>) -> Result<(), Status> {
        loop {
            match frames.message().await {
                Ok(Some(frame)) => {
                    let last = is_end_of_data(&frame);
                    self.inbound.queue.push(frame).await;
                    self.ended |= last;
                }
                Ok(None) if self.ended => return Ok(()),
                Ok(None) => {
                    self.how = "the stream ended before the end of data".into();
                    return Err(Status::data_loss(self.how.clone()));
                }
                Err(status) => {
                    self.how = status_text(&status);
                    return Err(status);
                }
            }
        }
    }
}

#[tonic::async_trait]
impl DataExchange for Exchange {
    async fn push(&self, request: Request<Streaming<Bytes>>) -> Result<Response<Frame>, Status> {
        let mut frames = request.into_inner();
        let first = tokio::time::timeout(OPENING_TIMEOUT, frames.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("the stream's first message did not come"))??;
        let key = read_header(first.unwrap_or_default())?;
        let inbound = self.registry.claim(key, RECEIVER_PATIENCE).await?;
        let cancelled = inbound.cancelled.clone();
        let mut claimed = Claimed::new(inbound);
        tokio::select! {
            received = claimed.receive(frames) => received.map(|()| Response::new(Frame::default())),
            () = cancelled.cancelled() => Err(Status::cancelled(format!("{} is being cancelled", key.attempt))),
        }
    }
}

/// Reads the first message of a stream.
fn read_header(bytes: Bytes) -> Result<ChannelKey, Status> {
    let header = frame::read_header(bytes);
    let header = header.map_err(|error| Status::invalid_argument(format!("the first message is no channel header: {error}")))?;
    if header.protocol != PROTOCOL {
        return Err(Status::failed_precondition(format!(
            "the sender speaks protocol {}, this TaskManager {PROTOCOL}; run the same version everywhere",
            header.protocol
        )));
    }
    let attempt = v1::AttemptRef { job_id: header.job_id, attempt: header.attempt, epoch: header.epoch };
    let attempt: AttemptId =
        convert::attempt_from_ref(Some(&attempt)).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let (edge, from_subtask, to_subtask) = (header.edge, header.from_subtask, header.to_subtask);
    Ok(ChannelKey { attempt, edge, from_subtask, to_subtask })
}

/// The first message of the stream of a channel.
pub fn write_header(key: ChannelKey) -> Frame {
    let header = v1::ChannelHeader {
        job_id: key.attempt.job.to_string(),
        attempt: key.attempt.attempt.0,
        epoch: key.attempt.epoch.0,
        edge: key.edge,
        from_subtask: key.from_subtask,
        to_subtask: key.to_subtask,
        protocol: PROTOCOL,
    };
    Frame::from(&header)
}

/// Serves the data port until `shutdown`; connections are probed as `keep_alive` says when they come.
///
/// Contract: runs on the data runtime, which also owns the connections' own tasks: they end with it.
pub async fn serve(
    listener: TcpListener,
    registry: Arc<Registry>,
    keep_alive: watch::Receiver<KeepAlive>,
    shutdown: CancellationToken,
) {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are our own");
    let routes = Routes::new(DataExchangeServer::new(Exchange { registry })).add_service(health).add_service(reflection);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((connection, _)) => {
                let keep_alive = *keep_alive.borrow();
                connections.spawn(serve_connection(connection, routes.clone(), keep_alive));
            }
            Err(error) => {
                tracing::warn!(%error, "the data port cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(connection: TcpStream, routes: Routes, keep_alive: KeepAlive) {
    let _ = connection.set_nodelay(true);
    let opened = match tokio::time::timeout(OPENING_TIMEOUT, preface::open(connection)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection to the data port ended before its first frame"),
        Err(_) => return tracing::debug!("a connection to the data port said nothing"),
    };
    let window = channel_window(opened.window_bytes.unwrap_or(0).into());
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(opened));
    let served = Server::builder()
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(window)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(keep_alive.interval))
        .http2_keepalive_timeout(Some(keep_alive.timeout))
        .add_routes(routes)
        .serve_with_incoming(incoming);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the data port cannot be served");
    }
}
