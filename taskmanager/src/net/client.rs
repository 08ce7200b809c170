//! The sending side of the network: a connection per (peer, window), shared by all channels there, and a stream per channel.
//!
//! Invariant: a stream that ends before the receiver has taken the end of data fails the sending task, unless the attempt is
//! being cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use levada_common::keep_alive::KeepAlive;
use levada_proto::frame::{DataExchangeClient, Frame};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::queue::{Outgoing, Queue};
use super::remote::{ChannelKey, ChannelName};
use super::server::write_header;
use super::{CONNECTION_WINDOW_BYTES, channel_window};
use crate::inbox::InboxSender;
use crate::rpc::{probed, status_text};

/// Time to connect to a peer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream to be pushed.
pub struct OutboundChannel {
    /// Which channel.
    pub key: ChannelKey,
    /// The frames, as the task makes them.
    pub queue: Arc<Queue<Frame>>,
    /// The sending task.
    pub inbox: InboxSender,
    /// Its name in messages.
    pub name: Arc<ChannelName>,
    /// The attempt is being cancelled: the stream is dropped.
    pub cancelled: CancellationToken,
    /// Bytes planned for the channel.
    pub window_bytes: u64,
}

type PeerKey = (String, u32);

/// The connections to other TaskManagers.
#[derive(Debug)]
pub struct Peers {
    connections: Mutex<HashMap<PeerKey, (Channel, usize)>>,
    keep_alive: watch::Receiver<KeepAlive>,
}

/// A use of a connection; the last one closes it.
struct Lease {
    peers: Arc<Peers>,
    key: PeerKey,
    connection: Channel,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut connections = self.peers.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, uses)) = connections.get_mut(&self.key) {
            *uses -= 1;
            if *uses == 0 {
                connections.remove(&self.key);
            }
        }
    }
}

impl Peers {
    /// No connections; those to come are probed as `keep_alive` says then.
    pub fn new(keep_alive: watch::Receiver<KeepAlive>) -> Self {
        Self { connections: Mutex::default(), keep_alive }
    }

    /// A connection to `address`, made at its first use (the host is resolved then) and again after it broke.
    fn lease(self: &Arc<Self>, address: &str, window: u32) -> Result<Lease, tonic::transport::Error> {
        let key = (address.to_string(), window);
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match connections.get_mut(&key) {
            Some((connection, uses)) => {
                *uses += 1;
                connection.clone()
            }
            None => {
                let connection = probed(endpoint(address, window)?, *self.keep_alive.borrow()).connect_lazy();
                connections.insert(key.clone(), (connection.clone(), 1));
                connection
            }
        };
        Ok(Lease { peers: Arc::clone(self), key, connection })
    }

    /// Pushes one channel until its end. Contract: runs on the data runtime.
    pub async fn push(self: Arc<Self>, channel: OutboundChannel) {
        let OutboundChannel { key, queue, inbox, name, cancelled, window_bytes } = channel;
        let lease = match self.lease(&name.peer, channel_window(window_bytes)) {
            Ok(lease) => lease,
            Err(error) => return inbox.fail(name.broken(&format!("\"{}\" is no address: {error}", name.peer))),
        };
        let frames = futures::stream::iter([write_header(key)]).chain(Outgoing(queue));
        let mut client = DataExchangeClient::new(lease.connection.clone());
        let answer = tokio::select! {
            answer = client.push(frames) => answer,
            () = cancelled.cancelled() => return,
        };
        // The answer comes only after the receiver has taken the end of data.
        if let Err(status) = answer
            && !cancelled.is_cancelled()
        {
            inbox.fail(name.broken(&status_text(&status)));
        }
    }
}

fn endpoint(address: &str, window: u32) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(window)
        .tcp_nodelay(true))
}
