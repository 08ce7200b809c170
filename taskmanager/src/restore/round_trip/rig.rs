//! A job without processes: operators fed, snapshotted as uploads do, given out as the JobManager does, restored as tasks are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{ArrayRef, Int64Array, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::checkpoint::{
    CheckpointKind, CheckpointMetadata, Handle, StateHandle, StateKind, TaskSnapshot, VertexOperators,
};
use levada_common::fault::Failure;
use levada_common::ids::{CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, Uid, VertexId};
use levada_common::keys::{KeyGroupRange, key_groups, owner_of_group};
use levada_common::plan::{BackendKind, JobSettings, Plan, Vertex};
use levada_common::storage::Storage;
use levada_common::time::Watermark;
use levada_engine::metrics::NodeMetrics;
use levada_engine::operator::{Operator, OperatorContext, RestoredState};
use levada_engine::operators::build;
use levada_jobmanager_core::event::StateAssignment;
use levada_jobmanager_core::restore::assign;
use levada_proto::convert::{RestorePlace, RestoreState, state_from_message};
use levada_state::cold::ColdStores;
use levada_state::keyed::HeapBudget;
use rand::Rng;
use rand::rngs::StdRng;

use super::super::Restorer;
use super::operators::{EVERYTHING, LISTS, WINDOW_MS, compiler, functions, input, rates, specs};
use crate::databases::Databases;
use crate::testing::{TestJobManager, Told, attempt, databases_in, plan, settings};
use crate::upload::{Destination, Taken, Uploads};

/// Key groups: more than the widest job has subtasks, and no multiple of most widths.
const MAX_PARALLELISM: u32 = 16;

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
    pub dir: tempfile::TempDir,
    job_manager: TestJobManager,
    databases: Arc<Databases>,
    backend: BackendKind,
    place: Place,
    storage: Storage,
    attempts: u32,
}

/// A snapshot of a run, and where its files are.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub metadata: CheckpointMetadata,
    pub directory: String,
}

impl Rig {
    pub async fn new(backend: BackendKind, place: Place) -> Self {
        let (dir, job_manager) = (tempfile::tempdir().unwrap(), TestJobManager::start().await);
        let databases = Arc::new(databases_in(&dir.path().join("data")));
        let uri = format!("file://{}", dir.path().join("checkpoints").display());
        let storage = if place == Place::Objects { Storage::in_memory() } else { Storage::open(&uri).unwrap() };
        Self { dir, job_manager, databases, backend, place, storage, attempts: 0 }
    }

