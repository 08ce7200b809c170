//! A TCP proxy on loopback that lets so many bytes a second pass, of all connections and both directions together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::proxy::between;

/// Bytes that pass at once.
const CHUNK_BYTES: usize = 16 << 10;

/// A running proxy; it ends with the runtime.
pub struct Link {
    /// Where it listens.
    pub address: SocketAddr,
    bytes_per_second: watch::Sender<u64>,
}

impl Link {
    /// Starts a proxy before `target`.
    pub async fn start(target: SocketAddr, bytes_per_second: u64) -> anyhow::Result<Self> {
        let (rate, watched) = watch::channel(bytes_per_second);
        let free_at = Arc::new(Mutex::new(Instant::now()));
        let address = between(target, move |reader, writer| {
            tokio::spawn(pass(reader, writer, watched.clone(), Arc::clone(&free_at)));
        });
        Ok(Self { address: address.await?, bytes_per_second: rate })
    }

    /// From now on so many bytes a second pass; with 0 none.
    pub fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.send_replace(bytes_per_second);
    }
}

/// Passes one direction of a connection on.
async fn pass(
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    mut rate: watch::Receiver<u64>,
    free_at: Arc<Mutex<Instant>>,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        let Ok(bytes_per_second) = rate.wait_for(|rate| *rate > 0).await.map(|rate| *rate) else { return };
        let turn = {
            let mut free_at = free_at.lock().await;
            *free_at = Instant::now().max(*free_at) + Duration::from_secs_f64(read as f64 / bytes_per_second as f64);
            *free_at
        };
        tokio::time::sleep_until(turn).await;
        if writer.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
