//! Snapshots written by hand, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray, StructArray, TimestampMillisecondArray};
use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::checkpoint::{CheckpointMetadata, DatabaseFile, Handle, StateHandle, StateKind, TaskSnapshot};
use levada_common::config::RocksdbProfile;
use levada_common::ids::{CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::{StateSchema, StateShape};
use levada_common::types::{Column, LogicalType};
use levada_proto::metadata;
use levada_state::cold::{Change, ColdStores};
use levada_state::format::{SizeLimit, decode_range, encode};
use levada_state::snapshot::{StateMeta, ready};
use levada_state_rocksdb::{Rocksdb, RocksdbSettings, TaskDatabases};
use tempfile::TempDir;

/// Key groups of the snapshots.
const MAX_PARALLELISM: u32 = 128;

/// A state that a snapshot has.
pub struct State {
    pub meta: StateMeta,
    pub rows: RecordBatch,
    pub parallelism: u32,
    /// In files, else inline.
    pub in_files: bool,
}

/// A checkpoint in a folder.
pub struct Written {
    dir: TempDir,
}

impl Written {
    /// Counts by key in panes, a watermark, and positions.
    pub fn counts() -> Vec<State> {
        vec![
            panes((0..20).collect()),
            entries("counts", "watermark", &["17"]),
            entries("numbers", "positions", &["{\"at\":5}", "{}"]),
        ]
    }

    /// Writes checkpoint 7 of job 1.
    pub fn new(states: &[State]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("job/chk-7");
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut tasks = Vec::new();
        for (vertex, state) in states.iter().enumerate() {
            for subtask in 0..state.parallelism {
                let task = TaskId::new(VertexId(vertex as u32), subtask);
                let written = handle(&folder, state, subtask);
                tasks.push(TaskSnapshot { task, finished: vertex == 2, states: vec![written] });
            }
        }
        Self::finish(dir, tasks)
    }

    /// Writes checkpoint 7 of job 1 whose counts by key in panes are in a database.
    pub fn in_database() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("job/chk-7")).expect("a folder");
        let task = TaskId::new(VertexId(0), 0);
        let states = vec![database_handle(dir.path(), &panes((0..20).collect()))];
        Self::finish(dir, vec![TaskSnapshot { task, finished: false, states }])
    }

    fn finish(dir: TempDir, tasks: Vec<TaskSnapshot>) -> Self {
        let metadata = CheckpointMetadata {
            job: JobId::from_u128(1),
            epoch: Epoch(1),
            id: CheckpointId(7),
            triggered_at_ms: 1_769_860_800_000,
            max_parallelism: MAX_PARALLELISM,
            savepoint: false,
            vertices: Vec::new(),
            tasks,
        };
        std::fs::write(dir.path().join("job/chk-7/_metadata"), metadata::encode(metadata)).expect("a file");
        Self { dir }
    }

    /// The job's folder.
    pub fn path(&self) -> String {
        self.dir.path().join("job").display().to_string()
    }

    /// A file of the checkpoint.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("job/chk-7").join(name)
    }

    /// `text` without the folder's name, which is another at each run.
    pub fn masked(&self, text: &str) -> String {
        let root = std::fs::canonicalize(self.dir.path()).expect("it exists");
        text.replace(&root.display().to_string(), "/DIR")
    }
}

/// Counts of `k00`, `k01` ... in one pane each.
pub fn panes(counts: Vec<i64>) -> State {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..counts.len()).map(|key| format!("k{key:02}"))));
    let times = |add: i64| Arc::new(TimestampMillisecondArray::from_iter_values(counts.iter().map(|_| 10_000 + add))) as ArrayRef;
    let bound = |name: &str, times: &ArrayRef| Arc::new(Field::new(name, times.data_type().clone(), false));
    let (start, end) = (times(0), times(10_000));
    let window: ArrayRef = Arc::new(StructArray::from(vec![(bound("start", &start), start), (bound("end", &end), end)]));
    let sums = counts.iter().map(|count| i128::from(*count) * 1000);
    let sums = Decimal128Array::from_iter_values(sums).with_precision_and_scale(38, 0).expect("it fits");
    let counts: ArrayRef = Arc::new(Int64Array::from(counts));
    let columns = [("key.k", keys), ("namespace", window), ("n", counts), ("total", Arc::new(sums) as ArrayRef)];
    let schema = StateSchema {
        shape: StateShape::Accumulators,
        keys: vec![Column::new("k", LogicalType::String, true)],
        windowed: true,
        values: vec![Column::new("n", LogicalType::Int64, false), Column::new("total", LogicalType::Decimal(38, 0), true)],
        ..StateSchema::default()
    };
    let meta = StateMeta { uid: Uid::new("counts"), name: "panes".into(), kind: StateKind::Keyed, schema: Arc::new(schema) };
    State { meta, rows: RecordBatch::try_from_iter(columns).expect("columns"), parallelism: 2, in_files: true }
}

