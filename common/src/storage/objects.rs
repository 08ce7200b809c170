//! A storage on an object store or on HDFS, by object_store's interface; in memory for tests.
//!
//! A request that moves bytes may take as long as they move (S3, see `idle`) or as its size allows. No request is made again here: that is the caller's, by the policy of `retry`.
//! Invariant: what is visible under a name is whole. S3 shows an object when it is complete; on HDFS the client writes a file
//! `.NAME.tmp.N` and renames it.

use std::future::ready;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use hdfs_native_object_store::{HdfsObjectStore, HdfsObjectStoreBuilder};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use super::error::of_object_store;
use super::parts::{PART_BYTES, parts_at_once, parts_of};
use super::s3::{Bucket, OpenUpload};
use super::{LocalFile, StorageError, Stored};

/// Time of a request that moves nothing.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Bytes for which a request to HDFS gets one second more.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// A request that moves no more than this has the time of one that moves nothing.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Objects above this are written to S3 in parts.
const SINGLE_PUT_BYTES_MAX: usize = 64 << 20;

/// Deletions under way at one time.
const DELETES_AT_ONCE: usize = 8;

/// Objects of a store, below a common beginning of their names.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    pub(super) store: Arc<Store>,
    /// What errors show before a path.
    uri: Arc<str>,
    /// What names begin with; without slashes at its ends.
    root: Arc<str>,
}

/// The stores that there are.
#[derive(Debug)]
pub(super) enum Store {
    Memory(InMemory),
    S3(Bucket),
    Hdfs(HdfsObjectStore),
}

impl Store {
    /// An HDFS, by its NameNode or name service. Sends nothing.
    pub fn hdfs(uri: &str, name_node: &str) -> Result<Self, StorageError> {
        let store = HdfsObjectStoreBuilder::new().with_url(format!("hdfs://{name_node}")).build();
        let wrong = |error: object_store::Error| StorageError::Settings { uri: uri.into(), reason: super::error::chain(&error) };
        store.map(Self::Hdfs).map_err(wrong)
    }

    pub(super) fn calls(&self) -> &dyn ObjectStore {
        match self {
            Self::Memory(store) => store,
            Self::S3(bucket) => &bucket.store,
            Self::Hdfs(store) => store,
        }
    }
}

