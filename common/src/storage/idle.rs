//! Requests that end when nothing moves: on a slow link a body may take as long as it needs, on a dead one nobody waits.
//!
//! What is sent goes in pieces, each of which is asked for when those before it have been taken over by the connection. Must never know what the requests
//! are about.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::header::CONTENT_LENGTH;
use tokio::time::Instant;

use crate::human::HumanDuration;

/// Time in which something must move: what the connection has taken over may be megabytes, which a slow link needs a while for.
const IDLE_TIME: Duration = Duration::from_secs(45);

/// Bytes that are handed to the connection at once.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of an answer for which there is room before they come, whatever a server says of its length.
const LENGTH_MAX: usize = 64 << 20;

/// Nothing moved in time.
#[derive(Debug, thiserror::Error)]
#[error("nothing was sent or received for {} seconds", .0.as_secs())]
struct NothingMoved(Duration);

impl From<NothingMoved> for HttpError {
    fn from(error: NothingMoved) -> Self {
        Self::new(HttpErrorKind::Timeout, error)
    }
}

/// Makes clients whose requests end when nothing moves. object_store's own know the time of a whole request only.
#[derive(Debug)]
pub(super) struct IdleConnector;

impl HttpConnector for IdleConnector {
    /// Of `options` it hears whether HTTP without TLS is allowed, and the time to connect.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allows| allows == "true");
        let connect_time = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let connect_time = connect_time.and_then(|time| time.parse::<HumanDuration>().ok());
        let client = reqwest::Client::builder().user_agent("levada").http1_only().https_only(!allows_http);
        // The length of a body is that of the object.
        let client = client.no_gzip().no_brotli().no_zstd().no_deflate();
        let client = match connect_time {
            Some(time) => client.connect_timeout(Duration::from_millis(time.as_ms())),
            None => client,
        };
        let failed = |error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) };
        let client = client.build().map_err(failed)?;
        Ok(HttpClient::new(IdleClient { client }))
    }
}

#[derive(Debug)]
struct IdleClient {
    client: reqwest::Client,
}

#[async_trait]
impl HttpService for IdleClient {
    /// Answers when the whole body is there: whoever asks for an object asks for the bytes that he needs.
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let moved = Moved::new();
        let (head, body) = request.into_parts();
        let address = head.uri.to_string().parse().expect("a URI is an address");
        let mut request = reqwest::Request::new(head.method, address);
        *request.headers_mut() = head.headers;
        // A body in pieces has no length of its own, and S3 takes none without.
        request.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| body.content_length().into());
        *request.body_mut() = Some(match body.as_bytes() {
            Some(whole) if whole.len() <= PIECE_BYTES => whole.clone().into(),
            _ => reqwest::Body::wrap_stream(in_pieces(body, &moved).await?),
        });
        let sent = while_moving(&moved, IDLE_TIME, self.client.execute(request)).await?.map_err(failed)?;
        let answer: HttpResponse = HttpResponse::new(HttpResponseBody::from(Bytes::new()));
        let (mut head, _) = answer.into_parts();
        (head.status, head.version, head.headers) = (sent.status(), sent.version(), sent.headers().clone());
        let length = sent.content_length().map_or(0, |length| length as usize);
        let body = whole(sent.bytes_stream().map(|chunk| chunk.map_err(failed)), length, IDLE_TIME).await?;
        Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body)))
    }
}

fn failed(error: reqwest::Error) -> HttpError {
    let kind = match &error {
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_connect() => HttpErrorKind::Connect,
        error if error.is_decode() => HttpErrorKind::Decode,
        _ => HttpErrorKind::Request,
    };
    // The address is said by whoever asked.
    HttpError::new(kind, error.without_url())
}

/// All that comes, as long as something does every so often; most likely `length` bytes.
async fn whole(chunks: impl Stream<Item = Result<Bytes, HttpError>>, length: usize, idle: Duration) -> Result<Bytes, HttpError> {
    let mut chunks = std::pin::pin!(chunks);
    let mut bytes = BytesMut::with_capacity(length.min(LENGTH_MAX));
    while let Some(chunk) = tokio::time::timeout(idle, chunks.next()).await.map_err(|_| NothingMoved(idle))? {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes.freeze())
}

