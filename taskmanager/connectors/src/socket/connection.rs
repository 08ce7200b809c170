//! A connection that is opened again whenever it is lost or cannot be made, on tokio.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks read ahead; when they are used up, TCP holds the server back.
const CHUNKS_AHEAD: usize = 16;

/// The first wait before connecting again; doubled up to `BACKOFF_MAX` until bytes arrive.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that says nothing for this long is asked whether it is there, again after each interval, so many times: after a
/// minute and a half it is gone. The system's own times would be more than two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_ASKS: u32 = 6;

/// What happens on the connection.
#[derive(Debug)]
pub(super) enum Event {
    /// Bytes.
    Chunk(Vec<u8>),
    /// The server closed it: what was received last is complete, even without a line's end.
    Closed,
    /// It was lost: a line that has no end is not complete.
    Lost,
}

/// The task's end of a connection; it is closed when this is dropped.
pub(super) struct Connection {
    pub events: mpsc::Receiver<Event>,
    work: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// Connects, now and whenever it is needed.
///
/// Contract: called within the shell's IO runtime.
pub(super) fn start(node: String, host: String, port: u16) -> Connection {
    let (sender, events) = mpsc::channel(CHUNKS_AHEAD);
    let work = tokio::spawn(async move {
        let mut backoff = BACKOFF_MIN;
        // Ends when the task is gone.
        while !sender.is_closed() {
            match timeout(CONNECT_TIMEOUT, connect(&host, port)).await {
                Ok(Ok(stream)) => {
                    tracing::info!(%node, "connected to {host}:{port}");
                    let Some((bytes, end)) = receive(stream, &sender).await else { return };
                    tracing::warn!(%node, bytes, "connection to {host}:{port} {end}; connecting again");
                    if bytes > 0 {
                        backoff = BACKOFF_MIN;
                    }
                }
                Ok(Err(error)) => tracing::warn!(%node, "cannot connect to {host}:{port}: {error}; trying again"),
                Err(_) => tracing::warn!(%node, "cannot connect to {host}:{port} within {CONNECT_TIMEOUT:?}; trying again"),
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    });
    Connection { events, work }
}

/// Connects to the first of the host's addresses that takes it.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = None;
    for address in lookup_host((host, port)).await? {
        match socket(address) {
            Ok(socket) => match socket.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            },
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// A socket that asks, by TCP's keepalive, whether a server that says nothing is still there: a source that only listens would
/// never notice that it is gone.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_ASKS);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    Ok(socket)
}

/// Receives until the connection ends: bytes received, and how it ended. `None` where the task is gone.
async fn receive(mut stream: TcpStream, sender: &mpsc::Sender<Event>) -> Option<(u64, String)> {
    let mut bytes = 0;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let (event, end) = match stream.read_buf(&mut chunk).await {
            Ok(0) => (Event::Closed, "was closed by the server".to_owned()),
            Ok(count) => {
                bytes += count as u64;
                sender.send(Event::Chunk(chunk)).await.ok()?;
                continue;
            }
            Err(error) => (Event::Lost, format!("was lost: {error}")),
        };
        sender.send(event).await.ok()?;
        return Some((bytes, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_asked_whether_it_is_there() {
        let socket = socket("127.0.0.1:9".parse().expect("an address")).expect("a socket");
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().expect("it is known"));
        assert_eq!(socket.tcp_keepalive_time().expect("it is known"), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_keepalive_interval().expect("it is known"), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().expect("it is known"), KEEPALIVE_ASKS);
    }
}
