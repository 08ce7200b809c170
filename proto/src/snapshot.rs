//! Finds a checkpoint or savepoint by its URI, and reads its metadata.
//!
//! One rule for everything that takes a snapshot by its place: the folder of a savepoint or checkpoint, its `_metadata`, or a folder
//! of checkpoints (a job's, or one above it where only one job has any), which stands for the newest by (epoch, id). Must never know:
//! how state is encoded.

use std::collections::BTreeSet;

use levada_common::checkpoint::CheckpointMetadata;
use levada_common::savepoint::{CHECKPOINT_PREFIX, METADATA_FILE};
use levada_common::storage::{Storage, StorageError};

use crate::metadata::{self, MetadataError};

/// Jobs that a message names.
const JOBS_SHOWN: usize = 10;

/// A snapshot, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What it has.
    pub metadata: CheckpointMetadata,
    /// URI of its `_metadata`.
    pub file: String,
    /// URI of the directory below which its files are: a savepoint's own folder, or the job's checkpoint directory.
    pub directory: String,
}

/// Why no snapshot is read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Nothing there is one.
    #[error(
        "there is no snapshot at \"{uri}\": neither {METADATA_FILE} nor folders {CHECKPOINT_PREFIX}* with one; name the folder of a savepoint or checkpoint, or a job's folder in checkpoint.dir"
    )]
    NotFound {
        /// The URI as it was given.
        uri: String,
    },
    /// The folder holds checkpoints of several jobs.
    #[error("\"{uri}\" holds checkpoints of {count} jobs; name the folder of one: {jobs}")]
    SeveralJobs {
        /// The URI as it was given.
        uri: String,
        /// Number of jobs.
        count: usize,
        /// The first of them.
        jobs: String,
    },
    /// Its metadata cannot be trusted.
    #[error("\"{file}\" cannot be read as a snapshot: {source}{}", others(.older))]
    Metadata {
        /// The file.
        file: String,
        /// Why.
        source: MetadataError,
        /// Other snapshots beside it, newest first.
        older: Vec<String>,
    },
    /// The storage refuses.
    #[error("reading the snapshot at \"{uri}\" failed: {source}")]
    Storage {
        /// The URI as it was given.
        uri: String,
        /// Why.
        source: StorageError,
    },
}

fn others(older: &[String]) -> String {
    if older.is_empty() { String::new() } else { format!("; there are also, newest first: {}", older.join(", ")) }
}

/// Reads the snapshot at `uri`.
///
/// Errors: `Metadata` names the damaged file, and what else could be restored from; of a job's directory nothing older is taken by
/// itself, since going back is for its owner to decide.
pub async fn open(uri: &str) -> Result<Snapshot, SnapshotError> {
    let trimmed = uri.trim_end_matches('/');
    let folder = trimmed.strip_suffix(METADATA_FILE).and_then(|folder| folder.strip_suffix('/')).unwrap_or(trimmed);
    let failed = |source| SnapshotError::Storage { uri: uri.into(), source };
    let storage = Storage::open(folder).map_err(failed)?;
    match storage.get(METADATA_FILE).await {
        Ok(bytes) => {
            let file = format!("{folder}/{METADATA_FILE}");
            let metadata = metadata::decode(bytes).map_err(|source| SnapshotError::Metadata {
                file: file.clone(),
                source,
                older: Vec::new(),
            })?;
            Ok(snapshot(metadata, folder, file))
        }
        Err(error) if error.is_not_found() => newest(&storage, uri, folder).await,
        Err(error) => Err(failed(error)),
    }
}

/// A savepoint's files are in its own folder, a checkpoint's in the one above.
fn snapshot(metadata: CheckpointMetadata, folder: &str, file: String) -> Snapshot {
    let above = || folder.rsplit_once('/').map_or(folder, |(above, _)| above);
    let directory = if metadata.savepoint { folder } else { above() }.to_owned();
    Snapshot { metadata, file, directory }
}

/// The newest checkpoint of the one job whose checkpoints are in `folder`.
///
/// Errors: none; several jobs; one newer than all that can be read is damaged. What was deleted since the listing is passed over.
async fn newest(storage: &Storage, uri: &str, folder: &str) -> Result<Snapshot, SnapshotError> {
    let failed = |source| SnapshotError::Storage { uri: uri.into(), source };
    let listed = storage.list("").await.map_err(failed)?;
    let mut found: Vec<(u64, &str)> = listed.iter().filter_map(|file| checkpoint(&file.path)).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    one_job(uri, &found)?;
    let path_of = |own: &str| format!("{folder}/{own}");
    let mut newest: Option<Snapshot> = None;
    for (id, own) in &found {
        let bytes = match storage.get(&format!("{own}/{METADATA_FILE}")).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(failed(error)),
        };
        let file = path_of(&format!("{own}/{METADATA_FILE}"));
        match metadata::decode(bytes) {
            Ok(metadata) => {
                let order = |metadata: &CheckpointMetadata| (metadata.epoch, metadata.id);
                if newest.as_ref().is_none_or(|newest| order(&newest.metadata) < order(&metadata)) {
                    newest = Some(snapshot(metadata, &path_of(own), file));
                }
            }
            Err(source) if newest.is_none() => {
                let older = found.iter().filter(|(other, _)| other != id).map(|(_, own)| path_of(own)).collect();
                return Err(SnapshotError::Metadata { file, source, older });
            }
            Err(_) => {}
        }
    }
    newest.ok_or_else(|| SnapshotError::NotFound { uri: uri.into() })
}

