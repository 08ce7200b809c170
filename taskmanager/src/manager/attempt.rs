//! The tasks of one attempt that run here, from their deployment to their end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;

use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, TaskId};
use levada_common::plan::Plan;
use levada_engine::task::TaskParts;
use levada_state::cold::ColdStores;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Event, Tools};
use crate::channels::{Ends, WiringPlan, wire};
use crate::deploy::{DeployedTask, Deployment};
use crate::inbox::{Control, Inbox, InboxSender, inbox};
use crate::restore::{Restored, Restorer};
use crate::rpc::JobManager;
use crate::runner::{self, TaskStart};
use crate::task::{TaskHandle, TaskState, Voice};
use crate::upload::{Destination, Uploads};

/// How far a task is.
enum Stage {
    /// Its state is being fetched.
    Restoring(Box<Unstarted>),
    /// Its thread runs.
    Running,
    /// It failed; its channels wait for the cancel.
    Failed,
    /// It finished or was cancelled.
    Ended,
}

/// What a task will start with.
struct Unstarted {
    inbox: Inbox,
    ends: Ends,
    finished: bool,
    splits: Vec<String>,
}

struct Entry {
    handle: Arc<TaskHandle>,
    stage: Stage,
}

/// The tasks of one attempt that run here.
pub struct Running {
    attempt: AttemptId,
    plan: Arc<Plan>,
    restored_from: Option<CheckpointId>,
    tasks: BTreeMap<TaskId, Entry>,
    uploads: Arc<Uploads>,
    cancelled: CancellationToken,
    /// Pushes of channels and restores.
    background: TaskTracker,
}

impl Running {
    /// Makes channels and begins to restore; each task starts when its state is there.
    ///
    /// Errors: the deployment needs more slots than are free, or cannot be wired; nothing has started then.
    pub fn start(tools: &Tools, deployment: Deployment, job_manager: JobManager, slots_free: u32) -> Result<Self, Failure> {
        let Deployment { attempt, plan, restored_from, tasks, locations, window_bytes } = deployment;
        let needed = slots(tasks.iter().map(|task| task.task));
        if needed > slots_free {
            let all = tools.slots;
            return Err(Failure::internal(format!("the deployment needs {needed} slots, {slots_free} of {all} are free here")));
        }
        let inboxes: HashMap<TaskId, (InboxSender, Inbox)> = tasks.iter().map(|task| (task.task, inbox())).collect();
        let senders: HashMap<TaskId, InboxSender> = inboxes.iter().map(|(task, (sender, _))| (*task, sender.clone())).collect();
        let cancelled = CancellationToken::new();
        let mut wiring = wire(&WiringPlan {
            attempt,
            plan: &plan,
            locations: &locations,
            inboxes: &senders,
            cancelled: &cancelled,
            window_bytes,
        })?;
        let destination = Destination::of(attempt.job, &plan.settings, job_manager.frame_bytes());
        let destination = destination.map_err(|error| Failure::external(format!("the checkpoint directory: {error}")))?;
        let own_directory = destination.uri().map(String::from);
        let (traffic, scratch) = (Arc::clone(tools.databases.traffic()), tools.databases.scratch());
        let (calls, pool) = (job_manager.clone(), tools.snapshots.clone());
        let uploads = Uploads::new(attempt, Arc::clone(&plan), calls, destination, traffic, scratch, pool);
        let background = TaskTracker::new();
        tools.registry.register(attempt, std::mem::take(&mut wiring.inbound));
        for channel in std::mem::take(&mut wiring.outbound) {
            background.spawn_on(Arc::clone(&tools.peers).push(channel), &tools.data);
        }
        let mut running = Self { attempt, plan, restored_from, tasks: BTreeMap::new(), uploads, cancelled, background };
        let databases = Arc::clone(&tools.databases);
        let restorer = Restorer::new(attempt, Arc::clone(&running.plan), job_manager, databases, own_directory);
        for ((task, (sender, inbox)), ends) in pair(inboxes, &mut wiring.ends) {
            let handle = Arc::new(TaskHandle::new(attempt, task, &running.plan, sender));
            let unstarted = Unstarted { inbox, ends, finished: false, splits: Vec::new() };
            running.tasks.insert(task, Entry { handle, stage: Stage::Restoring(Box::new(unstarted)) });
        }
        tools.board.add(running.tasks.values().map(|entry| Arc::clone(&entry.handle)));
        for task in tasks {
            running.restore(tools, &restorer, task);
        }
        Ok(running)
    }

    fn restore(&mut self, tools: &Tools, restorer: &Arc<Restorer>, deployed: DeployedTask) {
        let DeployedTask { task, finished, states, splits } = deployed;
        if let Some(Entry { stage: Stage::Restoring(unstarted), .. }) = self.tasks.get_mut(&task) {
            (unstarted.finished, unstarted.splits) = (finished, splits);
        }
        let (events, attempt) = (tools.events.clone(), self.attempt);
        let (restorer, cancelled) = (Arc::clone(restorer), self.cancelled.clone());
        let waker = self.tasks.get(&task).map_or_else(|| Waker::noop().clone(), |entry| entry.handle.inbox.waker());
        let restoring = async move {
            let restored = tokio::select! {
                restored = restorer.restore(task, states, waker) => restored,
                () = cancelled.cancelled() => return,
            };
            let _ = events.send(Event::Restored { attempt, task, restored });
        };
        self.background.spawn_on(restoring, &tools.snapshots);
    }

