//! The first bytes of an HTTP/2 connection, read before the server gets it: they carry the window that the connecting
//! TaskManager planned for its channels.
//!
//! A server's stream window is fixed when it starts to serve a connection, and the data port serves channels of many jobs. The
//! sender therefore has a connection per (peer, window) and announces the window as its own `SETTINGS_INITIAL_WINDOW_SIZE`;
//! the receiver grants the same. What was read is given to the server again. Source: RFC 9113, sections 3.4 and 6.5.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// `PRI * HTTP/2.0` and the rest of it.
const PREFACE_BYTES: usize = 24;
/// Length, type, flags and stream of a frame.
const FRAME_HEADER_BYTES: usize = 9;
/// A first SETTINGS frame above this is not looked into.
const SETTINGS_BYTES_MAX: usize = 4096;
const TYPE_SETTINGS: u8 = 4;
const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;

/// A connection whose first bytes were read already.
#[derive(Debug)]
pub struct Opened {
    head: Bytes,
    rest: TcpStream,
    /// The stream window that the peer announced.
    pub window_bytes: Option<u32>,
}

/// Reads what a client says first.
///
/// Errors: as reading has them; an end before the first frame is `UnexpectedEof`.
pub async fn open(mut connection: TcpStream) -> io::Result<Opened> {
    let mut head = vec![0; PREFACE_BYTES + FRAME_HEADER_BYTES];
    connection.read_exact(&mut head).await?;
    let frame = &head[PREFACE_BYTES..];
    let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
    let settings = frame[3] == TYPE_SETTINGS && length <= SETTINGS_BYTES_MAX;
    let mut window_bytes = None;
    if settings {
        let start = head.len();
        head.resize(start + length, 0);
        connection.read_exact(&mut head[start..]).await?;
        window_bytes = announced_window(&head[start..]);
    }
    Ok(Opened { head: head.into(), rest: connection, window_bytes })
}

/// The stream window in the content of a SETTINGS frame.
fn announced_window(settings: &[u8]) -> Option<u32> {
    let entry =
        settings.chunks_exact(6).rfind(|entry| u16::from_be_bytes([entry[0], entry[1]]) == SETTINGS_INITIAL_WINDOW_SIZE)?;
    Some(u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]))
}

impl Connected for Opened {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.rest.connect_info()
    }
}

impl AsyncRead for Opened {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.rest).poll_read(context, into);
        }
        let bytes = self.head.len().min(into.remaining());
        into.put_slice(&self.head[..bytes]);
        self.head.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Opened {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(context, from)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn opened(sent: &[u8]) -> io::Result<Opened> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(sent).await.unwrap();
        drop(client);
        open(listener.accept().await.unwrap().0).await
    }

    fn hello(settings: &[u8]) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend_from_slice(&[0, 0, settings.len() as u8, 4, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(settings);
        bytes
    }

    #[tokio::test]
    async fn the_window_is_found_and_every_byte_given_on() {
        let mut sent = hello(&[0, 3, 0, 0, 0, 9, 0, 4, 0, 2, 0, 0]);
        sent.extend_from_slice(b"more");
        let mut connection = opened(&sent).await.unwrap();
        assert_eq!(connection.window_bytes, Some(128 * 1024));
        let mut got = Vec::new();
        connection.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, sent);
    }

    #[tokio::test]
    async fn a_client_without_the_setting_has_none() {
        assert_eq!(opened(&hello(&[])).await.unwrap().window_bytes, None);
        assert_eq!(opened(b"GET / HTTP/1.1\r\n").await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