fn one_job(uri: &str, found: &[(u64, &str)]) -> Result<(), SnapshotError> {
    let jobs: BTreeSet<&str> = found.iter().map(|(_, own)| own.rsplit_once('/').map_or("", |(job, _)| job)).collect();
    if jobs.len() <= 1 {
        return Ok(());
    }
    let shown: Vec<&str> = jobs.iter().copied().take(JOBS_SHOWN).collect();
    let more = if jobs.len() > JOBS_SHOWN { ", ..." } else { "" };
    Err(SnapshotError::SeveralJobs { uri: uri.into(), count: jobs.len(), jobs: format!("{}{more}", shown.join(", ")) })
}

/// The id and the folder in the path `chk-<id>/_metadata` or `<job>/chk-<id>/_metadata`.
fn checkpoint(path: &str) -> Option<(u64, &str)> {
    let own = path.strip_suffix(METADATA_FILE)?.strip_suffix('/')?;
    let (job, name) = own.rsplit_once('/').unwrap_or(("", own));
    let id = name.strip_prefix(CHECKPOINT_PREFIX)?.parse().ok()?;
    (!job.contains('/')).then_some((id, own))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use levada_common::ids::{CheckpointId, Epoch, JobId};

    use super::*;

    fn write(dir: &Path, folder: &str, epoch: u64, id: u64) {
        let metadata = CheckpointMetadata {
            job: JobId::from_u128(7),
            epoch: Epoch(epoch),
            id: CheckpointId(id),
            triggered_at_ms: 0,
            max_parallelism: 128,
            savepoint: !folder.contains(CHECKPOINT_PREFIX),
            vertices: Vec::new(),
            tasks: Vec::new(),
        };
        std::fs::create_dir_all(dir.join(folder)).expect("a folder");
        std::fs::write(dir.join(folder).join(METADATA_FILE), metadata::encode(metadata)).expect("a file");
    }

    fn uri(path: &Path) -> String {
        format!("file://{}", path.display())
    }

    #[test]
    fn only_metadata_in_a_checkpoint_s_folder_counts() {
        assert_eq!(checkpoint("chk-17/_metadata"), Some((17, "chk-17")));
        assert_eq!(checkpoint("job/chk-1/_metadata"), Some((1, "job/chk-1")));
        for other in ["chk-17/1-1-a", "_metadata", "chk-x/_metadata", "shared/_metadata", "a/b/chk-1/_metadata", "chk-1_metadata"]
        {
            assert_eq!(checkpoint(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn each_way_to_name_a_checkpoint_finds_it_and_its_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        for (folder, epoch, id) in [("ck/job/chk-9", 1, 9), ("ck/job/chk-8", 2, 8), ("ck/job/chk-3", 1, 3)] {
            write(root, folder, epoch, id);
        }
        let job = root.join("ck/job");
        let newest = uri(&job.join("chk-8/_metadata"));
        for name in [newest.clone(), uri(&job.join("chk-8")), uri(&job), format!("{}/", uri(&job)), uri(&root.join("ck"))] {
            let snapshot = open(&name).await.expect(&name);
            assert_eq!((snapshot.file, snapshot.directory), (newest.clone(), uri(&job)));
        }
        write(root, "ck/other/chk-1", 1, 1);
        let error = open(&uri(&root.join("ck"))).await.expect_err("two jobs").to_string();
        assert!(error.contains("2 jobs") && error.contains("job, other"), "{error}");
    }

    #[tokio::test]
    async fn a_savepoint_is_its_own_folder_wherever_it_is_moved() {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), "moved", 1, 4);
        let snapshot = open(&uri(&dir.path().join("moved"))).await.expect("found");
        assert_eq!(snapshot.directory, uri(&dir.path().join("moved")));
    }

    #[tokio::test]
    async fn a_damaged_newest_is_named_and_an_older_one_does_not_matter() {
        let dir = tempfile::tempdir().expect("a folder");
        let job = dir.path().join("job");
        for id in [1, 2, 3] {
            write(&job, &format!("chk-{id}"), 1, id);
        }
        let damage = |id: u64| std::fs::write(job.join(format!("chk-{id}/_metadata")), b"LEVADACK and no more").expect("a file");
        damage(2);
        assert_eq!(open(&uri(&job)).await.expect("3 is whole").metadata.id, CheckpointId(3));
        damage(3);
        let error = open(&uri(&job)).await.expect_err("3 is damaged").to_string();
        assert!(error.contains("chk-3/_metadata") && error.contains(&format!("{}/chk-2, ", uri(&job))), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_snapshot_says_what_was_looked_for() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in [dir.path().to_owned(), dir.path().join("nothing"), dir.path().join("_metadata")] {
            let error = open(&uri(&path)).await.expect_err("nothing there").to_string();
            assert!(error.contains("_metadata") && error.contains("chk-*"), "{error}");
        }
    }
}
