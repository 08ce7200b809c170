//! The two ends of a channel, as a task sees them. The shell makes them: queues inside a process, gRPC streams between.

use crate::element::Element;

/// The receiving end: elements of one sending subtask, in order.
pub trait ChannelReader: Send {
    /// The next element, without waiting.
    fn try_recv(&mut self) -> Option<Element>;
}

/// The sending end.
///
/// Contract: `send` never waits and takes an element even where `is_ready` says no (signals may exceed the bound by a few);
/// rows are sent only after `is_ready`. When room appears the shell wakes the task.
pub trait ChannelWriter: Send {
    /// Whether there is room for a batch.
    fn is_ready(&mut self) -> bool;

    /// Puts an element at the end.
    fn send(&mut self, element: Element);
}