impl Objects {
    pub fn new(store: Store, uri: &str, root: &str) -> Self {
        Self { store: Arc::new(store), uri: uri.trim_end_matches('/').into(), root: root.into() }
    }

    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        match &*self.store {
            Store::S3(bucket) if bytes.len() > SINGLE_PUT_BYTES_MAX => {
                let part = |range: Range<u64>| ready(Ok(bytes.slice(range.start as usize..range.end as usize)));
                self.put_in_parts(bucket, path, bytes.len() as u64, part).await
            }
            _ => self.put_whole(path, bytes, PutMode::Overwrite).await,
        }
    }

    pub async fn put_file(&self, path: &str, file: &LocalFile) -> Result<(), StorageError> {
        let part = |range: Range<u64>| {
            let (file, shown) = (file.clone(), format!("the file to be \"{path}\""));
            async move {
                let read = tokio::task::spawn_blocking(move || file.read(range)).await;
                let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
                read.map_err(|source| StorageError::Io { action: "read", path: shown, source })
            }
        };
        match &*self.store {
            // An upload in parts that is given up has to be aborted, which one request has not.
            Store::S3(_) if file.length() <= SINGLE_PUT_BYTES_MAX as u64 => self.put(path, part(0..file.length()).await?).await,
            _ if file.length() <= PART_BYTES => self.put(path, part(0..file.length()).await?).await,
            Store::S3(bucket) => self.put_in_parts(bucket, path, file.length(), part).await,
            Store::Memory(_) | Store::Hdfs(_) => self.put_one_by_one(path, file.length(), part).await,
        }
    }

    /// Writes an object part by part, where parts have an order.
    async fn put_one_by_one<F>(&self, path: &str, length: u64, part: impl Fn(Range<u64>) -> F) -> Result<(), StorageError>
    where
        F: Future<Output = Result<Bytes, StorageError>>,
    {
        let key = self.key(path)?;
        let mut upload = self.within("write", path, None, self.store.calls().put_multipart(&key)).await?;
        let mut done = Ok(());
        for range in parts_of(length) {
            let written = match part(range.clone()).await {
                Ok(bytes) => self.within("write", path, Some(range.end - range.start), upload.put_part(bytes.into())).await,
                Err(error) => Err(error),
            };
            if written.is_err() {
                done = written;
                break;
            }
        }
        if done.is_ok() {
            done = self.within("write", path, None, upload.complete()).await.map(drop);
        }
        if done.is_err() {
            let _ = self.within("abort", path, None, upload.abort()).await;
            self.remove_leftovers_of(path).await;
        }
        done
    }

    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.put_whole(path, bytes, PutMode::Create).await
    }

    async fn put_whole(&self, path: &str, bytes: Bytes, mode: PutMode) -> Result<(), StorageError> {
        let (key, length) = (self.key(path)?, bytes.len() as u64);
        let put = self.store.calls().put_opts(&key, bytes.into(), PutOptions::from(mode));
        let put = self.within("write", path, Some(length), put).await;
        if put.is_err() && matches!(*self.store, Store::Hdfs(_)) {
            self.remove_leftovers_of(path).await;
        }
        put.map(drop)
    }

    /// Writes an object of `length` bytes to S3, some parts at a time; `part` gives their bytes.
    async fn put_in_parts<F>(
        &self,
        bucket: &Bucket,
        path: &str,
        length: u64,
        part: impl Fn(Range<u64>) -> F,
    ) -> Result<(), StorageError>
    where
        F: Future<Output = Result<Bytes, StorageError>>,
    {
        let (key, store) = (self.key(path)?, &bucket.store);
        let id = self.within("write", path, None, store.create_multipart(&key)).await?;
        let parts = parts_of(length).enumerate().map(|(index, range)| {
            let (key, id, part) = (&key, &id, &part);
            async move {
                let bytes = part(range).await?;
                let length = bytes.len() as u64;
                self.within("write", path, Some(length), store.put_part(key, id, index, bytes.into())).await
            }
        });
        let parts: Result<Vec<_>, _> = futures::stream::iter(parts).buffered(parts_at_once(length)).try_collect().await;
        let done = match parts {
            Ok(parts) => self.within("write", path, None, store.complete_multipart(&key, &id, parts)).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            // What cannot be aborted now is with the folder (`delete_all`); where this future is dropped, by its caller (`remove_begun`).
            let _ = self.within("abort", path, None, store.abort_multipart(&key, &id)).await;
        }
        done.map(drop)
    }

    pub async fn get(&self, path: &str) -> Result<Bytes, StorageError> {
        let key = self.key(path)?;
        // S3 answers with the bytes, of which nothing is known; HDFS gives them afterwards.
        let bytes = matches!(*self.store, Store::S3(_)).then_some(u64::MAX);
        let found = self.within("read", path, bytes, self.store.calls().get(&key)).await?;
        let length = found.meta.size;
        self.within("read", path, Some(length), found.bytes()).await
    }

    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        if range.is_empty() {
            return self.size(path).await.map(|_| Bytes::new());
        }
        let (key, length) = (self.key(path)?, range.end - range.start);
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let read = async { self.store.calls().get_opts(&key, options).await?.bytes().await };
        match self.within("read", path, Some(length), read).await {
            // Stores disagree about ranges that begin at the end or after it.
            Err(StorageError::Object { .. }) if self.size(path).await? <= range.start => Ok(Bytes::new()),
            result => result,
        }
    }

    pub async fn size(&self, path: &str) -> Result<u64, StorageError> {
        let key = self.key(path)?;
        self.within("read", path, None, self.store.calls().head(&key)).await.map(|meta| meta.size)
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<Stored>, StorageError> {
        let mut files = self.list_all(prefix).await?;
        if matches!(*self.store, Store::Hdfs(_)) {
            files.retain(|file| !is_temporary(&file.path));
        }
        Ok(files)
    }

    /// All files, those being written too.
    pub(super) async fn list_all(&self, prefix: &str) -> Result<Vec<Stored>, StorageError> {
        let mut objects = self.store.calls().list(self.below(prefix)?.as_ref());
        let mut files = Vec::new();
        // Each page of a long listing has its own time.
        while let Some(object) = self.within("list", prefix, None, objects.try_next()).await? {
            files.extend(self.stored(object));
        }
        Ok(files)
    }

    pub async fn delete(&self, path: &str) -> Result<(), StorageError> {
        let key = self.key(path)?;
        match self.within("delete", path, None, self.store.calls().delete(&key)).await {
            Err(StorageError::NotFound { .. }) => Ok(()),
            result => result,
        }
    }

    pub async fn delete_all(&self, prefix: &str) -> Result<(), StorageError> {
        let files = self.list_all(prefix).await?;
        if let Store::S3(bucket) = &*self.store {
            let keys: Vec<_> = files.iter().map(|file| self.key(&file.path).map_err(|_| unlisted(&file.path))).collect();
            let deleted = bucket.store.delete_stream(futures::stream::iter(keys).boxed()).try_for_each(|_| async { Ok(()) });
            let thousands = files.len() as u32 / 1_000;
            self.within_time("delete", prefix, REQUEST_TIME * (1 + thousands), deleted).await?;
            for upload in self.open_uploads(bucket, &format!("{prefix}/")).await? {
                self.within("abort", prefix, None, bucket.abort(&upload)).await?;
            }
            return Ok(());
        }
        let deletes = futures::stream::iter(files).map(|stored| async move { self.delete(&stored.path).await });
        deletes.buffer_unordered(DELETES_AT_ONCE).try_collect::<()>().await?;
        if matches!(*self.store, Store::Hdfs(_)) { self.delete_folders(prefix).await } else { Ok(()) }
    }

    /// Removes a directory of HDFS whose files are gone, and those in it, the innermost first.
    async fn delete_folders(&self, prefix: &str) -> Result<(), StorageError> {
        let mut folders = vec![self.key(prefix)?];
        let mut next = 0;
        while next < folders.len() {
            let listed = self.store.calls().list_with_delimiter(Some(&folders[next]));
            folders.extend(self.within("list", prefix, None, listed).await?.common_prefixes);
            next += 1;
        }
        for folder in folders.iter().rev() {
            self.within("delete", prefix, None, self.store.calls().delete(folder)).await?;
        }
        Ok(())
    }

    /// The uploads to names that begin with `prefix`, in whole names of the bucket.
    pub(super) async fn open_uploads(&self, bucket: &Bucket, prefix: &str) -> Result<Vec<OpenUpload>, StorageError> {
        let whole = if self.root.is_empty() { prefix.to_owned() } else { format!("{}/{prefix}", self.root) };
        self.within("list uploads", prefix, None, bucket.open_uploads(&whole)).await
    }

    /// Removes what a failed write of `path` left on HDFS, as far as it can be.
    async fn remove_leftovers_of(&self, path: &str) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Ok(below) = self.below(folder) else { return };
        let listed = self.within("list", path, None, self.store.calls().list_with_delimiter(below.as_ref())).await;
        for object in listed.map(|listed| listed.objects).unwrap_or_default() {
            let found = object.location.filename().and_then(|found| found.strip_prefix('.')?.strip_prefix(name));
            if found.is_some_and(|rest| rest.starts_with(".tmp.")) && is_temporary(object.location.as_ref()) {
                let _ = self.within("delete", path, None, self.store.calls().delete(&object.location)).await;
            }
        }
    }

    /// Runs a request that moves so many bytes, as far as they are known, or none.
    pub(super) async fn within<T>(
        &self,
        action: &'static str,
        path: &str,
        bytes: Option<u64>,
        request: impl Future<Output = Result<T, object_store::Error>>,
    ) -> Result<T, StorageError> {
        let is_large = bytes.is_some_and(|bytes| bytes > SMALL_BYTES_MAX);
        if is_large && matches!(*self.store, Store::S3(_)) {
            return request.await.map_err(|source| of_object_store(action, self.shown(path), source));
        }
        let time = REQUEST_TIME + Duration::from_secs(bytes.unwrap_or(0) / BYTES_PER_SECOND);
        self.within_time(action, path, time, request).await
    }

    async fn within_time<T>(
        &self,
        action: &'static str,
        path: &str,
        after: Duration,
        request: impl Future<Output = Result<T, object_store::Error>>,
    ) -> Result<T, StorageError> {
        match tokio::time::timeout(after, request).await {
            Ok(result) => result.map_err(|source| of_object_store(action, self.shown(path), source)),
            Err(_) => Err(StorageError::TimedOut { action, path: self.shown(path), after }),
        }
    }

    /// A path as errors show it.
    fn shown(&self, path: &str) -> String {
        if path.is_empty() { self.uri.to_string() } else { format!("{}/{path}", self.uri) }
    }

    /// The object's name: the path as it is, where `Path::from` would encode it.
    pub(super) fn key(&self, path: &str) -> Result<Path, StorageError> {
        if matches!(*self.store, Store::Hdfs(_)) && path.contains(':') {
            let reason = "HDFS refuses names with a colon";
            return Err(StorageError::BadName { path: path.into(), storage: "HDFS", reason });
        }
        let whole = if self.root.is_empty() { path.to_owned() } else { format!("{}/{path}", self.root) };
        Path::parse(whole).map_err(|_| StorageError::BadPath { path: path.into() })
    }

    /// What a listing of a directory begins with.
    pub(super) fn below(&self, prefix: &str) -> Result<Option<Path>, StorageError> {
        match (prefix, &*self.root) {
            ("", "") => Ok(None),
            ("", root) => Path::parse(root).map(Some).map_err(|_| StorageError::BadPath { path: root.into() }),
            (prefix, _) => self.key(prefix).map(Some),
        }
    }

    /// An object by its path below the root.
    fn stored(&self, object: ObjectMeta) -> Option<Stored> {
        let path = self.relative(object.location.as_ref())?.to_owned();
        Some(Stored { path, bytes: object.size })
    }

    /// The path below the root of a name in the store.
    pub(super) fn relative<'a>(&self, name: &'a str) -> Option<&'a str> {
        if self.root.is_empty() { Some(name) } else { name.strip_prefix(&*self.root)?.strip_prefix('/') }
    }
}

