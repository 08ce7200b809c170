//! Requests to a storage ahead of the reader; they go on whether or not it reads.
//!
//! A reader may be held back for hours: by a source that others are waited for, or by a sink. Invariant: a request's time is that of
//! the request alone, so each is a task of the IO runtime, ended when the reader is dropped.

use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use levada_common::storage::{StorageError, retried};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Bytes of one request to a storage.
const RANGE_BYTES: u64 = 1 << 20;

/// Requests under way, and answers that were not read.
const RANGES_AHEAD: usize = 4;

/// How a range of a file is asked for.
pub(super) trait Get<F>: Fn(Range<u64>) -> F + Clone + Send + Sync + 'static {}

impl<F, G: Fn(Range<u64>) -> F + Clone + Send + Sync + 'static> Get<F> for G {}

/// These bytes of a file, in order, some of them asked for ahead; each request is tried for `time`.
pub(super) fn ranges<F>(
    handle: Handle,
    bytes: Range<u64>,
    time: Duration,
    get: impl Get<F>,
) -> BoxStream<'static, Result<Bytes, StorageError>>
where
    F: Future<Output = Result<Bytes, StorageError>> + Send + 'static,
{
    let starts = bytes.clone().step_by(RANGE_BYTES as usize);
    let requests = futures::stream::iter(starts).map(move |start| {
        let (get, range) = (get.clone(), start..bytes.end.min(start + RANGE_BYTES));
        Request(handle.spawn(async move { retried(Instant::now() + time, || get(range.clone())).await }))
    });
    requests.buffered(RANGES_AHEAD).boxed()
}

/// A request under way, which ends when this is dropped.
struct Request(JoinHandle<Result<Bytes, StorageError>>);

impl Future for Request {
    type Output = Result<Bytes, StorageError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|joined| {
            joined.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The process ends.
                Err(error) => Err(StorageError::Io { action: "read", path: "a file".into(), source: io::Error::other(error) }),
            })
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TIME: Duration = Duration::from_secs(1);

    /// An answer that takes several turns, as one whose first bytes come and the rest later.
    async fn in_turns(range: Range<u64>, turns: usize) -> Result<Bytes, StorageError> {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        Ok(Bytes::from(format!("{}-{};", range.start >> 20, range.end)))
    }

    #[tokio::test]
    async fn requests_go_on_while_their_reader_is_held_back() {
        let bytes = 0..5 * RANGE_BYTES + 7;
        let answered = Arc::new(AtomicUsize::new(0));
        let answers = Arc::clone(&answered);
        // The first answer comes while the others are under way.
        let get = move |range: Range<u64>| {
            let answers = Arc::clone(&answers);
            async move {
                let answer = in_turns(range.clone(), if range.start == 0 { 3 } else { 9 }).await;
                answers.fetch_add(1, Ordering::Relaxed);
                answer
            }
        };
        let mut ranges = ranges(Handle::current(), bytes.clone(), TIME, get);
        let mut all = ranges.next().await.expect("a range").expect("an answer").to_vec();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(answered.load(Ordering::Relaxed), RANGES_AHEAD, "none waits for its reader, whose time may be over then");
        while let Some(answer) = ranges.next().await {
            all.extend(answer.expect("nobody was slow but the reader"));
        }
        let all = String::from_utf8(all).expect("UTF-8");
        let ends = (1..=5).map(|end| end * RANGE_BYTES).chain([bytes.end]);
        assert_eq!(all, ends.enumerate().map(|(start, end)| format!("{start}-{end};")).collect::<String>());
    }

    #[tokio::test]
    async fn few_ranges_are_asked_for_ahead_and_none_for_a_reader_that_is_gone() {
        let (asked, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let (counter, held) = (Arc::clone(&asked), Arc::clone(&dropped));
        let get = move |range: Range<u64>| {
            let (number, held) = (counter.fetch_add(1, Ordering::Relaxed), Arc::clone(&held));
            async move {
                if number > 0 {
                    std::future::pending::<()>().await;
                }
                drop(held);
                in_turns(range, 9).await
            }
        };
        let mut ranges = ranges(Handle::current(), 0..100 * RANGE_BYTES, TIME, get);
        ranges.next().await.expect("a range").expect("an answer");
        assert_eq!(asked.load(Ordering::Relaxed), RANGES_AHEAD);
        drop(ranges);
        while Arc::strong_count(&dropped) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_is_said() {
        let never = |_| std::future::pending();
        let error = ranges(Handle::current(), 0..1, Duration::ZERO, never).next().await.expect("a range").expect_err("no answer");
        assert!(matches!(error, StorageError::OutOfTime { tries: 1, .. }), "{error}");
    }
}
