//! The data plane's service `levada.v1.DataExchange`, with messages that are raw bytes: prost copies nothing.
//!
//! The glue is what tonic-build would generate, but for the codec. A message goes out as pieces that are written one after
//! the other into tonic's buffer (the only copy), and comes in as a slice of that buffer. Must never know: what rows are.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::{Body, BoxFuture, Service, StdError, async_trait, http};
use tonic::{GrpcMethod, Request, Response, Status, Streaming};

use crate::v1;

/// The service's full name.
pub const SERVICE: &str = "levada.v1.DataExchange";

/// The path of its one method.
pub const PUSH_PATH: &str = "/levada.v1.DataExchange/Push";

/// Largest message that a receiver takes, in bytes.
pub const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What a frame is, its first byte. The first message of a stream is a `ChannelHeader` and has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// An Arrow IPC record batch message with its body.
    Batch = 0,
    /// i64 LE milliseconds.
    Watermark = 1,
    /// Nothing.
    Idle = 2,
    /// u64 LE checkpoint.
    Barrier = 3,
    /// Nothing; the last frame.
    EndOfData = 4,
}

impl FrameKind {
    /// The kind of this first byte, if it is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Batch, Self::Watermark, Self::Idle, Self::Barrier, Self::EndOfData].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One message to send, in pieces.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Frame {
    /// A message made of `pieces`, in order.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let bytes = pieces.iter().map(Bytes::len).sum();
        Self { pieces, bytes }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The message in one piece, copied; what the receiver would get.
    pub fn to_bytes(&self) -> Bytes {
        self.pieces.concat().into()
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(vec![bytes.into()])
    }
}

impl From<&v1::ChannelHeader> for Frame {
    fn from(header: &v1::ChannelHeader) -> Self {
        header.encode_to_vec().into()
    }
}

/// Reads the first message of a stream.
pub fn read_header(bytes: Bytes) -> Result<v1::ChannelHeader, prost::DecodeError> {
    v1::ChannelHeader::decode(bytes)
}

/// Writes frames and reads bytes, without prost.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(frame.bytes);
        for piece in &frame.pieces {
            into.put_slice(piece);
        }
        Ok(())
    }
}

impl Decoder for FrameCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The sending side.
#[derive(Debug, Clone)]
pub struct DataExchangeClient<T> {
    inner: tonic::client::Grpc<T>,
}

impl<T> DataExchangeClient<T>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    /// Sends over `transport`; a message has at most `FRAME_BYTES_MAX` bytes.
    pub fn new(transport: T) -> Self {
        let inner = tonic::client::Grpc::new(transport);
        Self { inner: inner.max_encoding_message_size(FRAME_BYTES_MAX).max_decoding_message_size(FRAME_BYTES_MAX) }
    }

    /// Sends one channel: a `ChannelHeader`, then frames. Answers when the receiver has taken the last one, or gives up.
    pub async fn push<S>(&mut self, frames: S) -> Result<Response<Bytes>, Status>
    where
        S: Stream<Item = Frame> + Send + 'static,
    {
        let ready = self.inner.ready().await;
        ready.map_err(|error| Status::unavailable(format!("the peer cannot be reached: {}", chain(&*error.into()))))?;
        let mut request = Request::new(frames);
        request.extensions_mut().insert(GrpcMethod::new(SERVICE, "Push"));
        self.inner.client_streaming(request, PathAndQuery::from_static(PUSH_PATH), FrameCodec).await
    }
}

/// An error's text and those of its sources.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The receiving side, to be implemented.
#[async_trait]
pub trait DataExchange: Send + Sync + 'static {
    /// Takes one channel: a `ChannelHeader`, then frames. The answer has no content.
    async fn push(&self, request: Request<Streaming<Bytes>>) -> Result<Response<Frame>, Status>;
}

/// Serves a `DataExchange`.
#[derive(Debug)]
pub struct DataExchangeServer<T> {
    inner: Arc<T>,
}

impl<T> DataExchangeServer<T> {
    /// Serves `inner`; a message has at most `FRAME_BYTES_MAX` bytes.
    pub fn new(inner: T) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl<T> Clone for DataExchangeServer<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> tonic::server::NamedService for DataExchangeServer<T> {
    const NAME: &'static str = SERVICE;
}

/// The method `Push` of `T`.
struct PushMethod<T>(Arc<T>);

impl<T: DataExchange> tonic::server::ClientStreamingService<Bytes> for PushMethod<T> {
    type Response = Frame;
    type Future = BoxFuture<Response<Frame>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.push(request).await })
    }
}

impl<T, B> Service<http::Request<B>> for DataExchangeServer<T>
where
    T: DataExchange,
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if request.uri().path() != PUSH_PATH {
            let status = Status::unimplemented(format!("{SERVICE} has the method Push alone"));
            return Box::pin(async move { Ok(status.into_http()) });
        }
        let method = PushMethod(Arc::clone(&self.inner));
        Box::pin(async move {
            let limit = Some(FRAME_BYTES_MAX);
            let mut grpc = tonic::server::Grpc::new(FrameCodec).apply_max_message_size_config(limit, limit);
            Ok(grpc.client_streaming(method, request).await)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_byte() {
        for byte in 0..=u8::MAX {
            assert_eq!(FrameKind::from_byte(byte).map(|kind| kind as u8), (byte <= 4).then_some(byte));
        }
    }

    #[test]
    fn a_header_comes_back_as_it_went() {
        let header = v1::ChannelHeader { job_id: "a".into(), edge: 3, to_subtask: 2, ..Default::default() };
        assert_eq!(read_header(Frame::from(&header).to_bytes()).unwrap(), header);
        assert!(read_header(Bytes::from_static(&[0xff])).is_err());
    }

    #[test]
    fn a_frame_is_its_pieces_in_order() {
        let frame = Frame::new(vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")]);
        assert_eq!((frame.len(), frame.to_bytes().as_ref()), (3, b"abc".as_ref()));
        assert!(Frame::default().is_empty());
    }
}
