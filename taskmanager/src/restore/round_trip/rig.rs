//! A job without processes: snapshots go out as tasks send them, are given out as the JobManager does, and come back as tasks are
//! deployed.

use std::sync::Arc;
use std::task::Waker;

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, Handle, StateHandle, TaskSnapshot, VertexOperators};
use levada_common::fault::Failure;
use levada_common::ids::{CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, VertexId};
use levada_common::plan::{BackendKind, JobSettings, OperatorSpec, Plan, Vertex};
use levada_common::storage::Storage;
use levada_jobmanager_core::event::StateAssignment;
use levada_jobmanager_core::restore::assign;
use levada_proto::convert::{RestorePlace, RestoreState, state_from_message, task_from_ref};
use levada_state::cold::ColdStores;

use super::super::Restorer;
use super::run::{Feed, MAX_PARALLELISM, Run};
use super::specs::specs;
use crate::databases::Databases;
use crate::testing::{TestJobManager, Told, attempt, databases_in, plan, settings};
use crate::upload::{Destination, Taken, Uploads};

const FRAME_BYTES: u64 = 10 << 20;

/// The vertex of the operators.
const VERTEX: VertexId = VertexId(0);

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

/// What all runs of a job share.
pub struct Rig {
    dir: tempfile::TempDir,
    job_manager: TestJobManager,
    databases: Arc<Databases>,
    storage: Storage,
    attempts: u32,
    /// Whose state it is from now on.
    pub backend: BackendKind,
    /// Where snapshots go from now on.
    pub place: Place,
    /// What runs from now on.
    pub operators: Vec<OperatorSpec>,
}

/// A snapshot of a run, and where its files are.
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

impl Rig {
    pub async fn new(backend: BackendKind, place: Place) -> Self {
        let (dir, job_manager) = (tempfile::tempdir().unwrap(), TestJobManager::start().await);
        let databases = Arc::new(databases_in(&dir.path().join("data")));
        let uri = format!("file://{}", dir.path().join("checkpoints").display());
        let storage = if place == Place::Objects { Storage::in_memory() } else { Storage::open(&uri).unwrap() };
        Self { dir, job_manager, databases, storage, attempts: 0, backend, place, operators: specs() }
    }

    fn plan(&self, parallelism: u32) -> Arc<Plan> {
        let settings = JobSettings { parallelism, backend: self.backend, ..settings() };
        let operators = self.operators.clone();
        let vertex = Vertex { id: VERTEX, name: "all".into(), parallelism, source: None, operators, sink: None };
        let of_test = plan(settings, "end", "collect");
        Arc::new(Plan { max_parallelism: MAX_PARALLELISM, vertices: vec![vertex], edges: Vec::new(), ..of_test })
    }

    /// Starts at this width, from a snapshot or from nothing.
    pub async fn start(&mut self, parallelism: u32, from: Option<&Snapshot>) -> Result<Run, Failure> {
        self.attempts += 1;
        let (attempt, plan) = (attempt(self.attempts), self.plan(parallelism));
        let directory = from.map_or_else(|| self.storage.uri().to_owned(), |from| from.directory.clone());
        let calls = self.job_manager.calls(FRAME_BYTES);
        let databases = Arc::clone(&self.databases);
        let restorer = Restorer::new(attempt, Arc::clone(&plan), calls, databases, Some(self.storage.uri().into()));
        // What is in memory cannot be opened by its URI.
        let own = (self.storage.uri().to_owned(), Arc::new(self.storage.clone()));
        restorer.directories.lock().unwrap().extend([own]);
        let mut assigned = from.map(|from| assign(&plan, &from.metadata).unwrap()).unwrap_or_default();
        let mut run = Run::new(plan, attempt);
        for subtask in 0..parallelism {
            let task = TaskId::new(VERTEX, subtask);
            let states = assigned.remove(&task).unwrap_or_default().states;
            let states = states.into_iter().map(|state| self.deployed(state, &directory)).collect();
            let mut restored = restorer.restore(task, states, Waker::noop().clone()).await?;
            let cold = restored.databases.take().map(|databases| databases as Arc<dyn ColdStores>);
            run.open(restored.states, cold.as_ref());
        }
        Ok(run)
    }

    /// An assignment as a deployment has it.
    fn deployed(&self, assigned: StateAssignment, directory: &str) -> RestoreState {
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
            max_parallelism: (max_parallelism != MAX_PARALLELISM).then_some(max_parallelism),
            entries,
        }
    }

    /// Takes a snapshot of every task, which goes out while `meanwhile` comes.
    pub async fn snapshot(&mut self, run: &mut Run, meanwhile: &[Feed]) -> Snapshot {
        let checkpoint = CheckpointId(u64::from(self.attempts));
        let folder = format!("file://{}", self.dir.path().join(format!("savepoint-{checkpoint}")).display());
        let (kind, directory) = match self.place {
            Place::Savepoint => (CheckpointKind::Savepoint { directory: folder.as_str().into(), stops: false }, folder),
            Place::Files | Place::Objects => (CheckpointKind::Checkpoint, self.storage.uri().to_owned()),
        };
        let uploads = self.uploads(run);
        let (finished, sync_ns) = (false, 0);
        for subtask in 0..run.width() {
            let (task, parts) = (TaskId::new(VERTEX, subtask as u32), run.barrier(subtask, checkpoint));
            let (kind, durable) = (kind.clone(), Vec::new());
            uploads.submit(Taken { task, checkpoint, kind, finished, parts, durable, sync_ns });
        }
        meanwhile.iter().for_each(|feed| run.feed(feed));
        run.send_rest();
        let mut tasks = Vec::new();
        for _ in 0..run.width() {
            let told = self.job_manager.told.recv().await.unwrap();
            let Told::Acknowledged(request) = told else { panic!("not acknowledged: {told:?}") };
            let (_, task) = task_from_ref(request.task.as_ref()).unwrap();
            let subtask = SubtaskIndex(task.subtask.0);
            let states = request.states.into_iter().map(|state| state_from_message(subtask, state).unwrap());
            tasks.push(TaskSnapshot { task, finished, states: states.collect::<Vec<StateHandle>>() });
        }
        tasks.sort_by_key(|snapshot| snapshot.task.subtask);
        let uids = self.plan(1).vertices[0].uids();
        let metadata = CheckpointMetadata {
            job: JobId::from_u128(1),
            epoch: Epoch(1),
            id: checkpoint,
            triggered_at_ms: 0,
            max_parallelism: MAX_PARALLELISM,
            savepoint: self.place == Place::Savepoint,
            vertices: vec![VertexOperators { parallelism: run.width() as u32, uids }],
            tasks,
        };
        Snapshot { metadata, directory }
    }

    fn uploads(&self, run: &Run) -> Arc<Uploads> {
        let destination = match self.backend {
            BackendKind::Memory => Destination::Inline { state_bytes_max: FRAME_BYTES },
            BackendKind::Fs | BackendKind::Rocksdb => {
                Destination::Files { storage: self.storage.clone(), inline_bytes_max: 0, inline_sum_max: 0 }
            }
        };
        let (traffic, scratch) = (Arc::clone(self.databases.traffic()), self.databases.scratch());
        let (plan, calls) = (self.plan(run.width() as u32), self.job_manager.calls(FRAME_BYTES));
        Uploads::new(run.attempt, plan, calls, destination, traffic, scratch, tokio::runtime::Handle::current())
    }
}