/// When something moved last.
#[derive(Debug)]
struct Moved(Mutex<Instant>);

impl Moved {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Instant::now())))
    }

    fn moves(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body in pieces; that one is asked for says that those before it have moved.
async fn in_pieces(
    mut body: HttpRequestBody,
    moved: &Arc<Moved>,
) -> Result<impl Stream<Item = Result<Bytes, Infallible>> + use<>, HttpError> {
    let mut pieces = Vec::with_capacity(body.content_length().div_ceil(PIECE_BYTES));
    while let Some(frame) = body.frame().await {
        let Ok(mut bytes) = frame?.into_data() else { continue };
        while !bytes.is_empty() {
            pieces.push(bytes.split_to(PIECE_BYTES.min(bytes.len())));
        }
    }
    let moved = Arc::clone(moved);
    Ok(futures::stream::iter(pieces).inspect(move |_| moved.moves()).map(Ok))
}

/// Waits for a request as long as something moves every so often.
async fn while_moving<T>(moved: &Moved, idle: Duration, request: impl Future<Output = T>) -> Result<T, NothingMoved> {
    tokio::pin!(request);
    loop {
        let due = moved.last() + idle;
        tokio::select! {
            done = &mut request => return Ok(done),
            () = tokio::time::sleep_until(due) => {
                if moved.last() + idle <= due {
                    return Err(NothingMoved(idle));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::PutPayload;

    use super::*;

    const IDLE: Duration = Duration::from_secs(2);
    const EACH: Duration = Duration::from_millis(50);

    /// A request whose connection takes a piece each so often, the first so many, then nothing any more.
    async fn send(pieces_max: usize) -> Result<usize, HttpError> {
        let moved = Moved::new();
        let body = PutPayload::from(vec![7_u8; 60 * PIECE_BYTES - 1]);
        let mut pieces = in_pieces(body.into(), &moved).await?;
        let request = async {
            let mut sent = 0;
            for _ in 0..pieces_max {
                tokio::time::sleep(EACH).await;
                let Some(Ok(piece)) = pieces.next().await else { return sent };
                sent += piece.len();
            }
            std::future::pending().await
        };
        Ok(while_moving(&moved, IDLE, request).await?)
    }

    #[tokio::test]
    async fn a_slow_request_takes_as_long_as_it_needs() {
        let began = Instant::now();
        assert_eq!(send(usize::MAX).await.expect("something moves all the time"), 60 * PIECE_BYTES - 1);
        assert!(began.elapsed() > IDLE, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_request_ends_where_nothing_moves() {
        let error = send(5).await.expect_err("it stands still");
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        let text = super::super::error::chain(&error);
        assert!(text.contains("nothing was sent or received for 2 seconds"), "{text}");
    }

    /// As with the client that it stands for: a store that is reached by TLS is by nothing else, whatever it redirects to.
    #[tokio::test]
    async fn http_is_refused_where_it_is_not_allowed() {
        let request = || {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = "http://127.0.0.1:1/".parse().expect("an address");
            request
        };
        for (allows, says) in [(false, "URL scheme is not allowed"), (true, "Connection refused")] {
            let options = ClientOptions::new().with_allow_http(allows).with_connect_timeout(Duration::from_secs(5));
            let client = IdleConnector.connect(&options).expect("a client");
            let error = client.execute(request()).await.expect_err("nobody listens");
            let text = super::super::error::chain(&error);
            assert!(text.contains(says), "{text}");
        }
    }

    #[tokio::test]
    async fn an_answer_ends_where_nothing_comes() {
        let chunks = || {
            futures::stream::iter(0..50_u8).then(async |chunk| {
                tokio::time::sleep(EACH).await;
                Ok(Bytes::from(vec![chunk]))
            })
        };
        assert_eq!(whole(chunks(), 50, IDLE).await.expect("something comes all the time").len(), 50);
        let error = whole(chunks().take(5).chain(futures::stream::pending()), 0, IDLE).await.expect_err("it stands still");
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
    }
}