fn unlisted(path: &str) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: format!("\"{path}\" was listed and is no name").into() }
}

/// Whether a file's name is one that the HDFS client gives while it writes.
fn is_temporary(path: &str) -> bool {
    path_of_temporary(path).is_some()
}

/// The path that a file is to get which the HDFS client still writes, under the name `.NAME.tmp.N`.
pub(super) fn path_of_temporary(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').map_or((None, path), |(folder, name)| (Some(folder), name));
    let (wanted, number) = name.strip_prefix('.')?.rsplit_once(".tmp.")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| folder.map_or_else(|| wanted.to_owned(), |folder| format!("{folder}/{wanted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_known() {
        for name in [".a.tmp.1", "job/chk-1/.a.b.tmp.12", "..part.staged.tmp.3"] {
            assert!(is_temporary(name), "{name}");
        }
        for name in ["a.tmp.1", ".a.tmp.", ".a.tmp.x", ".a", "job/.a.tmp.1/b", ".part.staged"] {
            assert!(!is_temporary(name), "{name}");
        }
        assert_eq!(path_of_temporary("job/chk-1/.a.b.tmp.12").as_deref(), Some("job/chk-1/a.b"));
    }

    #[test]
    fn hdfs_takes_no_colon() {
        let objects = Objects::new(Store::hdfs("hdfs://127.0.0.1:1/a", "127.0.0.1:1").expect("sends nothing"), "hdfs://n/a", "a");
        assert!(matches!(objects.key("x:y"), Err(StorageError::BadName { .. })));
        assert_eq!(objects.key("x/y").expect("a path").as_ref(), "a/x/y");
        assert_eq!(objects.relative("a/x/y"), Some("x/y"));
    }
}