/// Operator state, inline.
pub fn entries(uid: &str, name: &str, texts: &[&str]) -> State {
    let meta = StateMeta { uid: Uid::new(uid), name: name.into(), kind: StateKind::OperatorList, schema: Arc::default() };
    let entries: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    let rows = RecordBatch::try_from_iter([("entry", entries)]).expect("a column");
    State { meta, rows, parallelism: 1, in_files: false }
}

/// What one subtask writes.
fn handle(folder: &Path, state: &State, subtask: u32) -> StateHandle {
    let key_groups = match state.meta.kind {
        StateKind::Keyed => KeyGroupRange::of_subtask(subtask, state.parallelism, MAX_PARALLELISM),
        _ => KeyGroupRange::all(MAX_PARALLELISM),
    };
    let bytes = |rows: Vec<RecordBatch>| {
        let mut out = Vec::new();
        let no_limit = SizeLimit { bytes_max: None };
        let written = encode(&state.meta, MAX_PARALLELISM, ready(rows), no_limit, &mut out).expect("it is encoded");
        (written, Bytes::from(out))
    };
    // Written whole and read in part first: so each subtask has the rows of its groups.
    let (_, whole) = bytes(vec![state.rows.clone()]);
    let part = decode_range(whole, key_groups).expect("decoded").batches;
    let strip = |batch: RecordBatch| match state.meta.kind {
        StateKind::Keyed => batch.project(&(1..batch.num_columns()).collect::<Vec<_>>()).expect("columns exist"),
        _ => batch,
    };
    let (written, bytes) = bytes(part.into_iter().map(strip).collect());
    let name = format!("{}-{}-{subtask}", state.meta.uid, state.meta.name);
    let place = if state.in_files {
        std::fs::write(folder.join(&name), &bytes).expect("a file");
        Handle::File { path: format!("chk-7/{name}"), offset: 0, length: bytes.len() as u64 }
    } else {
        Handle::Inline(bytes)
    };
    StateHandle {
        uid: state.meta.uid.clone(),
        name: state.meta.name.clone(),
        kind: state.meta.kind,
        schema: Arc::clone(&state.meta.schema),
        subtask: SubtaskIndex(subtask),
        key_groups,
        rows: written.rows,
        crc32c: written.crc32c,
        handle: place,
    }
}

/// What one subtask writes of a state in a database below `dir`, its files into the checkpoint's folder.
fn database_handle(dir: &Path, state: &State) -> StateHandle {
    let key_groups = KeyGroupRange::all(MAX_PARALLELISM);
    let settings = RocksdbSettings {
        data_dirs: vec![dir.join("work")],
        owner: "test".into(),
        memory_bytes: 16 << 20,
        overlay_bytes: 8 << 20,
        profile: RocksdbProfile::default(),
        open_files: None,
    };
    let shared = Rocksdb::start(&settings).expect("a folder");
    let parts = ["job".to_owned(), "1-1".to_owned(), "0-0".to_owned()];
    let databases = TaskDatabases::new(&shared, &parts, (key_groups, MAX_PARALLELISM), Waker::noop().clone()).expect("a folder");
    let mut store = databases.open(&state.meta.uid).expect("a database").store;
    let id = store.open_state(&state.meta.name, &state.meta.schema, 0).expect("a state");
    let rows = RecordBatch::try_new(Arc::clone(store.layout(id).columns()), state.rows.columns().to_vec()).expect("its columns");
    store.change(id, Change { deletes: None, upserts: Some(rows) }).expect("it is sent");
    let snapshot = store.begin_snapshot();
    store.complete_snapshot();
    let files = snapshot.files().expect("a snapshot").into_iter().map(|file| {
        let path = format!("chk-7/{}", file.name);
        let bytes = std::fs::read(&file.path).expect("a file");
        std::fs::write(dir.join("job").join(&path), &bytes).expect("a file");
        DatabaseFile { name: file.name, path, length: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) }
    });
    let handle = Handle::Database { files: files.collect(), family: state.meta.name.clone() };
    StateHandle {
        uid: state.meta.uid.clone(),
        name: state.meta.name.clone(),
        kind: state.meta.kind,
        schema: Arc::clone(&state.meta.schema),
        subtask: SubtaskIndex(0),
        key_groups,
        rows: state.rows.num_rows() as u64,
        crc32c: 0,
        handle,
    }
}

/// Compares with a file of `cli/tests/golden`; `LEVADA_BLESS=1` writes it anew.
pub fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LEVADA_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("a file");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text == expected, "{name} differs; it is now:\n{text}");
}
