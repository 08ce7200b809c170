//! Keyed states in files on their way into the databases of a task: they never come into memory whole.
//!
//! A file is fetched in parts to the disk that the databases are on, verified there, and read back batch by batch into the
//! operator's database, or where only the operator knows their places there by the operator. A state of which the job keeps other
//! columns now comes as rows, which the operator reads as it does on the heap. Must never know what a state means.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::fault::Failure;
use levada_common::ids::TaskId;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{BackendKind, OperatorSpec};
use levada_common::state_schema::StateSchema;
use levada_common::storage::LocalFile;
use levada_engine::operators::{keeps_in_store, stands_in_panes, stored_schema};
use levada_proto::convert::{RestorePlace, RestoreState};
use levada_state::cold::ColdError;
use levada_state::format::{DecodeError, Layout, TRAILER_BYTES, WantedRows, footer_range};
use levada_state_rocksdb::TaskDatabases;

use super::database::blocking;
use super::fetch::{Unfetched, fetch};
use super::{Restorer, corrupt, nesting, regroup, unreadable};
use crate::upload::key_groups;

impl Restorer {
    /// Whether a state of the task goes from a file into a database without coming into memory.
    pub(super) fn goes_into_store(&self, task: TaskId, state: &RestoreState) -> bool {
        let operators = &self.plan.vertex(task.vertex).operators;
        self.plan.settings.backend == BackendKind::Rocksdb
            && state.kind == StateKind::Keyed
            && matches!(state.place, RestorePlace::File { .. })
            && operators.iter().any(|operator| has(operator, state) && keeps_in_store(&operator.kind, &state.name))
            && self.has_same_columns(state)
    }

    /// Whether the job keeps the columns that the file has; what release 0.1 wrote does not say which they are.
    fn has_same_columns(&self, state: &RestoreState) -> bool {
        let kept = self.columns.get(&(state.uid.clone(), state.name.clone()));
        kept.is_none_or(|kept| state.schema.values.is_empty() || *kept == state.schema.values)
    }

    /// Puts such states into the operators' databases, one after the other, or keeps their files for operators that do so.
    pub(super) async fn restore_rows(
        &self,
        task: TaskId,
        states: Vec<RestoreState>,
        databases: &Arc<TaskDatabases>,
    ) -> Result<(), Failure> {
        let range = (key_groups(&self.plan, task, StateKind::Keyed), self.plan.max_parallelism);
        let operators = &self.plan.vertex(task.vertex).operators;
        for state in states {
            let is_placed_later = operators.iter().any(|operator| has(operator, &state) && stands_in_panes(&operator.kind));
            let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
            let started = Instant::now();
            let file = self.fetch_file(&state, databases).await?;
            let (bytes, databases) = (file.length(), Arc::clone(databases));
            if is_placed_later {
                blocking(move || keep(state, file, range, &databases)).await?;
                continue;
            }
            let (uid, name) = (state.uid.clone(), state.name.clone());
            let mut owners = operators.iter().filter(|operator| has(operator, &state));
            let schema = owners.find_map(|operator| stored_schema(operator, &state.name));
            let schema = schema.map_or_else(|| Arc::clone(&state.schema), Arc::new);
            let entries = blocking(move || put(state, &schema, file, range, &databases)).await?;
            let took_ms = started.elapsed().as_millis() as u64;
            tracing::info!(operator = %uid, state = name, bytes, entries, took_ms, "a state was put into a database");
        }
        Ok(())
    }

    /// Fetches a state's file to the disk and verifies it.
    async fn fetch_file(&self, state: &RestoreState, databases: &TaskDatabases) -> Result<LocalFile, Failure> {
        let RestorePlace::File { directory, path, offset } = &state.place else {
            return Err(Failure::internal(format!("state \"{}\" is in no file", state.name)));
        };
        let storage = self.directory(directory).map_err(|error| unreadable(state, directory, &error))?;
        let failed = |error| Failure::external(format!("writing to \"{}\" failed: {error}", databases.path().display()));
        let file = LocalFile::scratch(databases.path()).map_err(failed)?;
        let fetched = fetch(&storage, path, (*offset, state.length), file).await;
        let (file, crc32c) = fetched.map_err(|why| match why {
            Unfetched::Read(error, _) => unreadable(state, directory, &error),
            Unfetched::Short(found) => corrupt(state, format!("want {} bytes, got {found}", state.length)),
            Unfetched::Write(error) => failed(error),
        })?;
        if crc32c != state.crc32c {
            return Err(corrupt(state, format!("want CRC-32C {:08x}, got {crc32c:08x}", state.crc32c)));
        }
        LocalFile::new(file).map_err(failed)
    }
}

