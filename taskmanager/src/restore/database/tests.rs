//! From a store through an upload and a restore to another store, on files.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{Int64Type, UInt16Type};
use levada_common::checkpoint::{CheckpointKind, Handle, StateHandle};
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::ids::{CheckpointId, SubtaskIndex};
use levada_common::plan::{BadRecordPolicy, JobSettings, OperatorKind, OperatorSpec, Plan, ProcessSpec};
use levada_common::state_schema::{StateDeclaration, StateSchema, StateShape};
use levada_common::types::{Column, LogicalType};
use levada_proto::convert::state_from_message;
use levada_state::cold::{Change, ColdStateId, ColdStore, ColdStores, Scope, SharedStores, Within};
use levada_state::snapshot::{Contents, StateMeta, StatePart};

use super::*;
use crate::databases::Databases;
use crate::testing::{TestJobManager, Told, attempt, databases_in, plan, settings, task};
use crate::upload::{Destination, Taken, Uploads};

const FRAME: u64 = 10 << 20;

/// A job on files and databases, both in a folder.
struct Rig {
    dir: tempfile::TempDir,
    job_manager: TestJobManager,
    databases: Arc<Databases>,
    uploads: Arc<Uploads>,
}

fn uid() -> Uid {
    Uid::new("counts")
}

fn schema() -> Arc<StateSchema> {
    Arc::new(StateSchema {
        shape: StateShape::Value,
        keys: vec![Column::new("k", LogicalType::Int64, true)],
        values: vec![Column::new("value", LogicalType::Int64, false)],
        ..StateSchema::default()
    })
}

impl Rig {
    async fn new() -> Self {
        let (dir, job_manager) = (tempfile::tempdir().unwrap(), TestJobManager::start().await);
        let databases = Arc::new(databases_in(&dir.path().join("data")));
        let uploads = Self::uploads(Self::settings(&dir, BackendKind::Rocksdb), &job_manager, &databases);
        Self { dir, job_manager, databases, uploads }
    }

    fn uploads(settings: JobSettings, job_manager: &TestJobManager, databases: &Databases) -> Arc<Uploads> {
        let plan = Arc::new(plan(settings, "end", "collect"));
        let destination = Destination::of(attempt(1).job, &plan.settings, FRAME).unwrap();
        let pool = tokio::runtime::Handle::current();
        let (calls, traffic) = (job_manager.calls(FRAME), Arc::clone(databases.traffic()));
        Uploads::new(attempt(1), plan, calls, destination, traffic, databases.scratch(), pool)
    }

    fn settings(dir: &tempfile::TempDir, backend: BackendKind) -> JobSettings {
        let mut settings = JobSettings { backend, inline_threshold_bytes: 0, ..settings() };
        settings.checkpoint.dir = Some(format!("file://{}", dir.path().join("checkpoints").display()));
        settings
    }

    /// The job's folder of checkpoints.
    fn folder(&self) -> PathBuf {
        self.dir.path().join("checkpoints").join(attempt(1).job.to_string())
    }

    fn files(&self, folder: &str) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.folder().join(folder)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn restorer(&self, backend: BackendKind) -> Arc<Restorer> {
        let plan = Arc::new(Self::plan(Self::settings(&self.dir, backend), 1));
        let own = Some(format!("file://{}", self.folder().display()));
        Restorer::new(attempt(1), plan, self.job_manager.calls(FRAME), Arc::clone(&self.databases), own)
    }

    /// A plan with a function that has the states "a" and "b".
    fn plan(settings: JobSettings, parallelism: u32) -> Plan {
        let state = |name: &str| StateDeclaration { name: name.into(), kind: StateKind::Keyed, schema: (*schema()).clone() };
        let mut function = FunctionDeclaration::new("counter", FunctionKind::KeyedProcess);
        function.states = vec![state("a"), state("b")];
        let process = ProcessSpec {
            function,
            options: Default::default(),
            keys: schema().keys.clone(),
            broadcast: None,
            second: None,
            window: None,
        };
        let mut plan = plan(settings, "end", "collect");
        let stream = crate::testing::schema();
        plan.vertices[0].parallelism = parallelism;
        plan.vertices[0].operators.push(OperatorSpec {
            uid: uid(),
            clause: "process".into(),
            kind: OperatorKind::Process(Box::new(process)),
            input: stream.clone(),
            output: stream,
            sides: Vec::new(),
            bad_records: BadRecordPolicy::Fail,
        });
        plan
    }

