//! Deployments: one message for each TaskManager, with references to states and never their bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use levada_common::checkpoint::Handle;
use levada_common::ids::{AttemptId, CheckpointId, SubtaskIndex, TaskManagerId, Uid};
use levada_jobmanager_core::event::{StateAssignment, TaskDeployment};
use levada_proto::convert::{RestorePlace, RestoreState, attempt_to_ref};
use levada_proto::v1;

/// Inline states of one attempt by number, each once however many tasks restore from it.
#[derive(Debug)]
pub(super) struct Numbering {
    next: u64,
    numbers: BTreeMap<(Uid, String, SubtaskIndex), u64>,
    pub bytes: BTreeMap<u64, Bytes>,
}

impl Numbering {
    /// Numbers from `next` on.
    pub(super) fn new(next: u64) -> Self {
        Self { next, numbers: BTreeMap::new(), bytes: BTreeMap::new() }
    }

    /// The first number that is not given.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn of(&mut self, assignment: &StateAssignment, bytes: &Bytes) -> u64 {
        let state = &assignment.state;
        let next = &mut self.next;
        let number = *self.numbers.entry((state.uid.clone(), state.name.clone(), state.subtask)).or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        self.bytes.entry(number).or_insert_with(|| bytes.clone());
        number
    }
}

/// What an attempt's deployment says besides its tasks.
pub(super) struct Deployment<'a> {
    pub attempt: AttemptId,
    pub plan_json: Bytes,
    pub restored: Option<CheckpointId>,
    pub channel_window_bytes: u64,
    /// URI of the directory below which the restored files are; empty where there is none.
    pub directory: String,
    /// The plan's.
    pub max_parallelism: u32,
    /// Data addresses of the TaskManagers.
    pub addresses: &'a BTreeMap<TaskManagerId, String>,
}

