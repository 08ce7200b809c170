//! Finds a checkpoint or savepoint by its URI, and reads its metadata.
//!
//! One rule for everything that takes a snapshot by its place: the folder of a savepoint or checkpoint, its `_metadata`, or a job's
//! checkpoint directory, which stands for its newest checkpoint by (epoch, id). Must never know: how state is encoded.

use levada_common::checkpoint::CheckpointMetadata;
use levada_common::savepoint::{CHECKPOINT_PREFIX, METADATA_FILE};
use levada_common::storage::{Storage, StorageError};

use crate::metadata::{self, MetadataError};

/// A snapshot, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What it has.
    pub metadata: CheckpointMetadata,
    /// URI of its `_metadata`.
    pub file: String,
    /// URI of the directory below which its files are: its own folder, or the job's checkpoint directory.
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
        Err(StorageError::NotFound { .. }) => newest(&storage, uri, folder).await,
        Err(error) => Err(failed(error)),
    }
}

/// A savepoint's files are in its own folder, a checkpoint's in the one above.
fn snapshot(metadata: CheckpointMetadata, folder: &str, file: String) -> Snapshot {
    let above = || folder.rsplit_once('/').map_or(folder, |(above, _)| above);
    let directory = if metadata.savepoint { folder } else { above() }.to_owned();
    Snapshot { metadata, file, directory }
}

/// The newest checkpoint of a job's directory.
async fn newest(storage: &Storage, uri: &str, folder: &str) -> Result<Snapshot, SnapshotError> {
    let failed = |source| SnapshotError::Storage { uri: uri.into(), source };
    let mut ids: Vec<u64> = storage.list("").await.map_err(failed)?.iter().filter_map(|file| checkpoint_id(&file.path)).collect();
    ids.sort_unstable();
    let folder_of = |id: u64| format!("{folder}/{CHECKPOINT_PREFIX}{id}");
    let mut newest: Option<Snapshot> = None;
    for id in ids.iter().rev().copied() {
        let own = folder_of(id);
        let file = format!("{own}/{METADATA_FILE}");
        let bytes = storage.get(&format!("{CHECKPOINT_PREFIX}{id}/{METADATA_FILE}")).await.map_err(failed)?;
        let metadata = metadata::decode(bytes).map_err(|source| {
            let older = ids.iter().rev().filter(|other| **other != id).map(|id| folder_of(*id)).collect();
            SnapshotError::Metadata { file: file.clone(), source, older }
        })?;
        let order = |metadata: &CheckpointMetadata| (metadata.epoch, metadata.id);
        if newest.as_ref().is_none_or(|newest| order(&newest.metadata) < order(&metadata)) {
            newest = Some(snapshot(metadata, &own, file));
        }
    }
    newest.ok_or_else(|| SnapshotError::NotFound { uri: uri.into() })
}

/// The id in the path `chk-<id>/_metadata`.
fn checkpoint_id(path: &str) -> Option<u64> {
    path.strip_prefix(CHECKPOINT_PREFIX)?.strip_suffix(METADATA_FILE)?.strip_suffix('/')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metadata_in_a_checkpoint_s_folder_counts() {
        assert_eq!(checkpoint_id("chk-17/_metadata"), Some(17));
        for other in ["chk-17/1-1-a", "_metadata", "chk-x/_metadata", "shared/_metadata", "a/chk-1/_metadata", "chk-1_metadata"] {
            assert_eq!(checkpoint_id(other), None, "{other}");
        }
    }
}
