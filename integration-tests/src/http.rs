//! A plain HTTP request.

use std::net::SocketAddr;

use anyhow::ensure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks once, with these further header lines; answers the body where the status is 200.
pub async fn request(address: SocketAddr, method: &str, target: &str, headers: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "{method} {target}: {status}");
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
