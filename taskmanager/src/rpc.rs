//! What the TaskManager asks of its JobManager beside the long-lived stream: calls that are answered.
//!
//! They have a connection of their own, so that state on its way never delays a heartbeat. Must never know: what is in a
//! snapshot.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use levada_common::fault::Failure;
use levada_common::ids::AttemptId;
use levada_common::keep_alive::KeepAlive;
use levada_proto::convert::attempt_to_ref;
use levada_proto::v1::cluster_client::ClusterClient;
use levada_proto::{encoded_len, v1};
use rand::Rng;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// First and last pause between tries of a call.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// HTTP/2 windows for state that comes from the JobManager.
const WINDOWS_BYTES: (u32, u32) = (4 * 1024 * 1024, 64 * 1024 * 1024);
/// Bytes for which whatever carries them gets one second more: a slow link is shared by many.
pub const BYTES_PER_SECOND_MIN: u64 = 32 << 10;
/// Tries of fetching one state.
const FETCH_TRIES: u32 = 3;

/// Pauses that double from a first to a last one, each shortened by up to a fifth at random.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    first: Duration,
    last: Duration,
}

impl Backoff {
    /// Pauses from `first` to `last`.
    pub fn new(first: Duration, last: Duration) -> Self {
        Self { next: first, first, last }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.last);
        pause.mul_f64(rand::rng().random_range(0.8..=1.0))
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A status with its causes, as messages show it.
pub fn status_text(status: &Status) -> String {
    let mut text = format!("{} ({:?})", status.message(), status.code());
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

/// An endpoint of the JobManager; its host is resolved at each connect. Not probed: heartbeats tell
/// whether it lives.
pub fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(WINDOWS_BYTES.0)
        .initial_connection_window_size(WINDOWS_BYTES.1)
        .tcp_nodelay(true))
}

/// The same for connections without heartbeats of their own.
pub fn probed(endpoint: Endpoint, keep_alive: KeepAlive) -> Endpoint {
    endpoint.http2_keep_alive_interval(keep_alive.interval).keep_alive_timeout(keep_alive.timeout).keep_alive_while_idle(true)
}

/// The JobManager of one registration, for calls.
#[derive(Debug, Clone)]
pub struct JobManager {
    client: ClusterClient<Channel>,
    frame_bytes: u64,
    ask_timeout: Duration,
}

/// What the JobManager said to an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It counts on the snapshot.
    Taken,
    /// It does not want it.
    Discarded,
    /// It does not want it now, but may have taken it at an earlier try whose answer was lost.
    Unclear,
}

impl JobManager {
    /// Calls over `connection`; the JobManager takes messages of up to `frame_bytes`, and answers within `ask_timeout` of the time
    /// that a message takes on a slow link.
    pub fn new(connection: Channel, frame_bytes: u64, ask_timeout: Duration) -> Self {
        let limit = usize::try_from(frame_bytes).unwrap_or(usize::MAX);
        Self { client: ClusterClient::new(connection).max_decoding_message_size(limit), frame_bytes, ask_timeout }
    }

