//! What a task is restored from: fetched, verified and decoded before the task starts, off its thread.
//!
//! Must never know: what a state means. Invariant: no byte is decoded whose length and CRC-32C are not those that were noted.

mod database;
mod fetch;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod round_trip;
mod rows;
#[cfg(test)]
mod shipping;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use arrow::array::{ArrayRef, UInt16Array};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use levada_common::checkpoint::{DatabaseFile, StateKind};
use levada_common::fault::{Failure, Fault, Retry};
use levada_common::ids::{AttemptId, TaskId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::Plan;
use levada_common::state_schema::Stamps;
use levada_common::storage::{Storage, StorageError, retried};
use levada_common::types::Column;
use levada_engine::operator::RestoredState;
use levada_proto::convert::{RestorePlace, RestoreState};
use levada_state::format::{FileBytes, KEY_GROUP_COLUMN, decode_range, groups_by_key};
use levada_state::row_codec::restamped;
use levada_state_rocksdb::TaskDatabases;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::databases::Databases;
use crate::rpc::{BYTES_PER_SECOND_MIN, JobManager};
use crate::upload::key_groups;

/// What a task had.
#[derive(Default)]
pub struct Restored {
    /// By node, what comes as rows.
    pub states: BTreeMap<Uid, Vec<RestoredState>>,
    /// The task's databases, on the rocksdb backend: with what the nodes had in databases.
    pub databases: Option<Arc<TaskDatabases>>,
    /// Files of the job's own checkpoints that nodes' databases were made of.
    pub reusable: Vec<(Uid, Arc<[DatabaseFile]>)>,
}

impl Restored {
    /// Adds rows of a state; those of one name and kind are put together.
    fn add(&mut self, state: &RestoreState, batches: Vec<RecordBatch>) {
        let of_node = self.states.entry(state.uid.clone()).or_default();
        match of_node.iter_mut().find(|known| known.name == state.name && known.kind == state.kind) {
            Some(known) => known.batches.extend(batches),
            None => of_node.push(RestoredState { name: state.name.clone(), kind: state.kind, batches }),
        }
    }
}

/// States that are fetched at once by one deployment.
const FETCHES_MAX: usize = 8;

/// Bytes of a file that are read at once.
const PART_BYTES: u64 = 8 << 20;

/// Parts of a state that are read at once.
const PARTS_AT_ONCE: usize = 4;

/// How long one part of a state is tried to be read before the attempt fails, and is made again where the job's policy says so.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Until when so many bytes are tried to be read.
fn read_deadline(bytes: u64) -> Instant {
    Instant::now() + READ_TIMEOUT + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Restores the tasks of one deployment.
pub struct Restorer {
    attempt: AttemptId,
    plan: Arc<Plan>,
    job_manager: JobManager,
    databases: Arc<Databases>,
    /// The job's checkpoint directory.
    own_directory: Option<String>,
    permits: Semaphore,
    directories: Mutex<HashMap<String, Arc<Storage>>>,
    /// The clock by which each state expires now.
    clocks: HashMap<(Uid, String), Stamps>,
    /// The columns that the values of each state have now.
    columns: HashMap<(Uid, String), Vec<Column>>,
}

impl Restorer {
    /// A restorer of the tasks of `attempt`, whose checkpoints go to `own_directory`.
    pub fn new(
        attempt: AttemptId,
        plan: Arc<Plan>,
        job_manager: JobManager,
        databases: Arc<Databases>,
        own_directory: Option<String>,
    ) -> Arc<Self> {
        let (permits, directories) = (Semaphore::new(FETCHES_MAX), Mutex::default());
        let (mut clocks, mut columns) = (HashMap::new(), HashMap::new());
        for state in plan.states() {
            let of = (state.uid, state.name);
            clocks.insert(of.clone(), state.schema.ttl);
            columns.insert(of, state.schema.values);
        }
        Arc::new(Self { attempt, plan, job_manager, databases, own_directory, permits, directories, clocks, columns })
    }

    /// What `task` had: the states of one name are put together in the order in which they are given. `waker` wakes the task.
    pub async fn restore(&self, task: TaskId, states: Vec<RestoreState>, waker: Waker) -> Result<Restored, Failure> {
        let (in_databases, others): (Vec<_>, Vec<_>) =
            states.into_iter().partition(|state| matches!(state.place, RestorePlace::Database { .. }));
        let (in_files, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|state| self.goes_into_store(task, state));
        let fetched = others.into_iter().map(|state| async move {
            let batches = self.fetch(task, &state).await?;
            Ok::<_, Failure>((state, batches))
        });
        let mut restored = Restored::default();
        for (state, batches) in futures::future::try_join_all(fetched).await? {
            restored.add(&state, self.readable(&state, batches));
        }
        self.restore_databases(task, in_databases, waker, &mut restored).await?;
        if let Some(databases) = &restored.databases {
            self.restore_rows(task, in_files, databases).await?;
        }
        Ok(restored)
    }

    async fn fetch(&self, task: TaskId, state: &RestoreState) -> Result<Vec<RecordBatch>, Failure> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let bytes = match &state.place {
            RestorePlace::Inline(id) => self.job_manager.fetch_state(self.attempt, *id, state.length).await?.into(),
            RestorePlace::File { directory, path, offset } => {
                let storage = self.directory(directory).map_err(|error| unreadable(state, directory, &error))?;
                let parts = parts(*offset, state.length).map(|part| read_part(&storage, path, part));
                let parts = futures::stream::iter(parts).buffered(PARTS_AT_ONCE).try_collect().await;
                FileBytes::new(parts.map_err(|error| unreadable(state, directory, &error))?)
            }
            RestorePlace::Database { .. } => unreachable!("databases are restored as a whole"),
        };
        let (state, range) = (state.clone(), key_groups(&self.plan, task, state.kind));
        let max_parallelism = self.plan.max_parallelism;
        let decoded = tokio::task::spawn_blocking(move || decode_checked(&state, bytes, range, max_parallelism)).await;
        decoded.map_err(|error| Failure::internal(format!("decoding a state failed: {error}")))?
    }

    /// The rows of a state as it is now: stamps of another clock mean nothing to it.
    fn readable(&self, state: &RestoreState, batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
        let clock = self.clocks.get(&(state.uid.clone(), state.name.clone())).copied().unwrap_or_default();
        batches.into_iter().map(|batch| restamped(batch, state.schema.ttl, clock)).collect()
    }

    fn directory(&self, uri: &str) -> Result<Arc<Storage>, StorageError> {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(storage) = directories.get(uri) {
            return Ok(Arc::clone(storage));
        }
        let storage = Arc::new(Storage::open(uri)?);
        directories.insert(uri.into(), Arc::clone(&storage));
        Ok(storage)
    }
}

/// The ranges of the parts of a state of `length` bytes from `offset` of a file on.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (0..length).step_by(PART_BYTES as usize);
    starts.map(move |start| offset + start..offset + length.min(start + PART_BYTES))
}

