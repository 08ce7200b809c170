//! The TaskManagers that are registered: one loop owns their streams, their slots and the connectors that they bring.
//!
//! Drivers and the dispatcher look at what it publishes; nothing here waits for them. Must never know: what a job does.

mod connection;
mod connectors;
mod registry;
mod slots;

use std::sync::Arc;

use levada_common::declaration::{CustomSink, CustomSource, Declarations};
use levada_common::function::FunctionDeclaration;
use levada_common::ids::{JobId, TaskManagerId};
use levada_jobmanager_core::event::TaskManagerInfo;
use levada_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(crate) use connection::{VERSION, accept, serve};
pub(crate) use registry::Registry;

/// Commands on their way to a TaskManager. Bounded; the stream that is their end belongs to the TaskManager's call.
pub(crate) type Outgoing = mpsc::Sender<Result<v1::ToTaskManager, Status>>;

/// What a TaskManager says of itself, checked.
#[derive(Debug, Clone)]
pub(crate) struct Introduction {
    pub id: TaskManagerId,
    pub version: String,
    pub slots: u32,
    pub data_address: String,
    pub memory_total_bytes: u64,
    pub network_memory_bytes: u64,
    pub heap_state_bytes: u64,
    pub sources: Vec<CustomSource>,
    pub sinks: Vec<CustomSink>,
    pub functions: Vec<FunctionDeclaration>,
}

/// One registration: a TaskManager that comes again is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Registration {
    pub id: TaskManagerId,
    pub number: u64,
}

/// A TaskManager as a job's driver sees it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub registration: Registration,
    pub info: TaskManagerInfo,
    pub outgoing: Outgoing,
}

/// What one job sees of the cluster; the newest value replaces older ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resources {
    pub links: Vec<Link>,
    /// The newest losses and their reasons, at most `LOSSES_MAX`.
    pub losses: Vec<(Registration, String)>,
}

impl Resources {
    /// Losses that are remembered: a driver that looks less often than this many losses only misses a reason.
    const LOSSES_MAX: usize = 64;

    fn same_as(&self, other: &Self) -> bool {
        let key =
            |resources: &Self| -> Vec<_> { resources.links.iter().map(|link| (link.registration, link.info.slots)).collect() };
        key(self) == key(other)
    }
}

/// What the registry hears.
enum Event {
    Register {
        introduction: Introduction,
        outgoing: Outgoing,
        stop: CancellationToken,
        reply: oneshot::Sender<Result<Registration, Status>>,
    },
    Heard(Registration),
    Gone {
        registration: Registration,
        reason: String,
    },
    Join {
        job: JobId,
        slots: u32,
        reply: oneshot::Sender<watch::Receiver<Resources>>,
    },
    Release {
        job: JobId,
        reply: oneshot::Sender<()>,
    },
    Leave(JobId),
    Describe(oneshot::Sender<Vec<v1::TaskManagerStatus>>),
    All(oneshot::Sender<Vec<TaskManagerInfo>>),
}

/// The registry as others see it.
#[derive(Clone)]
pub(crate) struct TaskManagers {
    tx: mpsc::Sender<Event>,
    declarations: watch::Receiver<Arc<Declarations>>,
}

impl TaskManagers {
    /// Every connector that the cluster knows now.
    pub(crate) fn declarations(&self) -> Arc<Declarations> {
        self.declarations.borrow().clone()
    }

    async fn send(&self, event: Event) {
        // The registry ends only with the process; what is sent after that has no reader and needs none.
        let _ = self.tx.send(event).await;
    }

    pub(crate) async fn register(
        &self,
        introduction: Introduction,
        outgoing: Outgoing,
        stop: CancellationToken,
    ) -> Result<Registration, Status> {
        let (reply, answer) = oneshot::channel();
        self.send(Event::Register { introduction, outgoing, stop, reply }).await;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    pub(crate) async fn heard(&self, registration: Registration) {
        self.send(Event::Heard(registration)).await;
    }

    /// A TaskManager is to be taken for lost.
    pub(crate) async fn gone(&self, registration: Registration, reason: String) {
        self.send(Event::Gone { registration, reason }).await;
    }

    /// A job needs so many slots; answers what it sees from now on.
    pub(crate) async fn join(&self, job: JobId, slots: u32) -> Option<watch::Receiver<Resources>> {
        let (reply, answer) = oneshot::channel();
        self.send(Event::Join { job, slots, reply }).await;
        answer.await.ok()
    }

    /// A job gives its slots back, but still waits for as many. What it sees afterwards are not those that it gave back.
    pub(crate) async fn release(&self, job: JobId) {
        let (reply, answer) = oneshot::channel();
        self.send(Event::Release { job, reply }).await;
        // No answer: the registry has ended, and with it the process.
        let _ = answer.await;
    }

    /// A job has ended.
    pub(crate) async fn leave(&self, job: JobId) {
        self.send(Event::Leave(job)).await;
    }

    /// Every TaskManager with all of its slots, whoever holds them.
    pub(crate) async fn all(&self) -> Vec<TaskManagerInfo> {
        let (reply, answer) = oneshot::channel();
        self.send(Event::All(reply)).await;
        answer.await.unwrap_or_default()
    }

    pub(crate) async fn describe(&self) -> Vec<v1::TaskManagerStatus> {
        let (reply, answer) = oneshot::channel();
        self.send(Event::Describe(reply)).await;
        answer.await.unwrap_or_default()
    }
}

/// The answer of whatever is asked while the JobManager stops.
pub(crate) fn stopping() -> Status {
    Status::unavailable("the JobManager is stopping")
}
