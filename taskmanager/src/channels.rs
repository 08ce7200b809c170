//! The channels of an attempt, as far as they have an end in this TaskManager.
//!
//! A channel with both ends here is a queue; with one end here it is a stream to or from another TaskManager. Invariant: a
//! task's inputs are in the order of its in-edges and, within each, of the sending subtasks; its outputs in that of the plan.

use std::collections::HashMap;
use std::sync::Arc;

use levada_common::fault::{Failure, Faulty};
use levada_common::ids::{AttemptId, TaskId, TaskManagerId};
use levada_common::plan::{Edge, Plan};
use levada_engine::channel::{ChannelReader, ChannelWriter};
use levada_engine::gate::input::ChannelRole;
use levada_engine::task::{InputChannel, OutputEdge};
use tokio_util::sync::CancellationToken;

use crate::inbox::InboxSender;
use crate::net::client::OutboundChannel;
use crate::net::local::{LocalBounds, local_channel};
use crate::net::queue::Queue;
use crate::net::registry::Inbound;
use crate::net::remote::{ChannelKey, ChannelName, QUEUE_BYTES_MAX, RemoteReader, RemoteWriter};
use crate::task::task_name;

/// Where a task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The TaskManager.
    pub task_manager: TaskManagerId,
    /// host:port of its data port.
    pub data_address: String,
}

/// What wiring needs to know of an attempt.
pub struct WiringPlan<'a> {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its plan.
    pub plan: &'a Plan,
    /// Where each of its tasks runs.
    pub locations: &'a HashMap<TaskId, Location>,
    /// The inboxes of those that run here.
    pub inboxes: &'a HashMap<TaskId, InboxSender>,
    /// Cancelled with the attempt.
    pub cancelled: &'a CancellationToken,
    /// Bytes planned for each channel between TaskManagers.
    pub window_bytes: u64,
}

/// The channel ends of one task.
#[derive(Default)]
pub struct Ends {
    /// Receiving ends.
    pub inputs: Vec<InputChannel>,
    /// Sending ends.
    pub outputs: Vec<OutputEdge>,
}

/// All ends in this TaskManager.
#[derive(Default)]
pub struct Wiring {
    /// By task.
    pub ends: HashMap<TaskId, Ends>,
    /// Channels that other TaskManagers will push.
    pub inbound: Vec<Inbound>,
    /// Channels to push.
    pub outbound: Vec<OutboundChannel>,
}

/// A receiving end and its place among its task's inputs.
struct PlacedReader {
    place: (u32, u32, u32),
    role: ChannelRole,
    reader: Box<dyn ChannelReader>,
}

/// Makes every channel of the attempt that has an end here.
///
/// Errors: Internal, where the deployment names no place for a task of the plan.
pub fn wire(wiring: &WiringPlan<'_>) -> Result<Wiring, Failure> {
    let mut made = Wiring::default();
    let mut readers: HashMap<TaskId, Vec<PlacedReader>> = HashMap::new();
    for task in wiring.inboxes.keys() {
        made.ends.insert(*task, Ends::default());
    }
    for (index, edge) in wiring.plan.edges.iter().enumerate() {
        let from_parallelism = wiring.plan.vertex(edge.from).parallelism;
        let to_parallelism = wiring.plan.vertex(edge.to).parallelism;
        let role = ChannelRole::of(wiring.plan, edge);
        for from in 0..from_parallelism {
            let mut channels: Vec<Box<dyn ChannelWriter>> = Vec::new();
            for to in edge.targets(from, from_parallelism, to_parallelism) {
                let (writer, reader) = wiring.channel(&mut made, index as u32, edge, from, to)?;
                channels.extend(writer);
                if let Some(reader) = reader {
                    let place = (edge.input, index as u32, from);
                    readers.entry(TaskId::new(edge.to, to)).or_default().push(PlacedReader { place, role, reader });
                }
            }
            if let Some(ends) = made.ends.get_mut(&TaskId::new(edge.from, from)) {
                ends.outputs.push(OutputEdge { edge: edge.clone(), channels });
            }
        }
    }
    for (task, mut placed) in readers {
        placed.sort_by_key(|reader| reader.place);
        let ends = made.ends.get_mut(&task).expect("a reader is made for tasks that run here only");
        ends.inputs = placed.into_iter().map(|PlacedReader { role, reader, .. }| InputChannel { role, reader }).collect();
    }
    Ok(made)
}

type ChannelEnds = (Option<Box<dyn ChannelWriter>>, Option<Box<dyn ChannelReader>>);

impl WiringPlan<'_> {
    fn location(&self, task: TaskId) -> Result<&Location, Failure> {
        self.locations.get(&task).ok_or_else(|| Failure::internal(format!("the deployment says of no place for task {task}")))
    }

    fn name(&self, edge: &Edge, from: u32, to: u32, peer: TaskId) -> Result<Arc<ChannelName>, Failure> {
        Ok(Arc::new(ChannelName {
            from: task_name(&self.plan.vertex(edge.from).name, from),
            to: task_name(&self.plan.vertex(edge.to).name, to),
            peer: self.location(peer)?.data_address.clone(),
        }))
    }

    /// The ends of one channel that are here.
    fn channel(&self, made: &mut Wiring, index: u32, edge: &Edge, from: u32, to: u32) -> Result<ChannelEnds, Failure> {
        let (sender, receiver) = (TaskId::new(edge.from, from), TaskId::new(edge.to, to));
        let key = ChannelKey { attempt: self.attempt, edge: index, from_subtask: from, to_subtask: to };
        let schema = || edge.schema.to_arrow();
        Ok(match (self.inboxes.get(&sender), self.inboxes.get(&receiver)) {
            (None, None) => (None, None),
            (Some(sender), Some(receiver)) => {
                let (writer, reader) = local_channel(sender.waker(), receiver.waker(), LocalBounds::default());
                (Some(Box::new(writer)), Some(Box::new(reader)))
            }
            (Some(inbox), None) => {
                let name = self.name(edge, from, to, receiver)?;
                let queue = Queue::new(QUEUE_BYTES_MAX, inbox.waker());
                let writer = RemoteWriter::new(Arc::clone(&queue), &schema(), inbox.clone(), Arc::clone(&name));
                let writer = writer.map_err(|error| error.to_failure())?;
                made.outbound.push(OutboundChannel {
                    key,
                    queue,
                    inbox: inbox.clone(),
                    name,
                    cancelled: self.cancelled.clone(),
                    window_bytes: self.window_bytes,
                });
                (Some(Box::new(writer)), None)
            }
            (None, Some(inbox)) => {
                let name = self.name(edge, from, to, sender)?;
                let queue = Queue::new(QUEUE_BYTES_MAX, inbox.waker());
                let reader = RemoteReader::new(Arc::clone(&queue), schema(), inbox.clone(), Arc::clone(&name));
                let cancelled = self.cancelled.clone();
                made.inbound.push(Inbound { key, queue, inbox: inbox.clone(), name, cancelled });
                (None, Some(Box::new(reader)))
            }
        })
    }
}
