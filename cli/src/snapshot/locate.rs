//! Which snapshot a path means.
//!
//! Paths in handles are relative to the job's folder in a checkpoint (`<job>/chk-7/_metadata`), and to the snapshot's own folder in
//! a savepoint: `_metadata` says which it is.

use std::collections::BTreeSet;

use bytes::Bytes;
use levada_common::checkpoint::CheckpointMetadata;
use levada_common::savepoint::{CHECKPOINT_PREFIX, METADATA_FILE};
use levada_common::storage::Storage;
use levada_proto::metadata;

use super::{Snapshot, SnapshotError};

/// Jobs that a message names.
const JOBS_SHOWN: usize = 10;

/// Finds and reads the snapshot.
pub(super) async fn open(text: &str) -> Result<Snapshot, SnapshotError> {
    let uri = to_uri(text);
    let folder = uri.strip_suffix(METADATA_FILE).map_or(uri.as_str(), |folder| folder.trim_end_matches('/'));
    let storage = Storage::open(folder)?;
    match storage.get(METADATA_FILE).await {
        Ok(bytes) => return snapshot(folder, read(folder, bytes)?),
        Err(error) if error.is_not_found() && folder.len() == uri.len() => {}
        Err(error) => return Err(error.into()),
    }
    let paths: Vec<String> = storage.list("").await?.into_iter().map(|stored| stored.path).collect();
    let below = newest_folder(folder, &paths, &storage).await?;
    let bytes = storage.get(&format!("{below}/{METADATA_FILE}")).await?;
    let folder = format!("{folder}/{below}");
    snapshot(&folder, read(&folder, bytes)?)
}

/// A path of this machine becomes a URI; a URI stays.
fn to_uri(text: &str) -> String {
    if text.contains("://") {
        return text.trim_end_matches('/').into();
    }
    let path = std::fs::canonicalize(text).or_else(|_| std::path::absolute(text));
    let path = path.map_or_else(|_| text.into(), |path| path.display().to_string());
    format!("file://{}", path.trim_end_matches('/'))
}

fn read(folder: &str, bytes: Bytes) -> Result<CheckpointMetadata, SnapshotError> {
    metadata::decode(bytes).map_err(|source| SnapshotError::Metadata { path: format!("{folder}/{METADATA_FILE}"), source })
}

fn snapshot(folder: &str, metadata: CheckpointMetadata) -> Result<Snapshot, SnapshotError> {
    let job = || folder.rsplit_once('/').map_or(folder, |(job, _)| job);
    let storage = Storage::open(if metadata.savepoint { folder } else { job() })?;
    Ok(Snapshot::new(format!("{folder}/{METADATA_FILE}"), metadata, storage))
}

