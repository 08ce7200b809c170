//! A task's one inbox: what it is told, and that something changed.
//!
//! Control comes first; everything else (a batch in a channel, room in an output, a source that has rows) is only a wake-up,
//! because the task looks for itself. The task's thread parks here and nowhere else. Invariant: a wake-up that comes between
//! the task's last look and its parking ends the parking at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use levada_common::fault::Failure;
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;
use levada_engine::element::Barrier;

/// Most things that a task can be told before it has heard them; a task that hears nothing for so long is beyond help.
const CONTROLS_MAX: usize = 4096;

/// What a task is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Put a barrier into the stream, or snapshot if finishing.
    Trigger(Barrier),
    /// The data of a source ends where it is.
    EndSource,
    /// A source that keeps pace with others may go as far as this.
    Pace(Watermark),
    /// A checkpoint is complete or given up.
    Notify {
        /// Which.
        checkpoint: CheckpointId,
        /// Complete, or given up.
        completed: bool,
        /// A finishing task is finished with it.
        last: bool,
    },
    /// End now.
    Cancel,
    /// Something that the task depends on broke.
    Fail(Failure),
}

const EMPTY: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    lock: Mutex<()>,
    unparked: Condvar,
    has_control: AtomicBool,
    controls: Mutex<VecDeque<Control>>,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
            // The parking thread holds the lock from setting PARKED until it waits: taking it here means that it waits.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.unparked.notify_one();
        }
    }
}

/// The task's end, owned by its thread.
#[derive(Debug)]
pub struct Inbox {
    shared: Arc<Shared>,
}

/// The other end; any number of them.
#[derive(Debug, Clone)]
pub struct InboxSender {
    shared: Arc<Shared>,
}

/// A new inbox.
pub fn inbox() -> (InboxSender, Inbox) {
    let shared = Arc::new(Shared {
        state: AtomicU8::new(EMPTY),
        lock: Mutex::new(()),
        unparked: Condvar::new(),
        has_control: AtomicBool::new(false),
        controls: Mutex::new(VecDeque::new()),
    });
    (InboxSender { shared: Arc::clone(&shared) }, Inbox { shared })
}

impl InboxSender {
    /// Tells the task something and wakes it.
    ///
    /// Beyond the queue's limit the newest is dropped, but for `Cancel`: then the task fails (or ends) for what it has queued.
    pub fn send(&self, control: Control) {
        let mut controls = self.shared.controls.lock().unwrap_or_else(PoisonError::into_inner);
        match control {
            Control::Cancel => {
                controls.clear();
                controls.push_back(Control::Cancel);
            }
            _ if controls.len() == CONTROLS_MAX => {
                let message = format!("the task has left {CONTROLS_MAX} messages of its TaskManager unheard");
                controls.push_front(Control::Fail(Failure::internal(message)));
            }
            _ if controls.len() > CONTROLS_MAX => {}
            _ => controls.push_back(control),
        }
        self.shared.has_control.store(true, Ordering::Release);
        drop(controls);
        self.shared.wake_by_ref();
    }

    /// Fails the task from outside.
    pub fn fail(&self, failure: Failure) {
        self.send(Control::Fail(failure));
    }

    /// Wakes the task.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.shared))
    }
}

impl Inbox {
    /// The next thing that the task is told; without a lock where there is none.
    pub fn next_control(&self) -> Option<Control> {
        if !self.shared.has_control.load(Ordering::Acquire) {
            return None;
        }
        let mut controls = self.shared.controls.lock().unwrap_or_else(PoisonError::into_inner);
        let control = controls.pop_front();
        if controls.is_empty() {
            self.shared.has_control.store(false, Ordering::Release);
        }
        control
    }

    /// Waits for a wake-up, at most `timeout`; returns at once where one came since the last parking.
    pub fn park(&self, timeout: Option<Duration>) {
        let guard = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.state.compare_exchange(EMPTY, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.shared.state.store(EMPTY, Ordering::SeqCst);
            return;
        }
        let parked = |_: &mut ()| self.shared.state.load(Ordering::SeqCst) == PARKED;
        match timeout {
            Some(timeout) => {
                drop(self.shared.unparked.wait_timeout_while(guard, timeout, parked));
            }
            None => drop(self.shared.unparked.wait_while(guard, parked)),
        }
        self.shared.state.store(EMPTY, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn control_comes_in_order_and_cancel_overtakes() {
        let (sender, inbox) = inbox();
        assert_eq!(inbox.next_control(), None);
        sender.send(Control::Trigger(Barrier::checkpoint(CheckpointId(1))));
        sender.send(Control::Trigger(Barrier::checkpoint(CheckpointId(2))));
        assert_eq!(inbox.next_control(), Some(Control::Trigger(Barrier::checkpoint(CheckpointId(1)))));
        sender.send(Control::Cancel);
        assert_eq!(inbox.next_control(), Some(Control::Cancel));
        assert_eq!(inbox.next_control(), None);
    }

    #[test]
    fn a_task_that_hears_nothing_fails() {
        let (sender, inbox) = inbox();
        for id in 0..2 * CONTROLS_MAX as u64 {
            sender.send(Control::Trigger(Barrier::checkpoint(CheckpointId(id))));
        }
        assert!(matches!(inbox.next_control(), Some(Control::Fail(_))));
        let rest = std::iter::from_fn(|| inbox.next_control()).count();
        assert_eq!(rest, CONTROLS_MAX);
    }

    #[test]
    fn a_wake_up_before_the_parking_ends_it() {
        let (sender, inbox) = inbox();
        sender.waker().wake();
        sender.waker().wake_by_ref();
        inbox.park(None);
        inbox.park(Some(Duration::from_millis(1)));
    }

    #[test]
    fn no_wake_up_is_lost() {
        let (sender, inbox) = inbox();
        let (tx, rx) = mpsc::channel();
        let task = thread::spawn(move || {
            let mut seen = 0u32;
            while seen < 20_000 {
                match rx.try_recv() {
                    Ok(()) => seen += 1,
                    Err(_) => inbox.park(None),
                }
            }
        });
        let waker = sender.waker();
        for _ in 0..20_000 {
            tx.send(()).unwrap();
            waker.wake_by_ref();
        }
        task.join().unwrap();
    }
}
