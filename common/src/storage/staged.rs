//! Files that appear when they are published: written in parts, kept across a failure of whoever wrote them, and shown later
//! by whoever knows them.
//!
//! On S3 a staged file is a multipart upload that was not completed; elsewhere it is a file of another name (`.NAME.staged`).
//! Invariant: what `publish` shows is exactly the parts that were written; publishing again is fine.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, RenameOptions, RenameTargetMode};
use serde::{Deserialize, Serialize};

use super::leftovers::{Leftover, Place};
use super::objects::{Objects, Store, path_of_temporary};
use super::parts::PARTS_MAX;
use super::s3::OpenUpload;
use super::{Storage, StorageError};

/// End of the name of a file that is staged under another name.
const STAGED: &str = ".staged";

/// End of the name of an empty file that says that another was published.
const PUBLISHED: &str = ".published";

/// A storage by whose means files are staged.
#[derive(Debug, Clone)]
pub struct Staging {
    objects: Objects,
}

/// A staged file, complete and not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Staged {
    /// The path that it gets.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The upload on S3; absent where it is a file of another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Upload>,
}

/// A multipart upload to S3 whose parts are all there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    /// Its id.
    pub id: String,
    /// The parts' tags, in order.
    pub parts: Vec<String>,
}

/// A staged file that is being written.
pub struct StagedWriter {
    staging: Staging,
    path: String,
    bytes: u64,
    way: Way,
}

enum Way {
    Upload { key: Path, id: String, parts: Vec<String> },
    File(Box<dyn MultipartUpload>),
}

impl Storage {
    /// How files are staged here; none on the local file system, where a rename is all that is needed.
    pub fn staging(&self) -> Option<Staging> {
        self.objects().cloned().map(|objects| Staging { objects })
    }
}

impl Staging {
    /// Size of the parts that should be written: smaller ones than 5 MiB are refused by S3, but for the last.
    pub const PART_BYTES: usize = 8 << 20;

    /// Begins a file that is to appear at `path`.
    pub async fn begin(&self, path: &str) -> Result<StagedWriter, StorageError> {
        let objects = &self.objects;
        let way = match &*objects.store {
            Store::S3(bucket) => {
                let key = objects.key(path)?;
                let id = objects.within("begin", path, None, bucket.store.create_multipart(&key)).await?;
                Way::Upload { key, id, parts: Vec::new() }
            }
            store => {
                let key = objects.key(&staged_path(path))?;
                Way::File(objects.within("begin", path, None, store.calls().put_multipart(&key)).await?)
            }
        };
        Ok(StagedWriter { staging: self.clone(), path: path.into(), bytes: 0, way })
    }

    /// Shows a staged file; fine where that was done before.
    ///
    /// Errors: `NotFound` where it is neither staged nor shown; `AlreadyExists` where another file has its path.
    pub async fn publish(&self, staged: &Staged) -> Result<(), StorageError> {
        let (objects, path) = (&self.objects, staged.path.as_str());
        let done = match (&*objects.store, &staged.upload) {
            (Store::S3(bucket), Some(Upload { id, parts })) => {
                let parts = parts.iter().map(|tag| PartId { content_id: tag.clone() }).collect();
                let key = objects.key(path)?;
                let complete = bucket.store.complete_multipart(&key, id, parts);
                objects.within("publish", path, None, complete).await.map(drop)
            }
            (store, _) => {
                let (from, to) = (objects.key(&staged_path(path))?, objects.key(path)?);
                let options = RenameOptions::new().with_target_mode(RenameTargetMode::Create);
                objects.within("publish", path, None, store.calls().rename_opts(&from, &to, options)).await
            }
        };
        match done {
            Err(StorageError::NotFound { .. }) if self.has(&staged.path).await? => Ok(()),
            // Servers disagree about what they say of an upload or a file that is gone.
            Err(StorageError::AlreadyExists { path } | StorageError::Object { path, .. }) if !self.is_staged(staged).await? => {
                if self.has(&staged.path).await? {
                    Ok(())
                } else {
                    Err(StorageError::NotFound { path })
                }
            }
            done => done,
        }
    }

    /// Notes beside it that the file of this path was published, for whoever asks when it is gone: an empty file `.NAME.published`.
    pub async fn note(&self, path: &str) -> Result<(), StorageError> {
        self.objects.put(&hidden_path(path, PUBLISHED), Bytes::new()).await
    }

    /// Whether that was noted.
    pub async fn is_noted(&self, path: &str) -> Result<bool, StorageError> {
        self.has(&hidden_path(path, PUBLISHED)).await
    }

