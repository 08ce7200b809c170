//! The registry's loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_common::declaration::Declarations;
use levada_common::ids::{JobId, TaskManagerId};
use levada_jobmanager_core::event::TaskManagerInfo;
use levada_jobmanager_core::liveness::Liveness;
use levada_proto::v1;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};

use super::connectors::Connectors;
use super::slots::Slots;
use super::{Event, Introduction, Link, Outgoing, Registration, Resources, TaskManagers};
use crate::clock::{Clock, sleep_until};

/// Events that wait for the registry.
const INBOX: usize = 1024;

/// A TaskManager that is registered.
struct Member {
    introduction: Introduction,
    number: u64,
    outgoing: Outgoing,
    /// Ends the TaskManager's call.
    stop: CancellationToken,
}

impl Member {
    fn info(&self, id: TaskManagerId, slots: u32) -> TaskManagerInfo {
        let Introduction { data_address, network_memory_bytes, .. } = &self.introduction;
        TaskManagerInfo { id, data_address: data_address.clone(), slots, network_memory_bytes: *network_memory_bytes }
    }
}

/// The owner of all registrations.
pub(crate) struct Registry {
    inbox: mpsc::Receiver<Event>,
    declarations: watch::Sender<Arc<Declarations>>,
    clock: Clock,
    members: BTreeMap<TaskManagerId, Member>,
    next_number: u64,
    liveness: Liveness,
    slots: Slots,
    connectors: Connectors,
    jobs: BTreeMap<JobId, watch::Sender<Resources>>,
    losses: Vec<(Registration, String)>,
}

impl Registry {
    /// A registry without TaskManagers, which takes one for lost after `timeout_ms` of silence.
    pub(crate) fn new(clock: Clock, timeout_ms: u64, built_in: Declarations) -> (Self, TaskManagers) {
        let (tx, inbox) = mpsc::channel(INBOX);
        let connectors = Connectors::new(built_in);
        let (declarations, table) = watch::channel(connectors.table());
        let registry = Self {
            inbox,
            declarations,
            clock,
            members: BTreeMap::new(),
            next_number: 1,
            liveness: Liveness::new(timeout_ms),
            slots: Slots::default(),
            connectors,
            jobs: BTreeMap::new(),
            losses: Vec::new(),
        };
        (registry, TaskManagers { tx, declarations: table })
    }

    /// Runs until `stop`; then every TaskManager's call ends.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let deadline = self.liveness.deadline().map(|at| self.clock.timer(at));
            tokio::select! {
                // What was heard counts before silence does: a registry that was late must not find everyone silent.
                biased;
                () = stop.cancelled() => break,
                event = self.inbox.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
                () = sleep_until(deadline) => self.expire(),
            }
        }
        for member in self.members.values() {
            member.stop.cancel();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Register { introduction, outgoing, stop, reply } => {
                let _ = reply.send(self.register(introduction, outgoing, stop));
            }
            Event::Heard(registration) => {
                if self.is_current(registration) {
                    self.liveness.heard(registration.id, self.clock.now());
                }
            }
            Event::Gone { registration, reason } => {
                if self.is_current(registration) {
                    self.lose(registration.id, reason);
                }
            }
            Event::Join { job, slots, reply } => {
                self.slots.join(job, slots);
                let (tx, rx) = watch::channel(self.resources(job));
                self.jobs.insert(job, tx);
                let _ = reply.send(rx);
                self.publish();
            }
            Event::Release { job, reply } => {
                self.slots.release(job);
                self.publish();
                let _ = reply.send(());
            }
            Event::Leave(job) => {
                self.jobs.remove(&job);
                self.slots.leave(job);
                self.publish();
            }
            Event::Describe(reply) => {
                let _ = reply.send(self.describe());
            }
            Event::All(reply) => {
                let all = self.members.iter().map(|(id, member)| member.info(*id, member.introduction.slots));
                let _ = reply.send(all.collect());
            }
        }
    }

    fn is_current(&self, registration: Registration) -> bool {
        self.members.get(&registration.id).is_some_and(|member| member.number == registration.number)
    }

    fn register(
        &mut self,
        introduction: Introduction,
        outgoing: Outgoing,
        stop: CancellationToken,
    ) -> Result<Registration, Status> {
        let id = introduction.id;
        if let Err(conflict) = self.connectors.check(&introduction) {
            warn!(task_manager = %id, address = introduction.data_address, "refused: {conflict}");
            return Err(Status::failed_precondition(conflict.to_string()));
        }
        if self.members.contains_key(&id) {
            self.lose(id, "it registered anew".into());
        }
        let registration = Registration { id, number: self.next_number };
        self.next_number += 1;
        info!(task_manager = %id, address = introduction.data_address, slots = introduction.slots, "TaskManager registered");
        self.connectors.add(registration, &introduction);
        self.declarations.send_replace(self.connectors.table());
        self.liveness.register(id, self.clock.now());
        let slots = introduction.slots;
        self.members.insert(id, Member { introduction, number: registration.number, outgoing, stop });
        self.slots.add(id, slots);
        self.publish();
        Ok(registration)
    }

    fn expire(&mut self) {
        for (id, reason) in self.liveness.expire(self.clock.now()) {
            self.lose(id, reason);
        }
    }

    fn lose(&mut self, id: TaskManagerId, reason: String) {
        let Some(member) = self.members.remove(&id) else { return };
        let registration = Registration { id, number: member.number };
        warn!(task_manager = %id, address = member.introduction.data_address, reason, "TaskManager lost");
        member.stop.cancel();
        self.liveness.remove(id);
        self.connectors.remove(registration);
        self.slots.remove(id);
        if self.losses.len() == Resources::LOSSES_MAX {
            self.losses.remove(0);
        }
        self.losses.push((registration, reason));
        self.publish();
    }

    /// Lets each job see what changed for it.
    fn publish(&self) {
        for (job, tx) in &self.jobs {
            let resources = self.resources(*job);
            tx.send_if_modified(|seen| {
                let changed = !seen.same_as(&resources);
                if changed {
                    *seen = resources;
                }
                changed
            });
        }
    }

    fn resources(&self, job: JobId) -> Resources {
        let links = self.members.iter().map(|(id, member)| Link {
            registration: Registration { id: *id, number: member.number },
            info: member.info(*id, self.slots.offered(job, *id)),
            outgoing: member.outgoing.clone(),
        });
        Resources { links: links.collect(), losses: self.losses.clone() }
    }

    fn describe(&self) -> Vec<v1::TaskManagerStatus> {
        let status = |(id, member): (&TaskManagerId, &Member)| {
            let introduction = &member.introduction;
            v1::TaskManagerStatus {
                id: id.to_string(),
                address: introduction.data_address.clone(),
                slots: introduction.slots,
                slots_free: self.slots.free(*id),
                memory_total_bytes: introduction.memory_total_bytes,
                network_memory_bytes: introduction.network_memory_bytes,
                heap_state_bytes: introduction.heap_state_bytes,
                version: introduction.version.clone(),
            }
        };
        self.members.iter().map(status).collect()
    }
}
