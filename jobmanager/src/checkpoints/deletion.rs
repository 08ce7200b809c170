//! Deleting what is not wanted any more, a bounded number of files at a time.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use levada_common::checkpoint::{SHARED_FOLDER, shared_path_writer};
use levada_common::ids::{Attempt, Epoch};
use levada_common::savepoint::METADATA_FILE;
use levada_common::storage::{Storage, StorageError, retried};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Files of one job that are deleted at a time.
pub(super) const DELETES_MAX: usize = 16;

/// Deletes the metadata in `folder`: before all else of a checkpoint, since without it no one takes the rest for one.
pub(super) async fn delete_metadata(
    storage: &Storage,
    deletes: &Semaphore,
    folder: &str,
    deadline: Instant,
) -> Result<(), String> {
    let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
    let path = format!("{folder}/{METADATA_FILE}");
    retried(deadline, || storage.delete(&path)).await.map_err(|error| error.to_string())
}

/// Deletes files; with a `folder` all that is in it goes.
pub(super) async fn delete(
    storage: &Storage,
    deletes: &Semaphore,
    folder: Option<&str>,
    files: BTreeSet<String>,
    deadline: Instant,
) -> Result<(), String> {
    let text = |error: StorageError| error.to_string();
    let one = |path: String| async move {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.delete(&path)).await.map_err(text)
    };
    // What is in the folder goes with it.
    let inside = folder.map(|folder| format!("{folder}/"));
    let files = files.into_iter().filter(|path| inside.as_ref().is_none_or(|inside| !path.starts_with(inside.as_str())));
    let results: Vec<Result<(), String>> = stream::iter(files).map(one).buffer_unordered(DELETES_MAX).collect().await;
    if let Some(folder) = folder {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.delete_all(folder)).await.map_err(text)?;
    }
    results.into_iter().collect()
}

/// Deletes what is in the shared folder and was written before `before`, but for `keep`, with what killed writers had begun. Where no one
/// writes there any more and nothing is kept, the folder goes.
pub(super) async fn sweep(
    storage: &Storage,
    deletes: &Semaphore,
    before: Option<(Epoch, Attempt)>,
    keep: &BTreeSet<String>,
    deadline: Instant,
) -> Result<(), String> {
    if before.is_none() && keep.is_empty() {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        return retried(deadline, || storage.delete_all(SHARED_FOLDER)).await.map_err(|error| error.to_string());
    }
    let listed = retried(deadline, || storage.list(SHARED_FOLDER)).await.map_err(|error| error.to_string())?;
    let is_old = |path: &String| shared_path_writer(path).is_some_and(|writer| before.is_none_or(|before| writer < before));
    let files = listed.into_iter().map(|stored| stored.path).filter(|path| is_old(path) && !keep.contains(path)).collect();
    delete(storage, deletes, None, files, deadline).await?;
    let begun = retried(deadline, || storage.leftovers(SHARED_FOLDER)).await.map_err(|error| error.to_string())?;
    for leftover in begun.iter().filter(|leftover| is_old(&leftover.path)) {
        let _permit = deletes.acquire().await.map_err(|error| error.to_string())?;
        retried(deadline, || storage.remove_leftover(leftover)).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}