    /// Starts a task whose state is there; one that was cancelled meanwhile stays ended.
    pub fn launch(&mut self, tools: &Tools, task: TaskId, restored: Result<Restored, Failure>) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if !matches!(entry.stage, Stage::Restoring(_)) {
            return;
        }
        let Stage::Restoring(unstarted) = std::mem::replace(&mut entry.stage, Stage::Running) else { unreachable!("just seen") };
        let voice = Voice::new(tools.events.clone(), self.attempt, task);
        let restored = match restored {
            Ok(restored) => restored,
            Err(failure) => return voice.say(TaskState::Failed(failure)),
        };
        for (uid, files) in restored.reusable {
            self.uploads.restored(task, uid, files);
        }
        let parts = TaskParts {
            plan: Arc::clone(&self.plan),
            vertex: task.vertex,
            subtask: task.subtask.0,
            attempt: self.attempt,
            restored_from: self.restored_from,
            finished: unstarted.finished,
            restored: restored.states,
            splits: unstarted.splits,
            inputs: unstarted.ends.inputs,
            outputs: unstarted.ends.outputs,
            waker: entry.handle.inbox.waker(),
            cold: restored.databases.map(|databases| databases as Arc<dyn ColdStores>),
            metrics: Arc::clone(&entry.handle.metrics),
            node_metrics: entry.handle.nodes.clone(),
        };
        let (handle, uploads) = (Arc::clone(&entry.handle), Arc::clone(&self.uploads));
        let start = TaskStart { handle, inbox: unstarted.inbox, parts, uploads, voice: voice.clone() };
        if let Err(error) = runner::start(start, tools.surroundings.clone()) {
            voice.say(TaskState::Failed(Failure::external(format!("a thread for a task cannot be started: {error}"))));
        }
    }

    /// Slots that the attempt holds: none once it is being cancelled.
    pub fn slots(&self) -> u32 {
        if self.is_cancelling() { 0 } else { slots(self.tasks.keys().copied()) }
    }

    /// Tells one task something.
    pub fn tell(&self, task: TaskId, control: Control) {
        if let Some(entry) = self.tasks.get(&task) {
            entry.handle.inbox.send(control);
        }
    }

    /// A checkpoint is complete or given up.
    pub fn notify(&self, checkpoint: CheckpointId, completed: bool, last: bool) {
        match completed {
            true => self.uploads.complete(checkpoint),
            false => self.uploads.give_up(checkpoint),
        }
        for entry in self.tasks.values() {
            entry.handle.inbox.send(Control::Notify { checkpoint, completed, last });
        }
    }

    /// Takes note of what a task says; answers what of it the JobManager is to hear.
    pub fn said(&mut self, task: TaskId, state: TaskState) -> Option<TaskState> {
        let cancelling = self.is_cancelling();
        let entry = self.tasks.get_mut(&task)?;
        if !matches!(entry.stage, Stage::Running) {
            return None;
        }
        let state = match state {
            // What breaks while everything is torn down is no failure.
            TaskState::Failed(_) if cancelling => TaskState::Canceled,
            state => state,
        };
        if state.is_end() {
            entry.stage = if matches!(state, TaskState::Failed(_)) { Stage::Failed } else { Stage::Ended };
        }
        Some(state)
    }

    /// Whether the attempt is being cancelled.
    pub fn is_cancelling(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Ends everything; answers the tasks that ended at once, because they had not started.
    pub fn cancel(&mut self) -> Vec<TaskId> {
        self.cancelled.cancel();
        self.uploads.cancel();
        let mut ended = Vec::new();
        for (task, entry) in &mut self.tasks {
            entry.handle.inbox.send(Control::Cancel);
            match entry.stage {
                Stage::Restoring(_) => {
                    entry.stage = Stage::Ended;
                    ended.push(*task);
                }
                Stage::Failed => entry.stage = Stage::Ended,
                Stage::Running | Stage::Ended => {}
            }
        }
        ended
    }

    /// Gives up waiting for tasks that have not ended since the cancel; answers them.
    pub fn abandon(&mut self) -> Vec<TaskId> {
        let running = self.tasks.iter_mut().filter(|(_, entry)| matches!(entry.stage, Stage::Running));
        running
            .map(|(task, entry)| {
                entry.stage = Stage::Ended;
                *task
            })
            .collect()
    }

    /// Whether nothing of the attempt is left to wait for.
    pub fn is_over(&self) -> bool {
        self.tasks.values().all(|entry| matches!(entry.stage, Stage::Ended))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel();
    }
}

type Inboxes = HashMap<TaskId, (InboxSender, Inbox)>;

/// A task with both ends of its inbox.
type OwnInbox = (TaskId, (InboxSender, Inbox));

/// Each task's inbox with its channel ends.
fn pair(inboxes: Inboxes, ends: &mut HashMap<TaskId, Ends>) -> Vec<(OwnInbox, Ends)> {
    let with_ends = inboxes.into_iter().map(|(task, inbox)| ((task, inbox), ends.remove(&task).unwrap_or_default()));
    with_ends.collect()
}

/// Slots that these tasks take: every slot takes one subtask of each vertex.
fn slots(tasks: impl Iterator<Item = TaskId>) -> u32 {
    let mut by_vertex: HashMap<_, u32> = HashMap::new();
    for task in tasks {
        *by_vertex.entry(task.vertex).or_default() += 1;
    }
    by_vertex.into_values().max().unwrap_or(0)
}
