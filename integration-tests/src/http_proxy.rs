//! An HTTP proxy on loopback that makes a store slow or makes it fail, as a test tells it to.
//!
//! One request a connection: bodies are small in tests, and it keeps the proxy simple.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It passes.
    Pass,
    /// It passes after a while.
    Delay(Duration),
    /// It is answered with this status, and not passed on.
    Status(u16),
    /// The connection is cut before the request is passed on.
    Cut,
    /// The request is passed on, and the connection cut before its answer.
    CutAnswer,
}

type Rule = Box<dyn FnMut(&str, &str) -> Fate + Send>;

/// A running proxy; it ends with the runtime.
#[derive(Clone)]
pub struct HttpProxy {
    /// Where it listens.
    pub address: SocketAddr,
    rule: Arc<Mutex<Rule>>,
}

impl HttpProxy {
    /// Starts a proxy before `target` through which everything passes.
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let rule: Rule = Box::new(|_, _| Fate::Pass);
        let proxy = Self { address: listener.local_addr()?, rule: Arc::new(Mutex::new(rule)) };
        let of_loop = proxy.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let proxy = of_loop.clone();
                // A client that goes away in the middle is no failure of the test.
                tokio::spawn(async move { proxy.pass(near, target).await.ok() });
            }
        });
        Ok(proxy)
    }

    /// From now on this decides about each request, by its method and target.
    pub fn set(&self, rule: impl FnMut(&str, &str) -> Fate + Send + 'static) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    fn fate(&self, method: &str, target: &str) -> Fate {
        (self.rule.lock().unwrap_or_else(PoisonError::into_inner))(method, target)
    }

    async fn pass(&self, mut near: TcpStream, target: SocketAddr) -> anyhow::Result<()> {
        let (head, body) = read_request(&mut near).await?;
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let fate = self.fate(method, path);
        match fate {
            Fate::Pass | Fate::CutAnswer => {}
            Fate::Delay(time) => tokio::time::sleep(time).await,
            Fate::Cut => return Ok(()),
            Fate::Status(status) => {
                let body = format!("<Error><Code>Proxy{status}</Code></Error>");
                let head = format!("HTTP/1.1 {status} Proxy\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                return Ok(near.write_all((head + &body).as_bytes()).await?);
            }
        }
        let mut far = TcpStream::connect(target).await?;
        far.write_all(closing(&head).as_bytes()).await?;
        far.write_all(&body).await?;
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await?;
        if fate == Fate::CutAnswer {
            return Ok(());
        }
        let end = find(&answer, b"\r\n\r\n").context("an answer has a head")?;
        let head = String::from_utf8_lossy(&answer[..end + 4]).into_owned();
        near.write_all(closing(&head).as_bytes()).await?;
        near.write_all(&answer[end + 4..]).await?;
        Ok(near.shutdown().await?)
    }
}

/// Head and body of a request.
async fn read_request(stream: &mut TcpStream) -> anyhow::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end + 4;
        }
        ensure!(bytes.len() < HEAD_BYTES_MAX, "the head of a request is too long");
        ensure!(stream.read_buf(&mut bytes).await? > 0, "the client is gone");
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes)?;
    let length = header(&head, "content-length").map_or(Ok(0), |value| value.parse::<usize>())?;
    let read = body.len();
    body.resize(length, 0);
    stream.read_exact(&mut body[read..]).await?;
    Ok((head, body))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

/// A head that says that the connection is closed afterwards.
fn closing(head: &str) -> String {
    let lines = head.trim_end().lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    lines.map(|line| format!("{line}\r\n")).collect::<String>() + "Connection: close\r\n\r\n"
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
