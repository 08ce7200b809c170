//! A channel that is a queue; the test holds it too.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::channel::{ChannelReader, ChannelWriter};
use crate::element::Element;

/// What is on a channel, and whether its writer finds room.
#[derive(Clone)]
pub(crate) struct Queue {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    elements: VecDeque<Element>,
    capacity: usize,
}

/// A channel of this many elements: the test's handle, and its two ends.
pub(crate) fn channel(capacity: usize) -> (Queue, Box<dyn ChannelWriter>, Box<dyn ChannelReader>) {
    let queue = Queue { inner: Arc::new(Mutex::new(Inner { elements: VecDeque::new(), capacity })) };
    (queue.clone(), Box::new(queue.clone()), Box::new(queue))
}

impl Queue {
    pub(crate) fn push(&self, element: Element) {
        self.inner.lock().unwrap().elements.push_back(element);
    }

    pub(crate) fn pop(&self) -> Option<Element> {
        self.inner.lock().unwrap().elements.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().unwrap().elements.len()
    }

    pub(crate) fn set_capacity(&self, capacity: usize) {
        self.inner.lock().unwrap().capacity = capacity;
    }
}

impl ChannelReader for Queue {
    fn try_recv(&mut self) -> Option<Element> {
        self.pop()
    }
}

impl ChannelWriter for Queue {
    fn is_ready(&mut self) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.elements.len() < inner.capacity
    }

    fn send(&mut self, element: Element) {
        self.push(element);
    }
}