    fn plan(&self, parallelism: u32) -> Arc<Plan> {
        let settings = JobSettings { parallelism, backend: self.backend, inline_threshold_bytes: 0, ..settings() };
        let operators = Vertex { id: VERTEX, name: "all".into(), parallelism, source: None, operators: specs(), sink: None };
        let of_test = plan(settings, "end", "collect");
        Arc::new(Plan { max_parallelism: MAX_PARALLELISM, vertices: vec![operators], edges: Vec::new(), ..of_test })
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
        let mut run =
            Run { plan: Arc::clone(&plan), attempt, tasks: Vec::new(), given: Vec::new(), restored: Vec::new(), turn: 0 };
        for subtask in 0..parallelism {
            let task = TaskId::new(VERTEX, subtask);
            let states = assigned.remove(&task).unwrap_or_default().states;
            let states = states.into_iter().map(|state| self.deployed(state, &directory)).collect();
            let mut restored = restorer.restore(task, states, Waker::noop().clone()).await?;
            run.restored.push(restored.states.clone());
            let cold = restored.databases.take().map(|databases| databases as Arc<dyn ColdStores>);
            run.open(subtask, restored.states, cold);
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

    /// Takes a snapshot of every task.
    pub async fn snapshot(&mut self, run: &mut Run, checkpoint: u64) -> Snapshot {
        let checkpoint = CheckpointId(checkpoint);
        let folder = format!("file://{}", self.dir.path().join(format!("savepoint-{checkpoint}")).display());
        let (kind, directory) = match self.place {
            Place::Savepoint => (CheckpointKind::Savepoint { directory: folder.as_str().into(), stops: false }, folder),
            Place::Files | Place::Objects => (CheckpointKind::Checkpoint, self.storage.uri().to_owned()),
        };
        let destination = match self.backend {
            BackendKind::Memory => Destination::Inline { state_bytes_max: FRAME_BYTES },
            BackendKind::Fs | BackendKind::Rocksdb => {
                Destination::Files { storage: self.storage.clone(), inline_bytes_max: 100, inline_sum_max: 1_000 }
            }
        };
        let traffic = Arc::clone(self.databases.traffic());
        let (plan, calls, pool) = (Arc::clone(&run.plan), self.job_manager.calls(FRAME_BYTES), tokio::runtime::Handle::current());
        let uploads = Uploads::new(run.attempt, plan, calls, destination, traffic, pool);
        let mut tasks = Vec::new();
        for subtask in 0..run.tasks.len() {
            let parts = run.parts(subtask, checkpoint);
            let task = TaskId::new(VERTEX, subtask as u32);
            let (finished, durable) = (false, Vec::new());
            uploads.submit(Taken { task, checkpoint, kind: kind.clone(), finished, parts, durable, sync_ns: 0 });
            run.send_rest(subtask);
            let Told::Acknowledged(request) = self.job_manager.told.recv().await.unwrap() else { panic!("not acknowledged") };
            let states = request.states.into_iter();
            let states: Vec<StateHandle> =
                states.map(|state| state_from_message(SubtaskIndex(subtask as u32), state).unwrap()).collect();
            tasks.push(TaskSnapshot { task, finished, states });
        }
        let vertices = vec![VertexOperators { parallelism: run.tasks.len() as u32, uids: run.plan.vertices[0].uids() }];
        let metadata = CheckpointMetadata {
            job: JobId::from_u128(1),
            epoch: Epoch(1),
            id: checkpoint,
            triggered_at_ms: 0,
            max_parallelism: MAX_PARALLELISM,
            savepoint: self.place == Place::Savepoint,
            vertices,
            tasks,
        };
        Snapshot { metadata, directory }
    }
}

/// One attempt: the operators of each task.
pub struct Run {
    plan: Arc<Plan>,
    attempt: levada_common::ids::AttemptId,
    tasks: Vec<Vec<Box<dyn Operator>>>,
    /// Rows that came out, as text.
    given: Vec<String>,
    /// What each task was restored with.
    pub restored: Vec<BTreeMap<Uid, Vec<RestoredState>>>,
    /// The task that gets the next row without a key.
    turn: usize,
}

/// Rows, and what time it is.
pub struct Feed {
    rows: RecordBatch,
    rates: Option<RecordBatch>,
    watermark: Watermark,
    processing_ms: i64,
}

/// Feeds of random rows over 40 keys, in the order of their times; `from` is the first one's number.
pub fn feeds(rng: &mut StdRng, from: i64, count: i64) -> Vec<Feed> {
    let feed = |number: i64| {
        let start = number * 90;
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..40).map(|_| format!("key {}", rng.random_range(0..40)))));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..40).map(|_| rng.random_range(0..1000))));
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values((0..40).map(|row| start + 2 * row)));
        let rates = (number % 4 == 0).then(|| {
            let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..2).map(|_| format!("r{}", rng.random_range(0..4)))));
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..2).map(|_| rng.random_range(1..100))));
            RecordBatch::try_new(rates().to_arrow(), vec![names, values]).unwrap()
        });
        let rows = RecordBatch::try_new(input().to_arrow(), vec![keys, values, times]).unwrap();
        Feed { rows, rates, watermark: Watermark(start - WINDOW_MS / 2), processing_ms: 900 * number }
    };
    (from..from + count).map(feed).collect()
}

