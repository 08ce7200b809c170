//! Snapshots of tests' jobs that have no processes: they go out as tasks send them, are given out as the JobManager does, and come
//! back as tasks are deployed. What runs the tasks is the tests' own.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, Handle, TaskSnapshot, VertexOperators};
use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, Epoch, JobId, SubtaskIndex, TaskId};
use levada_common::plan::{BackendKind, Plan};
use levada_common::storage::Storage;
use levada_jobmanager_core::event::StateAssignment;
use levada_proto::convert::{RestorePlace, RestoreState, state_from_message, task_from_ref};

use super::{Restored, Restorer};
use crate::databases::Databases;
use crate::testing::{TestJobManager, Told, databases_in};
use crate::upload::{Destination, Uploads};

const FRAME_BYTES: u64 = 10 << 20;

/// Where snapshots go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Files of this machine.
    Files,
    /// Objects, as those of S3, in memory.
    Objects,
    /// A savepoint's folder on this machine.
    Savepoint,
}

/// A snapshot of a job, and where its files are.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub metadata: CheckpointMetadata,
    /// URI of the folder.
    pub directory: String,
}

impl Snapshot {
    /// The path of a file on this machine.
    pub fn path(&self, file: &str) -> std::path::PathBuf {
        std::path::Path::new(self.directory.trim_start_matches("file://")).join(file)
    }
}

/// What snapshots go to and come from.
pub struct Shipping {
    dir: tempfile::TempDir,
    job_manager: TestJobManager,
    databases: Arc<Databases>,
    storage: Storage,
    place: Place,
    /// What was acknowledged.
    heard: BTreeSet<(AttemptId, TaskId, u64)>,
}

impl Shipping {
    pub async fn new(place: Place) -> Self {
        let (dir, job_manager) = (tempfile::tempdir().unwrap(), TestJobManager::start().await);
        let databases = Arc::new(databases_in(&dir.path().join("data")));
        let uri = format!("file://{}", dir.path().join("checkpoints").display());
        let storage = if place == Place::Objects { Storage::in_memory() } else { Storage::open(&uri).unwrap() };
        Self { dir, job_manager, databases, storage, place, heard: BTreeSet::new() }
    }

    /// What a checkpoint is taken for, and the folder below which its files are.
    pub fn destination(&self, checkpoint: CheckpointId) -> (CheckpointKind, String) {
        let folder = format!("file://{}", self.dir.path().join(format!("savepoint-{checkpoint}")).display());
        match self.place {
            Place::Savepoint => (CheckpointKind::Savepoint { directory: folder.as_str().into(), stops: false }, folder),
            Place::Files | Place::Objects => (CheckpointKind::Checkpoint, self.storage.uri().to_owned()),
        }
    }

    /// The way out of an attempt's snapshots.
    pub fn uploads(&self, plan: &Arc<Plan>, attempt: AttemptId) -> Arc<Uploads> {
        let destination = match plan.settings.backend {
            BackendKind::Memory => Destination::Inline { state_bytes_max: FRAME_BYTES },
            BackendKind::Fs | BackendKind::Rocksdb => {
                Destination::Files { storage: self.storage.clone(), inline_bytes_max: 0, inline_sum_max: 0 }
            }
        };
        let (traffic, scratch) = (Arc::clone(self.databases.traffic()), self.databases.scratch());
        let calls = self.job_manager.calls(FRAME_BYTES);
        Uploads::new(attempt, Arc::clone(plan), calls, destination, traffic, scratch, tokio::runtime::Handle::current())
    }

    /// The next acknowledgement; waits for it. One that is repeated, since its answer was late, counts once.
    pub async fn acknowledged(&mut self) -> TaskSnapshot {
        loop {
            let (attempt, checkpoint, snapshot) = read(self.job_manager.told.recv().await.unwrap());
            if self.heard.insert((attempt, snapshot.task, checkpoint)) {
                return snapshot;
            }
        }
    }

    /// The checkpoint that these snapshots make.
    pub fn snapshot(&self, plan: &Plan, checkpoint: CheckpointId, mut tasks: Vec<TaskSnapshot>) -> Snapshot {
        tasks.sort_by_key(|snapshot| (snapshot.task.vertex, snapshot.task.subtask));
        let vertices = plan.vertices.iter();
        let metadata = CheckpointMetadata {
            job: JobId::from_u128(1),
            epoch: Epoch(1),
            id: checkpoint,
            triggered_at_ms: 0,
            max_parallelism: plan.max_parallelism,
            savepoint: self.place == Place::Savepoint,
            vertices: vertices.map(|vertex| VertexOperators { parallelism: vertex.parallelism, uids: vertex.uids() }).collect(),
            tasks,
        };
        Snapshot { metadata, directory: self.destination(checkpoint).1 }
    }

    /// Restores tasks of an attempt.
    pub fn restorer(&self, plan: &Arc<Plan>, attempt: AttemptId) -> Arc<Restorer> {
        let (calls, databases) = (self.job_manager.calls(FRAME_BYTES), Arc::clone(&self.databases));
        let restorer = Restorer::new(attempt, Arc::clone(plan), calls, databases, Some(self.storage.uri().into()));
        // What is in memory cannot be opened by its URI.
        let own = (self.storage.uri().to_owned(), Arc::new(self.storage.clone()));
        restorer.directories.lock().unwrap().extend([own]);
        restorer
    }

    /// What a task had, of what was assigned to it from the files below `directory`.
    pub async fn restore(
        &self,
        restorer: &Restorer,
        task: TaskId,
        assigned: Vec<StateAssignment>,
        directory: &str,
    ) -> Result<Restored, Failure> {
        let states = assigned.into_iter().map(|state| self.deployed(state, restorer.plan.max_parallelism, directory)).collect();
        restorer.restore(task, states, std::task::Waker::noop().clone()).await
    }

    /// An assignment as a deployment has it.
    fn deployed(&self, assigned: StateAssignment, of_plan: u32, directory: &str) -> RestoreState {
        let StateAssignment { state, max_parallelism, entries } = assigned;
        let length = state.handle.length();
        let directory = directory.to_owned();
        let place = match state.handle {
            Handle::Inline(bytes) => RestorePlace::Inline(self.job_manager.serve(bytes)),
            Handle::File { path, offset, .. } => RestorePlace::File { directory, path, offset },
            Handle::Database { files, family } => RestorePlace::Database { directory, files, family },
        };
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
            max_parallelism: (max_parallelism != of_plan).then_some(max_parallelism),
            entries,
        }
    }
}

/// What a task acknowledges, of which attempt and checkpoint.
fn read(told: Told) -> (AttemptId, u64, TaskSnapshot) {
    let Told::Acknowledged(request) = told else { panic!("not acknowledged: {told:?}") };
    let (attempt, task) = task_from_ref(request.task.as_ref()).unwrap();
    let subtask = SubtaskIndex(task.subtask.0);
    let states = request.states.into_iter().map(|state| state_from_message(subtask, state).unwrap());
    let snapshot = TaskSnapshot { task, finished: request.finished, states: states.collect() };
    (attempt, request.checkpoint, snapshot)
}