    async fn restore(&self, backend: BackendKind, states: &[StateHandle]) -> Result<Restored, Failure> {
        let directory = format!("file://{}", self.folder().display());
        let states = Self::of_handles(&directory, states);
        self.restorer(backend).restore(task(0, 0), states, Waker::noop().clone()).await
    }

    /// States of a snapshot in `directory`, as they are to be restored.
    fn of_handles(directory: &str, states: &[StateHandle]) -> Vec<RestoreState> {
        let states = states.iter().map(|state| {
            let directory = directory.to_owned();
            let place = match state.handle.clone() {
                Handle::Database { files, family } => RestorePlace::Database { directory, files, family },
                Handle::File { path, offset, .. } => RestorePlace::File { directory, path, offset },
                Handle::Inline(bytes) => panic!("{} bytes are inline", bytes.len()),
            };
            RestoreState {
                uid: state.uid.clone(),
                name: state.name.clone(),
                kind: state.kind,
                schema: Arc::clone(&state.schema),
                subtask: state.subtask,
                key_groups: state.key_groups,
                rows: state.rows,
                crc32c: state.crc32c,
                length: state.handle.length(),
                place,
                max_parallelism: None,
                entries: 0..state.rows,
            }
        });
        states.collect()
    }

    /// Takes a snapshot of a store and uploads it.
    async fn snapshot(&mut self, store: &mut dyn ColdStore, checkpoint: u64) -> Vec<StateHandle> {
        self.snapshot_for(store, checkpoint, CheckpointKind::Checkpoint).await
    }

    async fn snapshot_for(&mut self, store: &mut dyn ColdStore, checkpoint: u64, kind: CheckpointKind) -> Vec<StateHandle> {
        let snapshot = store.begin_snapshot();
        store.complete_snapshot();
        let part = |name: &str| {
            let meta = StateMeta { uid: uid(), name: name.into(), kind: StateKind::Keyed, schema: schema() };
            StatePart { meta, contents: Contents::Database(Arc::clone(&snapshot)) }
        };
        let (task, checkpoint) = (task(0, 0), CheckpointId(checkpoint));
        let parts = vec![part("a"), part("b")];
        self.uploads.submit(Taken { task, checkpoint, kind, finished: false, parts, durable: Vec::new(), sync_ns: 1 });
        match self.job_manager.told.recv().await.unwrap() {
            Told::Acknowledged(request) => {
                let states = request.states.iter();
                states.map(|state| state_from_message(SubtaskIndex(0), state.clone()).unwrap()).collect()
            }
            other => panic!("not an acknowledgement: {other:?}"),
        }
    }
}

fn open(databases: &TaskDatabases) -> Box<dyn ColdStore> {
    let mut store = databases.open(&uid()).unwrap().store;
    store.open_state("a", &schema(), 0).unwrap();
    store.open_state("b", &schema(), 0).unwrap();
    store
}

fn write(store: &mut dyn ColdStore, state: u32, keys: std::ops::Range<i64>) {
    let state = ColdStateId(state);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(keys.clone().collect::<Int64Array>()), Arc::new(keys.map(|key| key * 7).collect::<Int64Array>())];
    let rows = RecordBatch::try_new(Arc::clone(store.layout(state).columns()), columns).unwrap();
    store.change(state, Change { deletes: None, upserts: Some(rows) }).unwrap();
}

fn rows(store: &mut dyn ColdStore, state: u32) -> usize {
    let everything = Scope { groups: KeyGroupRange::all(128), within: Within::Any };
    store.scan(ColdStateId(state), everything).unwrap().map(|rows| rows.unwrap().num_rows()).sum()
}