impl Deployment<'_> {
    /// The message for each TaskManager that gets tasks.
    pub(super) fn messages(&self, tasks: Vec<TaskDeployment>, numbering: &mut Numbering) -> BTreeMap<TaskManagerId, v1::Deploy> {
        let locations: Vec<v1::TaskLocation> = tasks.iter().map(|task| self.location(task)).collect();
        let mut messages: BTreeMap<TaskManagerId, v1::Deploy> = BTreeMap::new();
        for task in tasks {
            let message = messages.entry(task.task_manager).or_insert_with(|| v1::Deploy {
                attempt: Some(attempt_to_ref(self.attempt)),
                plan_json: self.plan_json.clone(),
                tasks: Vec::new(),
                locations: locations.clone(),
                restored_checkpoint: self.restored.map_or(0, |id| id.0),
                channel_window_bytes: self.channel_window_bytes,
            });
            message.tasks.push(v1::DeployTask {
                vertex: task.task.vertex.0,
                subtask: task.task.subtask.0,
                finished: task.finished,
                states: task.states.into_iter().map(|state| self.state(state, numbering).into()).collect(),
                splits: task.splits,
            });
        }
        messages
    }

    fn location(&self, task: &TaskDeployment) -> v1::TaskLocation {
        v1::TaskLocation {
            vertex: task.task.vertex.0,
            subtask: task.task.subtask.0,
            task_manager_id: task.task_manager.to_string(),
            data_address: self.addresses.get(&task.task_manager).cloned().unwrap_or_default(),
        }
    }

    fn state(&self, assignment: StateAssignment, numbering: &mut Numbering) -> RestoreState {
        let length = assignment.state.handle.length();
        let place = match &assignment.state.handle {
            Handle::Inline(bytes) => RestorePlace::Inline(numbering.of(&assignment, bytes)),
            Handle::File { path, offset, .. } => {
                RestorePlace::File { directory: self.directory.clone(), path: path.clone(), offset: *offset }
            }
            Handle::Database { files, family } => {
                RestorePlace::Database { directory: self.directory.clone(), files: Arc::clone(files), family: family.clone() }
            }
        };
        let StateAssignment { state, max_parallelism, entries } = assignment;
        RestoreState {
            uid: state.uid,
            name: state.name,
            kind: state.kind,
            schema: state.schema,
            subtask: state.subtask,
            key_groups: state.key_groups,
            rows: state.rows,
            crc32c: state.crc32c,
            length,
            place,
            max_parallelism: (max_parallelism != self.max_parallelism).then_some(max_parallelism),
            entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_common::checkpoint::{StateHandle, StateKind};
    use levada_common::ids::{Attempt, Epoch, JobId, TaskId, VertexId};
    use levada_common::keys::KeyGroupRange;

    use super::*;

    fn assignment(name: &str, subtask: u32, handle: Handle, entries: std::ops::Range<u64>) -> StateAssignment {
        let state = StateHandle {
            uid: Uid::new("lines"),
            name: name.into(),
            kind: StateKind::OperatorList,
            schema: Arc::default(),
            subtask: SubtaskIndex(subtask),
            key_groups: KeyGroupRange { start: 0, end: 127 },
            rows: 4,
            crc32c: 9,
            handle,
        };
        StateAssignment { state, max_parallelism: 128, entries }
    }

    #[test]
    fn an_inline_state_has_one_number_for_all_its_readers() {
        let (a, b) = (TaskManagerId::from_u128(1), TaskManagerId::from_u128(2));
        let inline = || Handle::Inline(Bytes::from_static(b"state"));
        let file = Handle::File { path: "chk-1/f".into(), offset: 3, length: 5 };
        let task = |subtask, task_manager, states| TaskDeployment {
            task: TaskId::new(VertexId(0), subtask),
            task_manager,
            finished: false,
            states,
            splits: vec![],
        };
        let tasks = vec![
            task(0, a, vec![assignment("splits", 0, inline(), 0..2)]),
            task(1, b, vec![assignment("splits", 0, inline(), 2..4), assignment("splits", 1, inline(), 0..4)]),
            task(2, a, vec![assignment("other", 0, file, 0..4)]),
        ];
        let attempt = AttemptId { job: JobId::from_u128(1), attempt: Attempt(2), epoch: Epoch(1) };
        let addresses = BTreeMap::from([(a, "a:1".to_string()), (b, "b:1".to_string())]);
        let deployment = Deployment {
            attempt,
            plan_json: Bytes::from_static(b"{}"),
            restored: Some(CheckpointId(7)),
            channel_window_bytes: 1 << 20,
            directory: "file:///c/1".into(),
            max_parallelism: 256,
            addresses: &addresses,
        };
        let mut numbering = Numbering::new(10);
        let messages = deployment.messages(tasks, &mut numbering);
        assert_eq!(numbering.bytes.keys().copied().collect::<Vec<_>>(), [10, 11]);
        assert_eq!(numbering.next(), 12);
        assert_eq!(messages[&a].tasks.len(), 2);
        assert_eq!(messages[&b].locations.len(), 3);
        assert_eq!(messages[&b].restored_checkpoint, 7);
        let restore = |tm: &TaskManagerId, task: usize, state: usize| {
            RestoreState::try_from(messages[tm].tasks[task].states[state].clone()).unwrap()
        };
        assert_eq!(restore(&a, 0, 0).max_parallelism, Some(128));
        let place = |tm: &TaskManagerId, task: usize, state: usize| restore(tm, task, state).place;
        assert_eq!(place(&a, 0, 0), RestorePlace::Inline(10));
        assert_eq!(place(&b, 0, 0), RestorePlace::Inline(10));
        assert_eq!(place(&b, 0, 1), RestorePlace::Inline(11));
        let directory = "file:///c/1".to_string();
        assert_eq!(place(&a, 1, 0), RestorePlace::File { directory, path: "chk-1/f".into(), offset: 3 });
    }
}
