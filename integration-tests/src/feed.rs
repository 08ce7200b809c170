//! A TCP server that a `socket` source connects to: a test says what goes over the line, and when.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// The test's end of the line. The connection stays open until it is dropped.
pub struct Feed {
    address: SocketAddr,
    lines: mpsc::UnboundedSender<String>,
    connections: watch::Receiver<u64>,
}

impl Feed {
    /// Listens on a free port of loopback. A source that lost its connection is served again by the same feed.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (lines, mut rx) = mpsc::unbounded_channel::<String>();
        let (count, connections) = watch::channel(0);
        tokio::spawn(async move {
            let mut unsent: Option<String> = None;
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                count.send_modify(|count| *count += 1);
                loop {
                    let line = match unsent.take() {
                        Some(line) => line,
                        None => tokio::select! {
                            line = rx.recv() => match line {
                                Some(line) => line,
                                None => return,
                            },
                            // The source never sends: what can be read is its end.
                            _ = stream.readable() => match stream.try_read(&mut [0]) {
                                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                                Ok(_) | Err(_) => break,
                            },
                        },
                    };
                    if stream.write_all(line.as_bytes()).await.is_err() {
                        unsent = Some(line);
                        break;
                    }
                }
            }
        });
        Ok(Self { address, lines, connections })
    }

    /// The options of a source that reads this feed.
    pub fn options(&self, columns: &str) -> String {
        format!("socket: {{ host: 127.0.0.1, port: {}, format: ndjson, columns: {{ {columns} }} }}", self.address.port())
    }

    /// Sends one line, now or as soon as a source is connected.
    pub fn send(&self, line: &str) {
        self.lines.send(format!("{line}\n")).expect("the server runs as long as the feed");
    }

    /// Waits until a source has connected for the `count`th time.
    pub async fn connected(&mut self, count: u64) -> anyhow::Result<()> {
        self.connections.wait_for(|connections| *connections >= count).await?;
        Ok(())
    }
}
