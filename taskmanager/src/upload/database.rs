//! Databases on their way out: new files are written where several checkpoints can share them, those that the last complete
//! checkpoint has are referred to.
//!
//! Invariant: a file is referred to only where a checkpoint that has it is known to be complete, so that what was written for
//! one that was given up is never needed.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use levada_common::checkpoint::{DatabaseFile, DeclineReason, Handle, StateHandle, shared_path_start};
use levada_common::ids::{CheckpointId, TaskId, Uid};
use levada_common::storage::LocalFile;
use levada_state::snapshot::{Contents, DatabaseSnapshot, SnapshotFile, StateMeta, StatePart};
use uuid::Uuid;

use super::Uploads;
use super::encode::{Stopped, key_groups};
use super::store::Store;

/// Files of one database that are read and written at once.
const FILES_AT_ONCE: usize = 3;

/// What databases' snapshots moved, for the metrics.
#[derive(Debug, Default)]
pub struct DatabaseTraffic {
    /// Bytes of files that were written.
    pub written_bytes: AtomicU64,
    /// Bytes of files that were there.
    pub reused_bytes: AtomicU64,
    /// Bytes of files that were fetched at restores.
    pub fetched_bytes: AtomicU64,
}

/// The database of an operator of a task.
type Place = (TaskId, Uid);

/// Files by their names in the database.
type Files = HashMap<String, DatabaseFile>;

/// Which files of the databases are in the checkpoint storage.
#[derive(Debug, Default)]
pub struct KnownFiles {
    /// Those of the last complete checkpoint.
    complete: HashMap<Place, Files>,
    /// Those of checkpoints that are not.
    sent: BTreeMap<CheckpointId, HashMap<Place, Files>>,
}

impl KnownFiles {
    /// A database was made of these files.
    pub fn restored(&mut self, task: TaskId, uid: Uid, files: &[DatabaseFile]) {
        self.complete.insert((task, uid), by_name(files));
    }

    /// A snapshot of a task is stored; whatever databases it has follow.
    fn begun(&mut self, checkpoint: CheckpointId) {
        self.sent.entry(checkpoint).or_default();
    }

    /// A snapshot has these files.
    fn sent(&mut self, checkpoint: CheckpointId, place: Place, files: &[DatabaseFile]) {
        self.sent.entry(checkpoint).or_default().insert(place, by_name(files));
    }

    /// A checkpoint is complete. One that no snapshot was stored for here, a savepoint, changes nothing.
    pub fn complete(&mut self, checkpoint: CheckpointId) {
        if let Some(files) = self.sent.remove(&checkpoint) {
            self.complete = files;
        }
        self.sent.retain(|other, _| *other > checkpoint);
    }

    /// A checkpoint was given up.
    pub fn give_up(&mut self, checkpoint: CheckpointId) {
        self.sent.remove(&checkpoint);
    }

    /// The file in the storage that is this one.
    fn find(&self, place: &Place, file: &SnapshotFile) -> Option<DatabaseFile> {
        let known = self.complete.get(place)?.get(&file.name)?;
        (file.is_immutable && known.length == file.length).then(|| known.clone())
    }
}

fn by_name(files: &[DatabaseFile]) -> Files {
    let shared = files.iter().filter(|file| file.is_shared());
    shared.map(|file| (file.name.clone(), file.clone())).collect()
}

/// A database that goes out as files.
pub struct Database {
    snapshot: Arc<dyn DatabaseSnapshot>,
    states: Vec<StateMeta>,
    files: Vec<SnapshotFile>,
}

/// Takes out of `parts` what goes out as databases: a database whose tables are no larger than `inline_bytes_max` together goes
/// out in the open format, like the state of a heap. Waits until the databases are there.
pub async fn split(parts: Vec<StatePart>, inline_bytes_max: u64) -> Result<(Vec<StatePart>, Vec<Database>), Stopped> {
    let (mut others, mut databases) = (Vec::new(), Vec::<Database>::new());
    let is = |one: &Arc<dyn DatabaseSnapshot>, other: &Arc<dyn DatabaseSnapshot>| Arc::ptr_eq(one, other);
    for StatePart { meta, contents } in parts {
        let snapshot = match contents {
            Contents::Pieces(_) => {
                others.push(StatePart { meta, contents });
                continue;
            }
            Contents::Database(snapshot) => snapshot,
        };
        match databases.iter_mut().find(|known| is(&known.snapshot, &snapshot)) {
            Some(known) => known.states.push(meta),
            None => databases.push(Database { snapshot, states: vec![meta], files: Vec::new() }),
        }
    }
    let mut large = Vec::new();
    for mut database in databases {
        let snapshot = Arc::clone(&database.snapshot);
        database.files = blocking(move || Ok(snapshot.files()?)).await?;
        let tables = database.files.iter().filter(|file| file.is_immutable);
        if tables.map(|file| file.length).sum::<u64>() > inline_bytes_max {
            large.push(database);
            continue;
        }
        let contents = || Contents::Database(Arc::clone(&database.snapshot));
        others.extend(database.states.into_iter().map(|meta| StatePart { meta, contents: contents() }));
    }
    Ok((others, large))
}