    /// The paths in `folder` whose names begin with `name` and of which that was noted.
    pub async fn notes(&self, folder: &str, name: &str) -> Result<Vec<String>, StorageError> {
        let objects = &self.objects;
        let first = hidden_path(&if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }, "");
        let (below, offset) = (objects.below(folder)?, objects.key(&first)?);
        let mut listed = objects.store.calls().list_with_offset(below.as_ref(), &offset);
        let mut notes = Vec::new();
        while let Some(object) = objects.within("list", folder, None, listed.try_next()).await? {
            match objects.relative(object.location.as_ref()).filter(|path| path.starts_with(&first)) {
                Some(path) => notes.extend(path_of_hidden(path, PUBLISHED)),
                // S3 lists by name: no more of them come, where thousands of other files may.
                None if matches!(*objects.store, Store::S3(_)) => break,
                None => {}
            }
        }
        Ok(notes)
    }

    /// Takes the note away; fine where there is none.
    pub async fn forget(&self, path: &str) -> Result<(), StorageError> {
        self.objects.delete(&hidden_path(path, PUBLISHED)).await
    }

    async fn is_staged(&self, staged: &Staged) -> Result<bool, StorageError> {
        if let (Store::S3(bucket), Some(upload)) = (&*self.objects.store, &staged.upload) {
            let uploads = self.objects.open_uploads(bucket, &staged.path).await?;
            return Ok(uploads.iter().any(|open| open.id == upload.id));
        }
        self.has(&staged_path(&staged.path)).await
    }

    async fn has(&self, path: &str) -> Result<bool, StorageError> {
        match self.objects.size(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What is staged for names in `folder` that begin with `name`, by whomever.
    pub async fn leftovers(&self, folder: &str, name: &str) -> Result<Vec<Leftover>, StorageError> {
        if let Store::S3(bucket) = &*self.objects.store {
            let prefix = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            return self.objects.uploads(bucket, &prefix).await;
        }
        let files = self.objects.list_all(folder).await?;
        let leftovers = files.into_iter().filter_map(|file| {
            let path = path_of_staged(&file.path)?;
            let (found_in, found) = path.rsplit_once('/').unwrap_or(("", &path));
            let wanted = found_in == folder && found.starts_with(name);
            wanted.then(|| Leftover { path: path.clone(), place: Place::File(file.path) })
        });
        Ok(leftovers.collect())
    }

    /// Takes something away that was staged; fine where it is gone.
    pub async fn remove(&self, leftover: &Leftover) -> Result<(), StorageError> {
        self.objects.remove_leftover(leftover).await
    }
}

impl StagedWriter {
    /// Adds a part.
    ///
    /// Errors: with `can_retry` nothing was added, and the same part can be written again; without, the file is lost.
    pub async fn write(&mut self, part: Bytes) -> Result<(), StorageError> {
        let (objects, path, length) = (&self.staging.objects, &self.path, part.len() as u64);
        match (&mut self.way, &*objects.store) {
            (Way::Upload { key, id, parts }, Store::S3(bucket)) => {
                let put = bucket.store.put_part(key, id, parts.len(), part.into());
                parts.push(objects.within("write", path, Some(length), put).await?.content_id);
            }
            (Way::File(upload), _) => objects.within("write", path, Some(length), upload.put_part(part.into())).await?,
            (Way::Upload { .. }, _) => unreachable!("uploads are to S3"),
        }
        self.bytes += length;
        Ok(())
    }

    /// Whether a part that could not be written can be written again.
    pub fn can_retry(&self) -> bool {
        matches!(self.way, Way::Upload { .. })
    }

    /// Whether no more parts can be added.
    pub fn is_full(&self) -> bool {
        matches!(&self.way, Way::Upload { parts, .. } if parts.len() as u64 >= PARTS_MAX)
    }

    /// Ends the file; it stays staged, also when this process is lost.
    ///
    /// Errors: as `write`.
    pub async fn finish(&mut self) -> Result<Staged, StorageError> {
        let upload = match &mut self.way {
            Way::Upload { id, parts, .. } => Some(Upload { id: id.clone(), parts: parts.clone() }),
            Way::File(upload) => {
                self.staging.objects.within("finish", &self.path, None, upload.complete()).await?;
                None
            }
        };
        Ok(Staged { path: self.path.clone(), bytes: self.bytes, upload })
    }

    /// Gives the file up.
    pub async fn abort(self) -> Result<(), StorageError> {
        let objects = &self.staging.objects;
        match (self.way, &*objects.store) {
            (Way::Upload { key, id, .. }, Store::S3(bucket)) => {
                let upload = OpenUpload { key: key.to_string(), id };
                objects.within("abort", &self.path, None, bucket.abort(&upload)).await
            }
            (Way::File(mut upload), _) => objects.within("abort", &self.path, None, upload.abort()).await,
            (Way::Upload { .. }, _) => unreachable!("uploads are to S3"),
        }
    }
}

/// Where a file is staged that is to get `path`.
fn staged_path(path: &str) -> String {
    hidden_path(path, STAGED)
}

/// A hidden name beside `path`.
fn hidden_path(path: &str, end: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/.{name}{end}"),
        None => format!(".{path}{end}"),
    }
}

/// The path that a staged file, or one that the HDFS client is still writing, is to get.
fn path_of_staged(path: &str) -> Option<String> {
    let written = path_of_temporary(path);
    path_of_hidden(written.as_deref().unwrap_or(path), STAGED)
}

/// The path beside which this is a hidden name.
fn path_of_hidden(path: &str, end: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').map_or((None, path), |(folder, name)| (Some(folder), name));
    let name = name.strip_prefix('.')?.strip_suffix(end)?;
    Some(folder.map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_names_are_read_back() {
        for path in ["part", "out/part-1.ndjson", "a/b/c"] {
            assert_eq!(path_of_staged(&staged_path(path)).as_deref(), Some(path));
        }
        assert_eq!(path_of_staged("out/..part.staged.tmp.2").as_deref(), Some("out/part"));
        for other in ["out/part", "out/.part", ".part.inprogress", ".a.tmp.1"] {
            assert_eq!(path_of_staged(other), None, "{other}");
        }
    }
}
