//! A channel between two tasks of one process: a bounded queue of elements, locked once per element.
//!
//! Nothing is serialised. Must never know: what a task does with an element. Invariant: a writer that was told "not ready" is
//! woken when there is room, a reader that was told "nothing" is woken when there is something.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use levada_engine::channel::{ChannelReader, ChannelWriter};
use levada_engine::element::Element;

/// How much may wait in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalBounds {
    /// Elements that may always wait, whatever their size.
    pub elements_min: usize,
    /// Elements above which the writer is not ready.
    pub elements_max: usize,
    /// Bytes of batches above which the writer is not ready, once `elements_min` wait.
    pub bytes_max: usize,
}

impl Default for LocalBounds {
    fn default() -> Self {
        Self { elements_min: 2, elements_max: 8, bytes_max: 4 * 1024 * 1024 }
    }
}

#[derive(Debug)]
struct Queue {
    elements: VecDeque<(Element, usize)>,
    bytes: usize,
    writer_waits: bool,
    bounds: LocalBounds,
}

impl Queue {
    fn has_room(&self) -> bool {
        let waiting = self.elements.len();
        waiting < self.bounds.elements_min || (waiting < self.bounds.elements_max && self.bytes < self.bounds.bytes_max)
    }
}

/// The sending end.
#[derive(Debug)]
pub struct LocalWriter {
    queue: Arc<Mutex<Queue>>,
    reader: Waker,
}

/// The receiving end.
#[derive(Debug)]
pub struct LocalReader {
    queue: Arc<Mutex<Queue>>,
    writer: Waker,
}

/// A channel from the task that `writer` wakes to the task that `reader` wakes.
pub fn local_channel(writer: Waker, reader: Waker, bounds: LocalBounds) -> (LocalWriter, LocalReader) {
    let queue = Arc::new(Mutex::new(Queue { elements: VecDeque::new(), bytes: 0, writer_waits: false, bounds }));
    (LocalWriter { queue: Arc::clone(&queue), reader }, LocalReader { queue, writer })
}

/// Bytes that an element holds in memory.
pub fn element_bytes(element: &Element) -> usize {
    match element {
        Element::Batch(batch) => batch.get_array_memory_size(),
        _ => 0,
    }
}

impl ChannelWriter for LocalWriter {
    fn is_ready(&mut self) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = queue.has_room();
        queue.writer_waits = !ready;
        ready
    }

    fn send(&mut self, element: Element) {
        let bytes = element_bytes(&element);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = queue.elements.is_empty();
        queue.bytes += bytes;
        queue.elements.push_back((element, bytes));
        drop(queue);
        if was_empty {
            self.reader.wake_by_ref();
        }
    }
}

impl ChannelReader for LocalReader {
    fn try_recv(&mut self) -> Option<Element> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (element, bytes) = queue.elements.pop_front()?;
        queue.bytes -= bytes;
        let wake = queue.writer_waits && queue.has_room();
        if wake {
            queue.writer_waits = false;
        }
        drop(queue);
        if wake {
            self.writer.wake_by_ref();
        }
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::record_batch::RecordBatch;
    use levada_common::time::Watermark;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn batch(rows: usize) -> Element {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        Element::Batch(RecordBatch::try_from_iter([("n", column)]).unwrap())
    }

    fn channel(bounds: LocalBounds) -> (LocalWriter, LocalReader, Arc<Wakes>, Arc<Wakes>) {
        let (writes, reads) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let (writer, reader) = local_channel(Arc::clone(&writes).into(), Arc::clone(&reads).into(), bounds);
        (writer, reader, writes, reads)
    }

    #[test]
    fn a_full_channel_wakes_the_writer_once_there_is_room() {
        let bounds = LocalBounds { elements_min: 1, elements_max: 2, bytes_max: usize::MAX };
        let (mut writer, mut reader, writes, reads) = channel(bounds);
        assert!(writer.is_ready());
        writer.send(batch(1));
        assert!(writer.is_ready());
        writer.send(batch(2));
        assert_eq!(reads.0.load(Ordering::SeqCst), 1, "the reader is woken when the channel is no longer empty");
        assert!(!writer.is_ready());
        writer.send(Element::Watermark(Watermark(1)));
        assert!(reader.try_recv().is_some());
        assert_eq!(writes.0.load(Ordering::SeqCst), 0, "two still wait");
        assert!(reader.try_recv().is_some());
        assert_eq!(writes.0.load(Ordering::SeqCst), 1);
        assert!(writer.is_ready());
        assert!(matches!(reader.try_recv(), Some(Element::Watermark(_))));
        assert!(reader.try_recv().is_none());
        assert_eq!(writes.0.load(Ordering::SeqCst), 1, "nobody waited");
    }

    #[test]
    fn bytes_bound_a_channel_but_never_its_least_elements() {
        let bounds = LocalBounds { elements_min: 2, elements_max: 100, bytes_max: 1000 };
        let (mut writer, mut reader, _, _) = channel(bounds);
        writer.send(batch(1000));
        assert!(writer.is_ready());
        writer.send(batch(1));
        assert!(!writer.is_ready());
        reader.try_recv();
        reader.try_recv();
        for _ in 0..3 {
            assert!(writer.is_ready());
            writer.send(batch(1));
        }
    }
}