impl Run {
    fn open(&mut self, subtask: u32, mut states: BTreeMap<Uid, Vec<RestoredState>>, cold: Option<Arc<dyn ColdStores>>) {
        let parallelism = self.plan.vertices[0].parallelism;
        let mut operators = Vec::new();
        for spec in &self.plan.vertices[0].operators {
            let mut operator = build(spec, &*compiler(), &functions()).unwrap();
            let context = OperatorContext {
                subtask,
                parallelism,
                max_parallelism: MAX_PARALLELISM,
                key_groups: KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM),
                batch_rows_max: 16,
                metrics: Arc::new(NodeMetrics::new(spec.uid.clone())),
                cold: cold.clone(),
                heap_budget: Arc::new(HeapBudget::unlimited()),
            };
            operator.open(&context, states.remove(&spec.uid).unwrap_or_default()).unwrap();
            operators.push(operator);
        }
        assert!(states.is_empty(), "states that no operator has: {states:?}");
        self.tasks.push(operators);
    }

    /// Gives every operator the feed's rows, each task those that are its own.
    pub fn feed(&mut self, feed: &Feed) {
        let width = self.tasks.len();
        let mut groups = Vec::new();
        key_groups(&[Arc::clone(feed.rows.column(0))], MAX_PARALLELISM, &mut groups);
        let owner = |group: &u16| owner_of_group(*group, width as u32, MAX_PARALLELISM) as usize;
        let owners: Vec<usize> = groups.iter().map(owner).collect();
        let turns: Vec<usize> = (0..feed.rows.num_rows()).map(|row| (self.turn + row) % width).collect();
        self.turn += feed.rows.num_rows();
        for subtask in 0..width {
            for place in 0..self.tasks[subtask].len() {
                let uid = self.plan.vertices[0].operators[place].uid.clone();
                self.tick(subtask, place, feed.processing_ms);
                if let Some(rates) = feed.rates.as_ref().filter(|_| uid.as_str() == EVERYTHING) {
                    self.tasks[subtask][place].process(1, rates.clone()).unwrap();
                }
                let owners = if uid.as_str() == LISTS { &turns } else { &owners };
                let own = owners.iter().enumerate().filter(|(_, owner)| **owner == subtask).map(|(row, _)| row as u32);
                let own = take_record_batch(&feed.rows, &UInt32Array::from_iter_values(own)).unwrap();
                if own.num_rows() > 0 {
                    self.wait(subtask, place);
                    self.tasks[subtask][place].process(0, own).unwrap();
                }
                self.drain(subtask, place);
                self.tasks[subtask][place].advance(feed.watermark).unwrap();
                self.drain(subtask, place);
            }
        }
    }

    fn tick(&mut self, subtask: usize, place: usize, time_ms: i64) {
        if self.tasks[subtask][place].keeps_time() {
            self.tasks[subtask][place].tick(time_ms).unwrap();
            self.drain(subtask, place);
        }
    }

    /// Ends the data.
    pub fn finish(&mut self) {
        for subtask in 0..self.tasks.len() {
            for place in 0..self.tasks[subtask].len() {
                self.tick(subtask, place, 1_000_000);
                self.tasks[subtask][place].advance(Watermark::MAX).unwrap();
                self.drain(subtask, place);
                self.tasks[subtask][place].finish().unwrap();
                self.drain(subtask, place);
            }
        }
    }

    /// Waits until the operator takes rows and gives some: its store may be writing.
    fn wait(&mut self, subtask: usize, place: usize) {
        while !self.tasks[subtask][place].is_ready().unwrap() {
            std::thread::yield_now();
        }
    }

    fn drain(&mut self, subtask: usize, place: usize) {
        let uid = self.plan.vertices[0].operators[place].uid.clone();
        loop {
            self.wait(subtask, place);
            let Some(batch) = self.tasks[subtask][place].poll().unwrap() else { return };
            self.given.extend(lines(&batch).into_iter().map(|line| format!("{uid}: {line}")));
        }
    }

    /// What came out since the last call, in no order.
    pub fn take(&mut self) -> Vec<String> {
        let mut given = std::mem::take(&mut self.given);
        given.sort_unstable();
        given
    }

    fn parts(&mut self, subtask: usize, checkpoint: CheckpointId) -> Vec<levada_state::snapshot::StatePart> {
        let mut parts = Vec::new();
        for place in 0..self.tasks[subtask].len() {
            self.tasks[subtask][place].before_barrier().unwrap();
            self.drain(subtask, place);
            parts.extend(self.tasks[subtask][place].snapshot(checkpoint, false).unwrap());
        }
        parts
    }

    /// Sends the rest of tables that are frozen.
    fn send_rest(&mut self, subtask: usize) {
        for operator in &mut self.tasks[subtask] {
            while operator.background().unwrap() {}
        }
    }
}

/// Rows as text.
pub fn lines(batch: &RecordBatch) -> Vec<String> {
    let value = |column: &ArrayRef, row| array_value_to_string(column, row).unwrap();
    let line = |row| batch.columns().iter().map(|column| value(column, row)).collect::<Vec<_>>().join(" ");
    (0..batch.num_rows()).map(line).collect()
}

/// The rows of an operator's state of this kind, task by task.
pub fn rows_of(run: &Run, uid: &str, name: &str, kind: StateKind) -> Vec<Vec<String>> {
    let of_task = |states: &BTreeMap<Uid, Vec<RestoredState>>| {
        let mut of_state = states.get(&Uid::new(uid)).into_iter().flatten().filter(|state| state.name == name);
        let Some(state) = of_state.next() else { return Vec::new() };
        assert_eq!(state.kind, kind, "{uid}/{name}");
        state.batches.iter().flat_map(lines).collect()
    };
    run.restored.iter().map(of_task).collect()
}
