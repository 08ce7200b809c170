//! The bounded queue between a task's thread and the async end of a channel, in either direction.
//!
//! Neither side waits in it: the task is woken through its inbox, the async side is a future that is polled again.
//! Must never know: what the frames hold.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;

/// Something with a size in bytes.
pub trait Weighed {
    /// Its size.
    fn bytes(&self) -> usize;
}

impl Weighed for levada_proto::frame::Frame {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Weighed for bytes::Bytes {
    fn bytes(&self) -> usize {
        self.len()
    }
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    bytes: usize,
    /// Nothing is put in any more.
    closed: bool,
    /// The task waits, for room or for an item.
    task_waits: bool,
    /// The async side waits, for an item or for room.
    async_waits: Option<Waker>,
}

/// A queue that holds items until fewer than `bytes_max` bytes wait; the item that crosses the bound is taken.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    bytes_max: usize,
    task: Waker,
}

impl<T: Weighed> Queue<T> {
    /// An empty queue of the task that `task` wakes.
    pub fn new(bytes_max: usize, task: Waker) -> Arc<Self> {
        let state = State { items: VecDeque::new(), bytes: 0, closed: false, task_waits: false, async_waits: None };
        Arc::new(Self { state: Mutex::new(state), bytes_max, task })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task asks for room; it is woken where there is none now.
    pub fn has_room(&self) -> bool {
        let mut state = self.lock();
        let room = state.bytes < self.bytes_max;
        state.task_waits = !room;
        room
    }

    /// The task puts an item in, whether or not there is room.
    pub fn put(&self, item: T) {
        let mut state = self.lock();
        state.bytes += item.bytes();
        state.items.push_back(item);
        let waker = state.async_waits.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The task will put nothing in any more: the stream ends after what waits.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let waker = state.async_waits.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The task takes an item; it is woken for the next one where there is none now.
    pub fn take(&self) -> Option<T> {
        let mut state = self.lock();
        let Some(item) = state.items.pop_front() else {
            state.task_waits = true;
            return None;
        };
        state.bytes -= item.bytes();
        let waker = if state.bytes < self.bytes_max { state.async_waits.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(item)
    }

    /// The async side puts an item in, once there is room.
    pub async fn push(&self, item: T) {
        let mut item = Some(item);
        poll_fn(|context| {
            let mut state = self.lock();
            if state.bytes >= self.bytes_max {
                state.async_waits = Some(context.waker().clone());
                return Poll::Pending;
            }
            let item = item.take().expect("a future is not polled after it is ready");
            state.bytes += item.bytes();
            state.items.push_back(item);
            let wake = std::mem::take(&mut state.task_waits);
            drop(state);
            if wake {
                self.task.wake_by_ref();
            }
            Poll::Ready(())
        })
        .await;
    }

    fn poll_take(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.lock();
        let Some(item) = state.items.pop_front() else {
            if state.closed {
                return Poll::Ready(None);
            }
            state.async_waits = Some(context.waker().clone());
            return Poll::Pending;
        };
        state.bytes -= item.bytes();
        let wake = state.task_waits && state.bytes < self.bytes_max;
        if wake {
            state.task_waits = false;
        }
        drop(state);
        if wake {
            self.task.wake_by_ref();
        }
        Poll::Ready(Some(item))
    }
}

/// The async side's view of a queue that the task fills.
#[derive(Debug)]
pub struct Outgoing<T>(pub Arc<Queue<T>>);

impl<T: Weighed> Stream for Outgoing<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_take(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use bytes::Bytes;
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_task_that_found_no_room_is_woken_by_the_reader() {
        let wakes = Arc::new(Wakes::default());
        let queue = Queue::new(4, Arc::clone(&wakes).into());
        let mut stream = Outgoing(Arc::clone(&queue));
        assert!(stream.next().now_or_never().is_none());
        queue.put(Bytes::from_static(b"abc"));
        assert!(queue.has_room());
        queue.put(Bytes::from_static(b"d"));
        assert!(!queue.has_room());
        assert_eq!(stream.next().now_or_never().flatten().unwrap().as_ref(), b"abc");
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        queue.close();
        assert_eq!(stream.next().now_or_never().flatten().unwrap().as_ref(), b"d");
        assert_eq!(stream.next().now_or_never(), Some(None));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_network_waits_while_the_task_does_not_take() {
        let wakes = Arc::new(Wakes::default());
        let queue = Queue::new(4, Arc::clone(&wakes).into());
        assert_eq!(queue.take(), None);
        assert!(queue.push(Bytes::from_static(b"abcdef")).now_or_never().is_some());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        let mut second = Box::pin(queue.push(Bytes::from_static(b"g")));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(queue.take().is_some());
        assert!(second.now_or_never().is_some());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "the task was not waiting");
    }
}