/// Whether the state is this operator's: others of its node have their own.
fn has(operator: &OperatorSpec, state: &RestoreState) -> bool {
    operator.uid == state.uid && operator.state_names().contains(&state.name)
}

/// Puts the rows of a verified file that belong to these groups into the operator's database, where they are laid out by this schema.
fn put(
    state: RestoreState,
    schema: &Arc<StateSchema>,
    file: LocalFile,
    (groups, max_parallelism): (KeyGroupRange, u32),
    databases: &TaskDatabases,
) -> Result<u64, Failure> {
    let (uid, name) = (state.uid.clone(), state.name.clone());
    let mut rows = FileRows::open(state, file, groups, max_parallelism)?;
    databases.put_rows(&uid, &name, schema, || rows.next_batch())
}

/// Keeps them for the operator, with the key groups that they have now.
fn keep(
    state: RestoreState,
    file: LocalFile,
    (groups, max_parallelism): (KeyGroupRange, u32),
    databases: &TaskDatabases,
) -> Result<(), Failure> {
    let (uid, name, path) = (state.uid.clone(), state.name.clone(), databases.path().to_path_buf());
    let mut rows = FileRows::open(state, file, groups, max_parallelism)?;
    let is_regrouped = rows.layout.max_parallelism() != max_parallelism;
    let (of, state) = (uid.clone(), name.clone());
    let batches = std::iter::from_fn(move || {
        let batch = rows.next_batch().transpose()?;
        let batch = batch.map(|batch| if is_regrouped { regroup(&batch, max_parallelism) } else { batch });
        let failed =
            |failure| ColdError::Read { uid: of.clone(), state: state.clone(), path: path.clone(), source: Arc::new(failure) };
        Some(batch.map_err(failed))
    });
    databases.keep_fetched(&uid, &name, Box::new(batches));
    Ok(())
}

/// The rows of a file, batch by batch.
struct FileRows {
    state: RestoreState,
    file: LocalFile,
    layout: Layout,
    wanted: WantedRows,
}

impl FileRows {
    fn open(state: RestoreState, file: LocalFile, groups: KeyGroupRange, max_parallelism: u32) -> Result<Self, Failure> {
        let damaged = |error: DecodeError| corrupt(&state, error.to_string());
        let length = file.length();
        let trailer = read(&state, &file, length.saturating_sub(TRAILER_BYTES)..length)?;
        let footer = read(&state, &file, footer_range(&trailer, length).map_err(damaged)?)?;
        let layout = Layout::read(&footer, length).map_err(damaged)?;
        let noted = state.max_parallelism.unwrap_or(max_parallelism);
        if layout.max_parallelism() != noted {
            return Err(corrupt(&state, format!("want key groups of {noted}, got {}", layout.max_parallelism())));
        }
        let wanted = layout.rows_of(Some(nesting(groups, noted, max_parallelism))).map_err(damaged)?;
        Ok(Self { state, file, layout, wanted })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let damaged = |error: DecodeError| corrupt(&self.state, error.to_string());
        if let Some(batch) = self.wanted.missing() {
            let bytes = read(&self.state, &self.file, self.layout.range(batch))?;
            self.wanted.put(batch, self.layout.decode(batch, bytes).map_err(damaged)?);
        }
        self.wanted.next_rows().map_err(damaged)
    }
}

fn read(state: &RestoreState, file: &LocalFile, range: Range<u64>) -> Result<bytes::Bytes, Failure> {
    let failed = |error| Failure::external(format!("reading state \"{}\" of \"{}\" back failed: {error}", state.name, state.uid));
    file.read(range).map_err(failed)
}
