//! A TCP proxy on loopback that holds back what passes by a random time, order kept in each direction of each connection.

use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks on their way in one direction.
const CHUNKS_MAX: usize = 1024;

/// Starts a proxy before `target`; every chunk waits for up to `delay_max`, drawn from `seed`. Answers its address.
pub async fn start(target: SocketAddr, delay_max: Duration, seed: u64) -> anyhow::Result<SocketAddr> {
    let mut directions = 0;
    between(target, move |reader, writer| {
        directions += 1;
        tokio::spawn(pass(reader, writer, delay_max, StdRng::seed_from_u64(seed ^ directions)));
    })
    .await
}

/// Starts a proxy before `target` whose connections are passed on by `pass`, which is given each of their directions. Answers its address.
pub(crate) async fn between(
    target: SocketAddr,
    mut pass: impl FnMut(OwnedReadHalf, OwnedWriteHalf) + Send + 'static,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(target).await else { continue };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            pass(near_read, far_write);
            pass(far_read, near_write);
        }
    });
    Ok(address)
}

/// Passes one direction on. Each chunk is due at a time of its own, never before the one ahead of it.
async fn pass(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf, delay_max: Duration, mut rng: StdRng) {
    let (tx, mut rx) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    tokio::spawn(async move {
        while let Some((due, chunk)) = rx.recv().await {
            tokio::time::sleep_until(due).await;
            if writer.write_all(&chunk).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read) = reader.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let due = Instant::now() + delay_max.mul_f64(rng.random_range(0.0..1.0));
        if tx.send((due, buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}
