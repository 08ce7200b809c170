//! The ends of a channel to another TaskManager, as the task's thread sees them.
//!
//! Frames are made and read here, on the task's thread, which thereby pays for its own rows. Invariant: an end that cannot go
//! on fails its task once, through the inbox, naming both ends, and is silent afterwards.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use levada_common::fault::{Failure, Faulty};
use levada_common::ids::AttemptId;
use levada_engine::channel::{ChannelReader, ChannelWriter};
use levada_engine::element::Element;
use levada_proto::frame::Frame;

use super::frame::{FrameEncoder, FrameError, decode};
use super::queue::Queue;
use crate::inbox::InboxSender;

/// Bytes that wait between a task's thread and the network, on either side, above which the other is held up.
pub const QUEUE_BYTES_MAX: usize = 256 * 1024;

/// Which channel: of which attempt, which edge, which pair of subtasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelKey {
    /// The attempt.
    pub attempt: AttemptId,
    /// Place of the edge in the plan.
    pub edge: u32,
    /// The sending subtask.
    pub from_subtask: u32,
    /// The receiving subtask.
    pub to_subtask: u32,
}

/// How messages name a channel: both tasks, and where the other one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelName {
    /// The sending task.
    pub from: String,
    /// The receiving task.
    pub to: String,
    /// Data address of the TaskManager at the other end.
    pub peer: String,
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel from {} to {} (TaskManager {})", self.from, self.to, self.peer)
    }
}

impl ChannelName {
    /// The channel broke: something outside failed.
    pub fn broken(&self, how: &str) -> Failure {
        Failure::external(format!("{self} broke: {how}"))
    }

    fn frame_failure(&self, error: &FrameError) -> Failure {
        let failure = error.to_failure();
        Failure { message: format!("{self}: {}", failure.message), ..failure }
    }
}

/// The sending end.
pub struct RemoteWriter {
    queue: Arc<Queue<Frame>>,
    encoder: FrameEncoder,
    inbox: InboxSender,
    name: Arc<ChannelName>,
    silent: bool,
}

impl RemoteWriter {
    /// Writes batches of `schema` into `queue`, for the task of `inbox`.
    pub fn new(
        queue: Arc<Queue<Frame>>,
        schema: &SchemaRef,
        inbox: InboxSender,
        name: Arc<ChannelName>,
    ) -> Result<Self, FrameError> {
        Ok(Self { queue, encoder: FrameEncoder::new(schema)?, inbox, name, silent: false })
    }

    /// Ends the stream without the end of data, which no task does.
    #[cfg(test)]
    pub fn close_early(&self) {
        self.queue.close();
    }
}

impl ChannelWriter for RemoteWriter {
    fn is_ready(&mut self) -> bool {
        self.queue.has_room()
    }

    fn send(&mut self, element: Element) {
        if self.silent {
            return;
        }
        let last = matches!(element, Element::EndOfData);
        let queue = &self.queue;
        if let Err(error) = self.encoder.encode(element, &mut |frame| queue.put(frame)) {
            self.silent = true;
            self.inbox.fail(self.name.frame_failure(&error));
        } else if last {
            self.silent = true;
            self.queue.close();
        }
    }
}

/// The receiving end.
pub struct RemoteReader {
    queue: Arc<Queue<Bytes>>,
    schema: SchemaRef,
    inbox: InboxSender,
    name: Arc<ChannelName>,
    silent: bool,
}

impl RemoteReader {
    /// Reads batches of `schema` from `queue`, for the task of `inbox`.
    pub fn new(queue: Arc<Queue<Bytes>>, schema: SchemaRef, inbox: InboxSender, name: Arc<ChannelName>) -> Self {
        Self { queue, schema, inbox, name, silent: false }
    }
}

impl ChannelReader for RemoteReader {
    fn try_recv(&mut self) -> Option<Element> {
        if self.silent {
            return None;
        }
        let bytes = self.queue.take()?;
        match decode(bytes, &self.schema) {
            Ok(element) => Some(element),
            Err(error) => {
                self.silent = true;
                self.inbox.fail(self.name.frame_failure(&error));
                None
            }
        }
    }
}