async fn read_part(storage: &Storage, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
    retried(read_deadline(range.end - range.start), || storage.get_range(path, range.clone())).await
}

/// Verifies and decodes one state: the rows of the key groups `range` of `max_parallelism`, as far as it has any.
fn decode_checked(
    state: &RestoreState,
    bytes: FileBytes,
    range: KeyGroupRange,
    max_parallelism: u32,
) -> Result<Vec<RecordBatch>, Failure> {
    if bytes.length() != state.length {
        return Err(corrupt(state, format!("want {} bytes, got {}", state.length, bytes.length())));
    }
    bytes
        .verify(state.crc32c)
        .map_err(|bad| corrupt(state, format!("want CRC-32C {:08x}, got {:08x}", bad.expected, bad.found)))?;
    let noted = state.max_parallelism.unwrap_or(max_parallelism);
    let decoded =
        decode_range(bytes, nesting(range, noted, max_parallelism)).map_err(|error| corrupt(state, error.to_string()))?;
    if decoded.max_parallelism != noted {
        return Err(corrupt(state, format!("want key groups of {noted}, got {}", decoded.max_parallelism)));
    }
    match state.kind {
        StateKind::Keyed if noted != max_parallelism => Ok(regrouped(decoded.batches, max_parallelism)),
        StateKind::Keyed => Ok(decoded.batches),
        StateKind::OperatorList | StateKind::OperatorUnion | StateKind::OperatorBroadcast => {
            Ok(cut(&decoded.batches, state.entries.clone()))
        }
    }
}