fn shared_files(states: &[StateHandle]) -> BTreeSet<String> {
    let Handle::Database { files, .. } = &states[0].handle else { panic!("{:?}", states[0]) };
    files.iter().filter(|file| file.is_shared()).map(|file| file.path.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_checkpoint_writes_only_what_is_new_and_is_restored_into_every_backend() {
    let mut rig = Rig::new().await;
    let first = rig.restore(BackendKind::Rocksdb, &[]).await.unwrap().databases.unwrap();
    let mut store = open(&first);
    write(store.as_mut(), 0, 0..5_000);
    write(store.as_mut(), 1, 0..50);
    let one = rig.snapshot(store.as_mut(), 1).await;
    rig.uploads.complete(CheckpointId(1));
    write(store.as_mut(), 1, 40..60);
    let two = rig.snapshot(store.as_mut(), 2).await;
    let (had, has) = (shared_files(&one), shared_files(&two));
    assert!(had.is_subset(&has) && has.len() > had.len(), "{had:?} {has:?}");
    assert_eq!(rig.files("shared").len(), has.len(), "nothing was written twice");
    assert!(two.iter().all(|state| state.name != "a" || state.rows == 5_000));
    drop((store, first));

    let restored = rig.restore(BackendKind::Rocksdb, &two).await.unwrap();
    assert_eq!(restored.reusable.len(), 1);
    let mut store = open(restored.databases.as_ref().unwrap());
    assert_eq!((rows(store.as_mut(), 0), rows(store.as_mut(), 1)), (5_000, 60));
    for (uid, files) in restored.reusable {
        rig.uploads.restored(task(0, 0), uid, files);
    }
    let three = rig.snapshot(store.as_mut(), 3).await;
    assert_eq!(shared_files(&three), has, "a restored database has the files that it was made of");

    let restored = rig.restore(BackendKind::Fs, &two).await.unwrap();
    assert!(restored.databases.is_none());
    let of_b = &restored.states[&uid()].iter().find(|state| state.name == "b").unwrap().batches;
    let mut found: Vec<(i64, i64)> = Vec::new();
    for batch in of_b {
        let number = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(batch.column(0).as_primitive::<UInt16Type>().len(), batch.num_rows());
        found.extend(number("key.k").into_iter().zip(number("value")));
    }
    found.sort_unstable();
    assert_eq!(found, (0..60).map(|key| (key, key * 7)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_a_newer_barrier_overtakes_is_declined_with_its_reason() {
    let mut rig = Rig::new().await;
    let databases = rig.restore(BackendKind::Rocksdb, &[]).await.unwrap().databases.unwrap();
    let stores = SharedStores::new(databases);
    let [mut one, mut other] = ["a", "b"].map(|name| {
        let mut end = stores.open(&uid()).unwrap().store;
        end.open_state(name, &schema(), 0).unwrap();
        end
    });
    let snapshot = one.begin_snapshot();
    other.begin_snapshot();
    one.complete_snapshot();
    let meta = StateMeta { uid: uid(), name: "a".into(), kind: StateKind::Keyed, schema: schema() };
    let parts = vec![StatePart { meta, contents: Contents::Database(snapshot) }];
    let (checkpoint, kind, durable) = (CheckpointId(1), CheckpointKind::Checkpoint, Vec::new());
    rig.uploads.submit(Taken { task: task(0, 0), checkpoint, kind, finished: false, parts, durable, sync_ns: 1 });
    one.begin_snapshot();
    match rig.job_manager.told.recv().await.unwrap() {
        Told::Declined(request) => {
            assert_eq!(request.checkpoint, 1);
            assert!(request.reason_json.contains("the barrier of a newer checkpoint came before"), "{}", request.reason_json);
        }
        other => panic!("not declined: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_for_nothing_goes_and_is_never_referred_to() {
    let mut rig = Rig::new().await;
    let databases = rig.restore(BackendKind::Rocksdb, &[]).await.unwrap().databases.unwrap();
    let mut store = open(&databases);
    write(store.as_mut(), 0, 0..100);
    let one = rig.snapshot(store.as_mut(), 1).await;
    rig.uploads.complete(CheckpointId(1));
    rig.job_manager.accepts.store(false, Ordering::SeqCst);
    write(store.as_mut(), 0, 50..200);
    let refused = shared_files(&rig.snapshot(store.as_mut(), 2).await);
    rig.uploads.give_up(CheckpointId(2));
    rig.job_manager.accepts.store(true, Ordering::SeqCst);
    let three = shared_files(&rig.snapshot(store.as_mut(), 3).await);
    rig.uploads.settled().await;
    let new = |files: &BTreeSet<String>| files.difference(&shared_files(&one)).cloned().collect::<BTreeSet<_>>();
    assert!(!new(&refused).is_empty() && new(&refused).is_disjoint(&three), "{refused:?} {three:?}");
    let there: BTreeSet<String> = rig.files("shared").into_iter().map(|name| format!("shared/{name}")).collect();
    assert_eq!(there, shared_files(&one).union(&three).cloned().collect());
    assert!(rig.files("chk-2").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inline_threshold_of_a_database_is_kept_to_the_byte() {
    let mut rig = Rig::new().await;
    let databases = rig.restore(BackendKind::Rocksdb, &[]).await.unwrap().databases.unwrap();
    let mut store = open(&databases);
    write(store.as_mut(), 0, 0..100);
    let first = rig.snapshot(store.as_mut(), 1).await;
    let Handle::Database { files, .. } = &first[0].handle else { panic!("{:?}", first[0]) };
    let tables: u64 = files.iter().filter(|file| file.is_shared()).map(|file| file.length).sum();
    for (checkpoint, (threshold, is_inline)) in [(tables + 1, true), (tables, true), (tables - 1, false)].into_iter().enumerate()
    {
        let settings = JobSettings { inline_threshold_bytes: threshold, ..Rig::settings(&rig.dir, BackendKind::Rocksdb) };
        rig.uploads = Rig::uploads(settings, &rig.job_manager, &rig.databases);
        let states = rig.snapshot(store.as_mut(), 2 + checkpoint as u64).await;
        let is_database = states.iter().all(|state| matches!(state.handle, Handle::Database { .. }));
        assert_eq!(is_database, !is_inline, "{threshold} of {tables}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_bit_in_any_file_is_found_and_named() {
    let mut rig = Rig::new().await;
    let databases = rig.restore(BackendKind::Rocksdb, &[]).await.unwrap().databases.unwrap();
    let mut store = open(&databases);
    write(store.as_mut(), 0, 0..100);
    let states = rig.snapshot(store.as_mut(), 1).await;
    let Handle::Database { files, .. } = &states[0].handle else { panic!("{:?}", states[0]) };
    assert!(files.len() >= 3);
    for file in files.iter() {
        let path = rig.folder().join(&file.path);
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        let failure = rig.restore(BackendKind::Rocksdb, &states).await.err().unwrap();
        assert!(failure.message.contains(&file.path) && failure.message.contains("CRC-32C"), "{failure}");
        assert_eq!(failure.retry, Retry::Never);
        std::fs::write(&path, &flipped[..whole.len() - 1]).unwrap();
        let failure = rig.restore(BackendKind::Memory, &states).await.err().unwrap();
        assert!(failure.message.contains(&format!("want {} bytes", whole.len())), "{failure}");
        std::fs::write(&path, whole).unwrap();
    }
    let whole = rig.restore(BackendKind::Rocksdb, &states).await;
    assert_eq!(whole.err().map(|failure| failure.message), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_of_a_database_becomes_databases_again_without_coming_into_memory() {
    let mut rig = Rig::new().await;
    let databases = rig.restore(BackendKind::Rocksdb, &[]).await.unwrap().databases.unwrap();
    let mut store = open(&databases);
    write(store.as_mut(), 0, 0..40_000);
    write(store.as_mut(), 1, 0..10);
    let savepoint = rig.dir.path().join("savepoint");
    let directory = format!("file://{}", savepoint.display());
    let kind = CheckpointKind::Savepoint { directory: directory.as_str().into(), stops: false };
    let states = rig.snapshot_for(store.as_mut(), 1, kind).await;
    drop((store, databases));
    assert_eq!(std::fs::read_dir(savepoint.join("state")).unwrap().count(), 2, "a file for each state");
    assert!(states.iter().all(|state| matches!(state.handle, Handle::File { offset: 0, .. })), "{states:?}");

    // At another parallelism each task has its groups in its database, and no rows.
    let settings = Rig::settings(&rig.dir, BackendKind::Rocksdb);
    let restorer = |parallelism| {
        let plan = Arc::new(Rig::plan(settings.clone(), parallelism));
        Restorer::new(attempt(1), plan, rig.job_manager.calls(FRAME), Arc::clone(&rig.databases), None)
    };
    let mut found = [0, 0];
    for subtask in 0..3 {
        let states = Rig::of_handles(&directory, &states);
        let restored = restorer(3).restore(task(0, subtask), states, Waker::noop().clone()).await.unwrap();
        assert!(restored.states.is_empty(), "they are rows: {:?}", restored.states.keys());
        let mut store = open(restored.databases.as_ref().unwrap());
        let own = KeyGroupRange::of_subtask(subtask, 3, 128);
        for (state, found) in found.iter_mut().enumerate() {
            let all = rows(store.as_mut(), state as u32);
            let scope = Scope { groups: own, within: Within::Any };
            let scan = store.scan(ColdStateId(state as u32), scope).unwrap();
            assert_eq!(all, scan.map(|rows| rows.unwrap().num_rows()).sum::<usize>(), "rows of others are there");
            *found += all;
        }
    }
    assert_eq!(found, [40_000, 10]);

    // What is damaged is said before a row of it is used.
    let Handle::File { path, .. } = &states[0].handle else { panic!("{states:?}") };
    let mut bytes = std::fs::read(savepoint.join(path)).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    std::fs::write(savepoint.join(path), &bytes).unwrap();
    let states = Rig::of_handles(&directory, &states);
    let failure = restorer(1).restore(task(0, 0), states, Waker::noop().clone()).await.err().unwrap();
    assert!(failure.message.contains(path) && failure.message.contains("CRC-32C"), "{failure}");
}
