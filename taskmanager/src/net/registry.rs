//! Which channels tasks of this TaskManager wait for, so that the data port can hand incoming streams to them.
//!
//! A stream may come before its receiver is deployed: it waits, for a bounded time. Invariant: a channel is claimed once; one
//! of an attempt that was replaced or has ended is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use levada_common::ids::{Attempt, AttemptId, Epoch, JobId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::queue::Queue;
use super::remote::{ChannelKey, ChannelName};
use crate::inbox::InboxSender;

/// Jobs whose newest attempt is remembered after it ended.
const ENDED_JOBS_MAX: usize = 1024;

/// A channel that a task waits for.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// Which.
    pub key: ChannelKey,
    /// Where its frames go.
    pub queue: Arc<Queue<Bytes>>,
    /// The receiving task.
    pub inbox: InboxSender,
    /// Its name in messages.
    pub name: Arc<ChannelName>,
    /// The attempt is being cancelled: what breaks now is no failure.
    pub cancelled: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    inbound: HashMap<ChannelKey, Inbound>,
    /// The newest attempt of each job that was here, and whether it still is.
    newest: HashMap<JobId, (Epoch, Attempt, bool)>,
}

/// The channels that wait for their stream.
#[derive(Debug, Default)]
pub struct Registry {
    state: Mutex<State>,
    changed: Notify,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attempt is here, and waits for these channels.
    pub fn register(&self, attempt: AttemptId, channels: Vec<Inbound>) {
        let mut state = self.lock();
        if state.newest.len() >= ENDED_JOBS_MAX {
            state.newest.retain(|_, (_, _, here)| *here);
        }
        state.newest.insert(attempt.job, (attempt.epoch, attempt.attempt, true));
        state.inbound.extend(channels.into_iter().map(|channel| (channel.key, channel)));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The attempt has ended.
    pub fn remove(&self, attempt: AttemptId) {
        let mut state = self.lock();
        state.inbound.retain(|key, _| key.attempt != attempt);
        if let Some(newest) = state.newest.get_mut(&attempt.job)
            && (newest.0, newest.1) == (attempt.epoch, attempt.attempt)
        {
            newest.2 = false;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The channel of this key, which is then no longer waited for.
    ///
    /// Errors: FAILED_PRECONDITION, where the attempt has ended or was replaced; NOT_FOUND, where no task waits for the
    /// channel within `patience`.
    pub async fn claim(&self, key: ChannelKey, patience: Duration) -> Result<Inbound, Status> {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(answer) = self.try_claim(key) {
                    return answer;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.unwrap_or_else(|_| {
            let (edge, from, to) = (key.edge, key.from_subtask, key.to_subtask);
            Err(Status::not_found(format!(
                "no task of {} waited for the channel of edge {edge} from subtask {from} to {to} within {} s",
                key.attempt,
                patience.as_secs()
            )))
        })
    }

    fn try_claim(&self, key: ChannelKey) -> Option<Result<Inbound, Status>> {
        let mut state = self.lock();
        if let Some(channel) = state.inbound.remove(&key) {
            return Some(Ok(channel));
        }
        let (epoch, attempt, here) = *state.newest.get(&key.attempt.job)?;
        let of_key = (key.attempt.epoch, key.attempt.attempt);
        let stale = of_key < (epoch, attempt) || (of_key == (epoch, attempt) && !here);
        stale
            .then(|| Err(Status::failed_precondition(format!("{} has ended here; the newest is attempt {attempt}", key.attempt))))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tonic::Code;

    use super::*;
    use crate::inbox::inbox;

    fn key(attempt: u32) -> ChannelKey {
        let attempt = AttemptId { job: JobId::from_u128(1), attempt: Attempt(attempt), epoch: Epoch(1) };
        ChannelKey { attempt, edge: 0, from_subtask: 1, to_subtask: 2 }
    }

    fn channel(key: ChannelKey) -> Inbound {
        let (inbox, _task) = inbox();
        let name = ChannelName { from: "a".into(), to: "b".into(), peer: "p".into() };
        let queue = Queue::new(1, inbox.waker());
        Inbound { key, queue, inbox, name: Arc::new(name), cancelled: CancellationToken::new() }
    }

    #[tokio::test]
    async fn a_stream_waits_for_its_receiver_once() {
        let registry = Registry::default();
        let mut early = Box::pin(registry.claim(key(2), Duration::from_secs(30)));
        assert!(early.as_mut().now_or_never().is_none());
        registry.register(key(2).attempt, vec![channel(key(2))]);
        assert_eq!(early.await.unwrap().key, key(2));
        let again = registry.claim(key(2), Duration::from_millis(20)).await;
        assert_eq!(again.unwrap_err().code(), Code::NotFound);
    }

    #[tokio::test]
    async fn replaced_and_ended_attempts_are_refused_at_once() {
        let registry = Registry::default();
        registry.register(key(2).attempt, vec![channel(key(2))]);
        let refused = |attempt| registry.claim(key(attempt), Duration::from_secs(3600)).map(|answer| answer.unwrap_err().code());
        assert_eq!(refused(1).await, Code::FailedPrecondition);
        registry.remove(key(2).attempt);
        assert_eq!(refused(2).await, Code::FailedPrecondition);
        assert!(registry.claim(key(3), Duration::from_secs(3600)).now_or_never().is_none(), "a newer one may still come");
    }
}