/// The groups of `old` in which those of `new`, a multiple of it, are nested.
fn nesting(range: KeyGroupRange, old: u32, new: u32) -> KeyGroupRange {
    let nested = |group: u16| (u32::from(group) * old / new) as u16;
    KeyGroupRange { start: nested(range.start), end: nested(range.end) }
}

/// The rows with the key groups that their keys have now.
fn regrouped(batches: Vec<RecordBatch>, max_parallelism: u32) -> Vec<RecordBatch> {
    batches.into_iter().map(|batch| regroup(&batch, max_parallelism)).collect()
}

fn regroup(batch: &RecordBatch, max_parallelism: u32) -> RecordBatch {
    let schema = batch.schema();
    let groups: ArrayRef = Arc::new(UInt16Array::from(groups_by_key(batch, max_parallelism)));
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| if field.name() == KEY_GROUP_COLUMN { &groups } else { column }).cloned();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(&schema), columns.collect(), &options)
        .expect("a column of the same type and length")
}

/// The rows `rows` of all batches together.
fn cut(batches: &[RecordBatch], rows: Range<u64>) -> Vec<RecordBatch> {
    let (mut found, mut start) = (Vec::new(), 0);
    for batch in batches {
        let end = start + batch.num_rows() as u64;
        let (from, to) = (rows.start.max(start), rows.end.min(end));
        if from < to {
            found.push(batch.slice((from - start) as usize, (to - from) as usize));
        }
        start = end;
    }
    found
}

fn place_text(state: &RestoreState) -> String {
    match &state.place {
        RestorePlace::Inline(id) => format!("inline state {id}"),
        RestorePlace::Database { directory, family, .. } => format!("family \"{family}\" of a database in \"{directory}\""),
        RestorePlace::File { directory, path, offset } => format!("\"{directory}/{path}\" at byte {offset}"),
    }
}

/// The bytes are not those of the snapshot: trying again reads the same.
fn corrupt(state: &RestoreState, what: String) -> Failure {
    let text = format!("operator \"{}\", state \"{}\", subtask {}", state.uid, state.name, state.subtask);
    Failure {
        message: format!("corrupt handle {}: {what}; {text}", place_text(state)),
        fault: Fault::External,
        retry: Retry::Never,
    }
}

fn unreadable(state: &RestoreState, directory: &str, error: &StorageError) -> Failure {
    let text = format!("operator \"{}\", state \"{}\", subtask {}", state.uid, state.name, state.subtask);
    Failure::external(format!("reading {} below \"{directory}\" failed: {error}; {text}", place_text(state)))
}

#[cfg(test)]
mod tests {
    use levada_common::ids::SubtaskIndex;
    use levada_state::format::{SizeLimit, encode};
    use levada_state::snapshot::{StateMeta, ready};

    use super::*;

    fn entries(texts: &[&str]) -> RecordBatch {
        let column: arrow::array::ArrayRef = Arc::new(arrow::array::StringArray::from(texts.to_vec()));
        RecordBatch::try_from_iter([("entry", column)]).unwrap()
    }

    fn state(pieces: &[RecordBatch], entries: std::ops::Range<u64>) -> (RestoreState, Bytes) {
        let meta =
            StateMeta { uid: Uid::new("lines"), name: "splits".into(), kind: StateKind::OperatorList, schema: Arc::default() };
        let mut bytes = Vec::new();
        let no_limit = SizeLimit { bytes_max: None };
        let written = encode(&meta, 128, ready(pieces.to_vec()), no_limit, &mut bytes).unwrap();
        let state = RestoreState {
            uid: meta.uid,
            name: meta.name,
            kind: meta.kind,
            schema: meta.schema,
            subtask: SubtaskIndex(1),
            key_groups: KeyGroupRange::all(128),
            rows: written.rows,
            crc32c: written.crc32c,
            length: bytes.len() as u64,
            place: RestorePlace::File { directory: "file:///c/job".into(), path: "chk-1/x".into(), offset: 0 },
            max_parallelism: None,
            entries,
        };
        (state, bytes.into())
    }