/// The folder of the newest checkpoint of the one job below `uri`, among all its files.
///
/// Errors: none; several jobs; the newest is damaged, which is said rather than an older one taken.
async fn newest_folder(uri: &str, paths: &[String], storage: &Storage) -> Result<String, SnapshotError> {
    let mut jobs = BTreeSet::new();
    let mut found = Vec::new();
    for path in paths {
        let Some(folder) = path.strip_suffix(METADATA_FILE).and_then(|folder| folder.strip_suffix('/')) else { continue };
        let (job, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        let Some(id) = name.strip_prefix(CHECKPOINT_PREFIX).and_then(|id| id.parse::<u64>().ok()) else { continue };
        if !job.contains('/') {
            jobs.insert(job.to_owned());
            found.push((id, folder.to_owned()));
        }
    }
    if jobs.len() > 1 {
        let shown: Vec<&str> = jobs.iter().map(String::as_str).take(JOBS_SHOWN).collect();
        let more = if jobs.len() > JOBS_SHOWN { ", ..." } else { "" };
        let jobs_text = format!("{}{more}", shown.join(", "));
        return Err(SnapshotError::SeveralJobs { uri: uri.into(), count: jobs.len(), jobs: jobs_text });
    }
    let mut newest = None;
    let mut damaged: Option<(u64, SnapshotError)> = None;
    for (id, folder) in found {
        let read = match storage.get(&format!("{folder}/{METADATA_FILE}")).await {
            Ok(bytes) => read(&format!("{uri}/{folder}"), bytes),
            // Deleted since the listing.
            Err(error) if error.is_not_found() => continue,
            Err(error) => Err(error.into()),
        };
        match read {
            Ok(metadata) => newest = newest.max(Some((metadata.epoch, metadata.id, folder))),
            Err(error) if damaged.as_ref().is_none_or(|(other, _)| *other < id) => damaged = Some((id, error)),
            Err(_) => {}
        }
    }
    match (newest, damaged) {
        (newest, Some((id, error))) if newest.as_ref().is_none_or(|(_, newest, _)| newest.0 < id) => Err(error),
        (Some((_, _, folder)), _) => Ok(folder),
        (None, _) => Err(SnapshotError::NoSnapshot { uri: uri.into() }),
    }
}

#[cfg(test)]
mod tests {
    use levada_common::ids::{CheckpointId, Epoch, JobId};

    use super::*;

    fn metadata(epoch: u64, id: u64, savepoint: bool) -> CheckpointMetadata {
        CheckpointMetadata {
            job: JobId::from_u128(7),
            epoch: Epoch(epoch),
            id: CheckpointId(id),
            triggered_at_ms: 0,
            max_parallelism: 128,
            savepoint,
            vertices: Vec::new(),
            tasks: Vec::new(),
        }
    }

    fn write(dir: &std::path::Path, folder: &str, epoch: u64, id: u64) {
        std::fs::create_dir_all(dir.join(folder)).expect("a folder");
        std::fs::write(
            dir.join(folder).join(METADATA_FILE),
            metadata::encode(metadata(epoch, id, !folder.contains(CHECKPOINT_PREFIX))),
        )
        .expect("a file");
    }

    fn text(path: &std::path::Path) -> String {
        path.display().to_string()
    }

    #[tokio::test]
    async fn each_way_to_name_a_checkpoint_finds_it_and_its_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = std::fs::canonicalize(dir.path()).expect("it exists");
        for (folder, epoch, id) in [("ck/job/chk-9", 1, 9), ("ck/job/chk-8", 2, 8), ("ck/job/chk-3", 1, 3)] {
            write(&root, folder, epoch, id);
        }
        let job = root.join("ck/job");
        let newest = format!("file://{}/chk-8/_metadata", job.display());
        let named = [text(&job.join("chk-8/_metadata")), text(&job.join("chk-8")), text(&job), text(&root.join("ck"))];
        for name in named.iter().chain([&format!("file://{}/", job.display())]) {
            let snapshot = open(name).await.expect(name);
            assert_eq!(
                (snapshot.uri.as_str(), snapshot.storage.uri()),
                (newest.as_str(), format!("file://{}", job.display()).as_str())
            );
        }
        write(&root, "ck/other/chk-1", 1, 1);
        let error = open(&text(&root.join("ck"))).await.expect_err("two jobs").to_string();
        assert!(error.contains("2 jobs") && error.contains("job, other"), "{error}");
    }

    #[tokio::test]
    async fn a_savepoint_is_its_own_folder_wherever_it_is_moved() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = std::fs::canonicalize(dir.path()).expect("it exists");
        write(&root, "moved", 1, 4);
        let snapshot = open(&text(&root.join("moved"))).await.expect("found");
        assert_eq!(snapshot.storage.uri(), format!("file://{}/moved", root.display()));
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
        assert_eq!(open(&text(&job)).await.expect("3 is whole").metadata.id, CheckpointId(3));
        damage(3);
        let error = open(&text(&job)).await.expect_err("3 is damaged").to_string();
        assert!(error.contains("chk-3/_metadata"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_snapshot_says_what_was_looked_for() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in [dir.path().to_owned(), dir.path().join("nothing")] {
            let error = open(&text(&path)).await.expect_err("nothing there").to_string();
            assert!(error.contains("_metadata") && error.contains("chk-N"), "{error}");
        }
        assert!(open(&text(&dir.path().join("_metadata"))).await.is_err());
    }
}