/// Writes what is new of each database, and answers the handles of their states.
pub async fn store(
    uploads: &Uploads,
    store: &Store,
    (task, checkpoint): (TaskId, CheckpointId),
    databases: Vec<Database>,
) -> Result<Vec<StateHandle>, Stopped> {
    uploads.known().begun(checkpoint);
    let mut states = Vec::new();
    for database in databases {
        let Some(first) = database.states.first() else { continue };
        let place = (task, first.uid.clone());
        let written = database.files.into_iter().map(|file| {
            let known = uploads.known().find(&place, &file);
            store_file(uploads, store, file, known)
        });
        let written: Vec<_> = written.collect();
        let files: Vec<DatabaseFile> = futures::stream::iter(written).buffered(FILES_AT_ONCE).try_collect().await?;
        uploads.known().sent(checkpoint, place, &files);
        let files: Arc<[DatabaseFile]> = files.into();
        let snapshot = &database.snapshot;
        states.extend(database.states.into_iter().map(|meta| StateHandle {
            rows: snapshot.entries(&meta.name),
            handle: Handle::Database { files: Arc::clone(&files), family: meta.name.clone() },
            key_groups: key_groups(&uploads.plan, task, meta.kind),
            subtask: task.subtask,
            crc32c: 0,
            uid: meta.uid,
            name: meta.name,
            kind: meta.kind,
            schema: meta.schema,
        }));
    }
    Ok(states)
}

/// Writes a file that is not in the storage.
async fn store_file(
    uploads: &Uploads,
    store: &Store,
    file: SnapshotFile,
    known: Option<DatabaseFile>,
) -> Result<DatabaseFile, Stopped> {
    if let Some(known) = known {
        uploads.traffic.reused_bytes.fetch_add(known.length, Ordering::Relaxed);
        return Ok(known);
    }
    let SnapshotFile { name, path, length, is_immutable } = file;
    let (local, crc32c) = blocking(move || measure(path, length)).await?;
    let unique = Uuid::new_v4().simple();
    let path = match is_immutable {
        true => format!("{}{unique}", shared_path_start(uploads.attempt.epoch, uploads.attempt.attempt)),
        false => format!("{}-{unique}", store.folder),
    };
    let _turn = uploads.copies.acquire().await;
    store.put_file(&path, &local).await?;
    uploads.traffic.written_bytes.fetch_add(length, Ordering::Relaxed);
    Ok(DatabaseFile { name, path, length, crc32c })
}

/// Opens a file of a snapshot, which has as many bytes as was said, and answers their CRC-32C.
fn measure(path: PathBuf, length: u64) -> Result<(LocalFile, u32), Stopped> {
    let fail = |what: String| {
        let text = format!("reading \"{}\" of a database's snapshot failed: {what}", path.display());
        Stopped::Declined(DeclineReason::Declined(text))
    };
    let file = File::open(&path).and_then(LocalFile::new).map_err(|error| fail(error.to_string()))?;
    if file.length() != length {
        return Err(fail(format!("want {length} bytes, got {}", file.length())));
    }
    let mut crc32c = 0;
    let read = file.read_through(|bytes| {
        crc32c = crc32c::crc32c_append(crc32c, bytes);
        Ok(())
    });
    read.map_err(|error| fail(error.to_string()))?;
    Ok((file, crc32c))
}

/// Does work that blocks on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Stopped> + Send + 'static) -> Result<T, Stopped> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Stopped::Declined(DeclineReason::Declined(format!("a database's snapshot failed: {error}")))))
}

#[cfg(test)]
mod tests {
    use levada_common::checkpoint::SHARED_FOLDER;

    use super::*;

    fn file(name: &str, length: u64) -> DatabaseFile {
        DatabaseFile { name: name.into(), path: format!("{SHARED_FOLDER}/{name}"), length, crc32c: 1 }
    }

    fn local(name: &str, length: u64, is_immutable: bool) -> SnapshotFile {
        SnapshotFile { name: name.into(), path: name.into(), length, is_immutable }
    }

    #[test]
    fn only_files_of_complete_checkpoints_are_referred_to() {
        let place = (crate::testing::task(0, 0), Uid::new("counts"));
        let elsewhere = (crate::testing::task(0, 1), Uid::new("counts"));
        let mut known = KnownFiles::default();
        let table = local("1.sst", 7, true);
        known.sent(CheckpointId(1), place.clone(), &[file("1.sst", 7)]);
        assert_eq!(known.find(&place, &table), None, "it may be given up yet");
        known.give_up(CheckpointId(1));
        known.complete(CheckpointId(1));
        assert_eq!(known.find(&place, &table), None);
        known.sent(
            CheckpointId(2),
            place.clone(),
            &[file("1.sst", 7), DatabaseFile { path: "chk-2/a".into(), ..file("CURRENT", 7) }],
        );
        known.sent(CheckpointId(3), place.clone(), &[file("3.sst", 7)]);
        known.complete(CheckpointId(2));
        assert_eq!(known.find(&place, &table), Some(file("1.sst", 7)));
        assert_eq!(known.find(&elsewhere, &table), None);
        assert_eq!(known.find(&place, &local("1.sst", 8, true)), None, "another length is another file");
        assert_eq!(known.find(&place, &local("CURRENT", 7, true)), None, "what one checkpoint has alone goes with it");
        known.complete(CheckpointId(3));
        assert_eq!(known.find(&place, &table), None, "a file that the newest does not have may be deleted");
        known.begun(CheckpointId(4));
        known.complete(CheckpointId(4));
        assert_eq!(known.find(&place, &local("3.sst", 7, true)), None, "the newest has no database");
        known.restored(place.0, place.1.clone(), &[file("9.sst", 7)]);
        assert_eq!(known.find(&place, &local("9.sst", 7, true)), Some(file("9.sst", 7)));
        assert_eq!(known.find(&place, &local("9.sst", 7, false)), None);
        known.complete(CheckpointId(5));
        assert!(known.find(&place, &local("9.sst", 7, true)).is_some(), "a savepoint changes nothing");
    }
}
