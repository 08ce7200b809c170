//! Restoring databases: their files are fetched beside the task's own, verified, and become its database; or where the backend
//! is another one, or the operator stands on the heap by now, they are read and forgotten.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use levada_common::checkpoint::{DatabaseFile, StateKind};
use levada_common::fault::{Failure, Fault, Faulty, Retry};
use levada_common::ids::{TaskId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::BackendKind;
use levada_common::storage::{Storage, StorageError};
use levada_engine::operators::stands_on_heap;
use levada_proto::convert::{RestorePlace, RestoreState};
use levada_state::format::with_groups;
use levada_state_rocksdb::{TaskDatabases, read_database};

use super::fetch::{Unfetched, fetch};
use super::{Restored, Restorer};
use crate::upload::key_groups;

/// Files of one database that are fetched at once.
const FILES_AT_ONCE: usize = 4;

/// A database that a task had, or one of several that it is made of.
struct Source {
    uid: Uid,
    directory: String,
    files: Arc<[DatabaseFile]>,
    states: Vec<RestoreState>,
}

impl Restorer {
    /// Restores what a task had in databases, into databases on the rocksdb backend where the operator has one, else as rows.
    pub(super) async fn restore_databases(
        &self,
        task: TaskId,
        states: Vec<RestoreState>,
        waker: Waker,
        restored: &mut Restored,
    ) -> Result<(), Failure> {
        let is_own_backend = self.plan.settings.backend == BackendKind::Rocksdb;
        if states.is_empty() && !is_own_backend {
            return Ok(());
        }
        let range = (key_groups(&self.plan, task, StateKind::Keyed), self.plan.max_parallelism);
        let databases = self.databases.of_task(self.attempt, task, range, waker)?;
        for sources in by_operator(states) {
            let folders = self.fetch_all(&databases, &sources).await?;
            match is_own_backend && !self.is_on_heap(task, &sources[0].uid) {
                true => self.become_database(&databases, sources, folders, restored).await?,
                false => self.read_rows(range, sources, folders, restored).await?,
            }
        }
        restored.databases = is_own_backend.then_some(databases);
        Ok(())
    }

    /// Whether no operator of the node opens a database in this task.
    fn is_on_heap(&self, task: TaskId, uid: &Uid) -> bool {
        let operators = self.plan.vertex(task.vertex).operators.iter();
        let mut of_node = operators.filter(|operator| operator.uid == *uid).peekable();
        of_node.peek().is_some() && of_node.all(|operator| stands_on_heap(&operator.kind))
    }

    /// Fetches the databases of one operator, one after the other; the files of each at once.
    async fn fetch_all(&self, databases: &TaskDatabases, sources: &[Source]) -> Result<Vec<PathBuf>, Failure> {
        let mut folders = Vec::with_capacity(sources.len());
        for (number, source) in sources.iter().enumerate() {
            let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
            let (started, folder) = (Instant::now(), databases.fetch_folder(&source.uid, number));
            let made = tokio::fs::create_dir_all(&folder).await;
            made.map_err(|error| Failure::external(format!("making \"{}\" failed: {error}", folder.display())))?;
            let storage = self.directory(&source.directory);
            let storage = storage.map_err(|error| Failure::external(format!("\"{}\": {error}", source.directory)))?;
            let fetched = source.files.iter().map(|file| fetch_file(&storage, source, file, &folder));
            let fetched: Vec<_> = fetched.collect();
            let sizes: Vec<u64> = futures::stream::iter(fetched).buffer_unordered(FILES_AT_ONCE).try_collect().await?;
            let bytes: u64 = sizes.iter().sum();
            self.databases.traffic().fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
            let took_ms = started.elapsed().as_millis() as u64;
            tracing::info!(operator = %source.uid, from = source.directory, files = sizes.len(), bytes, took_ms, "a database was fetched");
            folders.push(folder);
        }
        Ok(folders)
    }

    /// Makes the operator's database of those that were fetched.
    async fn become_database(
        &self,
        databases: &Arc<TaskDatabases>,
        sources: Vec<Source>,
        folders: Vec<PathBuf>,
        restored: &mut Restored,
    ) -> Result<(), Failure> {
        let uid = sources[0].uid.clone();
        let mut names: Vec<String> = sources.iter().flat_map(|source| &source.states).map(|state| state.name.clone()).collect();
        names.dedup();
        let (of_task, of_uid) = (Arc::clone(databases), uid.clone());
        let base = blocking(move || of_task.restore(&of_uid, &folders, &names).map_err(|error| error.to_failure())).await?;
        let base = base.map(|base| &sources[base]);
        if let Some(base) = base.filter(|base| self.own_directory.as_ref() == Some(&base.directory)) {
            restored.reusable.push((uid, Arc::clone(&base.files)));
        }
        Ok(())
    }

    /// Reads the rows of databases that were fetched, for a backend or an operator that has none.
    async fn read_rows(
        &self,
        range: (KeyGroupRange, u32),
        sources: Vec<Source>,
        folders: Vec<PathBuf>,
        restored: &mut Restored,
    ) -> Result<(), Failure> {
        for (source, folder) in sources.into_iter().zip(folders) {
            for state in source.states {
                let shared = self.databases.shared().map_err(|error| Failure::external(error.to_string()))?;
                let (uid, name, from) = (state.uid.clone(), state.name.clone(), folder.clone());
                let schema = Arc::clone(&state.schema);
                let batches = blocking(move || {
                    let mut batches: Vec<RecordBatch> = Vec::new();
                    let read = read_database(&shared, &uid, &from, (&name, &schema), range, &mut |batch| {
                        batches.push(with_groups(&batch, range.1));
                        std::ops::ControlFlow::Continue(())
                    });
                    read.map(|()| batches).map_err(|error| error.to_failure())
                });
                restored.add(&state, self.readable(&state, batches.await?));
            }
            if let Err(error) = tokio::fs::remove_dir_all(&folder).await {
                tracing::warn!(path = %folder.display(), %error, "a fetched database stays behind until the task starts");
            }
        }
        Ok(())
    }
}

/// The databases of each operator, each once whatever the number of its states.
fn by_operator(states: Vec<RestoreState>) -> Vec<Vec<Source>> {
    let mut operators: Vec<Vec<Source>> = Vec::new();
    for state in states {
        let RestorePlace::Database { directory, files, .. } = &state.place else { continue };
        let (directory, files) = (directory.clone(), Arc::clone(files));
        let place = operators.iter().position(|sources| sources[0].uid == state.uid).unwrap_or_else(|| {
            operators.push(Vec::new());
            operators.len() - 1
        });
        let sources = &mut operators[place];
        let same = |source: &&mut Source| source.directory == directory && source.files == files;
        match sources.iter_mut().find(same) {
            Some(source) => source.states.push(state),
            None => sources.push(Source { uid: state.uid.clone(), directory, files, states: vec![state] }),
        }
    }
    operators
}

/// Fetches a file into the folder part by part, and verifies it; answers its size.
async fn fetch_file(storage: &Storage, source: &Source, file: &DatabaseFile, folder: &Path) -> Result<u64, Failure> {
    let text = || format!("\"{}/{}\" of the database of operator \"{}\"", source.directory, file.path, source.uid);
    let corrupt = |what: String| Failure {
        message: format!("corrupt handle {}: {what}", text()),
        fault: Fault::External,
        retry: Retry::Never,
    };
    let path = folder.join(&file.name);
    let failed = |error| Failure::external(format!("writing \"{}\" failed: {error}", path.display()));
    let made = tokio::fs::File::create(&path).await.map_err(failed)?.into_std().await;
    let fetched = fetch(storage, &file.path, (0, file.length), made).await;
    let too_short = |found: u64| corrupt(format!("want {} bytes, got {found}", file.length));
    let (_, crc32c) = fetched.map_err(|why| match why {
        Unfetched::Read(StorageError::Truncated { found, .. }, before) => too_short(before + found),
        Unfetched::Read(error, _) => Failure::external(format!("reading {} failed: {error}", text())),
        Unfetched::Short(found) => too_short(found),
        Unfetched::Write(error) => failed(error),
    })?;
    if crc32c != file.crc32c {
        return Err(corrupt(format!("want CRC-32C {:08x}, got {crc32c:08x}", file.crc32c)));
    }
    Ok(file.length)
}

/// Does work that blocks on a thread for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::internal(format!("restoring a database failed: {error}"))))
}

#[cfg(test)]
mod tests;