    /// Largest message that it takes.
    pub fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// Acknowledges a snapshot. Tried again until `deadline`, because only the answer says whose the files are.
    pub async fn acknowledge(&self, request: &v1::AcknowledgeCheckpointRequest, deadline: Instant) -> Result<Answer, Status> {
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.acknowledge_checkpoint(request).await }
        };
        let (answer, tries) = self.until(deadline, encoded_len(request), call).await?;
        Ok(match (answer.into_inner().accepted, tries) {
            (true, _) => Answer::Taken,
            (false, 1) => Answer::Discarded,
            (false, _) => Answer::Unclear,
        })
    }

    /// Declines a checkpoint; tried again until `deadline`.
    pub async fn decline(&self, request: &v1::DeclineCheckpointRequest, deadline: Instant) -> Result<(), Status> {
        let call = || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.decline_checkpoint(request).await }
        };
        self.until(deadline, encoded_len(request), call).await.map(drop)
    }

    /// Fetches the bytes of an inline state, which are `length` long.
    pub async fn fetch_state(&self, attempt: AttemptId, inline_id: u64, length: u64) -> Result<Bytes, Failure> {
        let mut backoff = Backoff::new(RETRY_PAUSE.0, RETRY_PAUSE.1);
        for attempts_left in (0..FETCH_TRIES).rev() {
            match self.try_fetch(attempt, inline_id, length).await {
                Ok(bytes) => return Ok(bytes),
                Err(status) if attempts_left > 0 && passes(&status) => tokio::time::sleep(backoff.pause()).await,
                Err(status) => {
                    let text = format!("fetching inline state {inline_id} of {attempt} from the JobManager failed");
                    return Err(Failure::external(format!("{text}: {}", status_text(&status))));
                }
            }
        }
        unreachable!("the last try returns")
    }

    /// Calls with a message of so many bytes until there is an answer that trying again cannot change; with the number of tries.
    async fn until<T, F>(&self, deadline: Instant, bytes: u64, call: impl Fn() -> F) -> Result<(T, u32), Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let time = self.ask_timeout + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        let mut backoff = Backoff::new(RETRY_PAUSE.0, RETRY_PAUSE.1);
        for tries in 1.. {
            let answer = tokio::time::timeout_at(deadline.min(Instant::now() + time), call()).await;
            match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the JobManager did not answer in time"))) {
                Ok(answer) => return Ok((answer, tries)),
                Err(status) if passes(&status) && Instant::now() < deadline => tokio::time::sleep(backoff.pause()).await,
                Err(status) => return Err(status),
            }
        }
        unreachable!("tries do not run out before time does")
    }

    async fn try_fetch(&self, attempt: AttemptId, inline_id: u64, length: u64) -> Result<Bytes, Status> {
        let request = v1::FetchStateRequest { attempt: Some(attempt_to_ref(attempt)), inline_id };
        let mut chunks = self.client.clone().fetch_state(request).await?.into_inner();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = chunks.message().await? {
            if (bytes.len() + chunk.data.len()) as u64 > length {
                return Err(Status::data_loss(format!("more than the {length} bytes of the state came")));
            }
            bytes.extend_from_slice(&chunk.data);
        }
        Ok(bytes.freeze())
    }
}

/// Whether the same call may work later.
fn passes(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestJobManager, attempt};

    #[tokio::test]
    async fn a_state_larger_than_the_frame_comes_in_chunks() {
        let job_manager = TestJobManager::start().await;
        let calls = job_manager.calls(2 * 1024 * 1024);
        let bytes = calls.fetch_state(attempt(1), 5_000_000, 5_000_000).await.unwrap();
        assert!(bytes.len() == 5_000_000 && bytes.iter().all(|byte| *byte == 7));
    }

    #[tokio::test]
    async fn a_state_that_is_not_there_or_too_long_fails_naming_it() {
        let job_manager = TestJobManager::start().await;
        let calls = job_manager.calls(2 * 1024 * 1024);
        let missing = calls.fetch_state(attempt(1), 0, 10).await.unwrap_err().message;
        assert!(missing.contains("inline state 0") && missing.contains("no state 0"), "{missing}");
        let long = calls.fetch_state(attempt(1), 3_000_000, 2_999_999).await.unwrap_err().message;
        assert!(long.contains("more than the 2999999 bytes"), "{long}");
    }

    /// The time to ask is nothing here: only what the bytes add lets a call live that takes a while.
    #[tokio::test]
    async fn a_call_has_the_time_that_its_bytes_take() {
        let connection = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let calls = JobManager::new(connection, 10 << 20, Duration::ZERO);
        let call = || async {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(5) {
                tokio::task::yield_now().await;
            }
            Ok(())
        };
        let (_, tries) = calls.until(Instant::now() + Duration::from_secs(60), 10 << 20, call).await.unwrap();
        assert_eq!(tries, 1);
        let status = calls.until(Instant::now(), 10 << 20, std::future::pending::<Result<(), Status>>).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "the checkpoint's deadline holds all the same");
    }

    #[test]
    fn pauses_grow_to_the_last_and_begin_anew() {
        let (first, last) = (Duration::from_millis(100), Duration::from_millis(500));
        let mut backoff = Backoff::new(first, last);
        for most in [100, 200, 400, 500, 500] {
            let pause = backoff.pause();
            let most = Duration::from_millis(most);
            assert!((most.mul_f64(0.79)..=most).contains(&pause), "{pause:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= first);
    }
}