    #[test]
    fn a_task_gets_its_entries_of_a_list() {
        let (state, bytes) = state(&[entries(&["a", "b", "c"]), entries(&["d", "e"])], 2..4);
        let batches = decode_checked(&state, bytes.into(), KeyGroupRange::all(128), 128).unwrap();
        let got: Vec<String> = batches
            .iter()
            .flat_map(|batch| {
                arrow::array::AsArray::as_string::<i32>(batch.column(0)).iter().flatten().map(String::from).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(got, ["c", "d"]);
    }

    #[test]
    fn a_flipped_bit_and_a_missing_byte_are_named() {
        let (state, bytes) = state(&[entries(&["a"])], 0..1);
        let mut flipped = bytes.to_vec();
        flipped[100] ^= 1;
        let failure = decode_checked(&state, Bytes::from(flipped).into(), KeyGroupRange::all(128), 128).unwrap_err();
        assert!(failure.message.starts_with("corrupt handle \"file:///c/job/chk-1/x\" at byte 0: want CRC-32C "), "{failure}");
        assert_eq!(failure.retry, Retry::Never);
        let short = bytes.slice(..bytes.len() - 1);
        let failure = decode_checked(&state, short.into(), KeyGroupRange::all(128), 128).unwrap_err();
        assert!(failure.message.contains(&format!("want {} bytes, got {}", state.length, state.length - 1)), "{failure}");
    }

    /// Keyed state of the keys 0 to 999 in the key groups of `max`.
    fn keyed(max: u32) -> (RestoreState, Bytes) {
        let column: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..1000));
        let rows = RecordBatch::try_from_iter([("key.k", Arc::clone(&column)), ("n", column)]).unwrap();
        let meta = StateMeta { uid: Uid::new("counts"), name: "n".into(), kind: StateKind::Keyed, schema: Arc::default() };
        let mut bytes = Vec::new();
        let written = encode(&meta, max, ready([rows]), SizeLimit { bytes_max: None }, &mut bytes).unwrap();
        let (list, _) = state(&[entries(&["a"])], 0..1);
        let state = RestoreState {
            uid: meta.uid,
            name: meta.name,
            kind: meta.kind,
            key_groups: KeyGroupRange::all(max),
            rows: written.rows,
            crc32c: written.crc32c,
            length: bytes.len() as u64,
            max_parallelism: Some(max),
            entries: 0..written.rows,
            ..list
        };
        (state, bytes.into())
    }

    #[test]
    fn keys_find_their_groups_when_the_max_parallelism_is_multiplied() {
        for (old, factor, parallelism) in [(4, 2, 8), (4, 2, 3), (1, 128, 5), (128, 1, 2), (100, 3, 7)] {
            let (state, bytes) = keyed(old);
            let max = old * factor;
            let mut seen: Vec<i64> = Vec::new();
            for subtask in 0..parallelism {
                let own = KeyGroupRange::of_subtask(subtask, parallelism, max);
                for batch in decode_checked(&state, bytes.clone().into(), own, max).unwrap() {
                    use arrow::array::AsArray;
                    let groups = batch.column_by_name(KEY_GROUP_COLUMN).unwrap().as_primitive::<arrow::datatypes::UInt16Type>();
                    let keys = batch.column_by_name("key.k").unwrap();
                    let mut wanted = Vec::new();
                    levada_common::keys::key_groups(&[Arc::clone(keys)], max, &mut wanted);
                    assert_eq!(groups.values().to_vec(), wanted);
                    let keys = keys.as_primitive::<arrow::datatypes::Int64Type>().values();
                    seen.extend(keys.iter().zip(&wanted).filter(|(_, group)| own.contains(**group)).map(|(key, _)| *key));
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..1000).collect::<Vec<_>>(), "{old} times {factor} at {parallelism}");
        }
    }
}
