//! A storage on an object store: in memory now, for tests.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use super::{StorageError, Stored};

/// Deletions under way at one time.
const DELETES_AT_ONCE: usize = 8;

/// Objects of a store.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
}

impl Objects {
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store }
    }

    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.store.put(&key(path)?, bytes.into()).await.map_err(failed("write", path))?;
        Ok(())
    }

    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<(), StorageError> {
        let options = PutOptions::from(PutMode::Create);
        self.store.put_opts(&key(path)?, bytes.into(), options).await.map_err(failed("write", path))?;
        Ok(())
    }

    pub async fn get(&self, path: &str) -> Result<Bytes, StorageError> {
        let found = self.store.get(&key(path)?).await.map_err(failed("read", path))?;
        found.bytes().await.map_err(failed("read", path))
    }

    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        // Stores disagree about ranges that reach past the end.
        let bytes = self.get(path).await?;
        let end = range.end.min(bytes.len() as u64);
        let start = range.start.min(end);
        Ok(bytes.slice(start as usize..end as usize))
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<Stored>, StorageError> {
        let below = if prefix.is_empty() { None } else { Some(key(prefix)?) };
        let objects = self.store.list(below.as_ref());
        let stored = objects.map_ok(|object| Stored { path: object.location.to_string(), bytes: object.size });
        stored.try_collect().await.map_err(failed("list", prefix))
    }

    pub async fn delete(&self, path: &str) -> Result<(), StorageError> {
        match self.store.delete(&key(path)?).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            result => result.map_err(failed("delete", path)),
        }
    }

    pub async fn delete_all(&self, prefix: &str) -> Result<(), StorageError> {
        let files = self.list(prefix).await?;
        let deletes = futures::stream::iter(files).map(|stored| async move { self.delete(&stored.path).await });
        deletes.buffer_unordered(DELETES_AT_ONCE).try_collect().await
    }
}

/// The object's name: the path as it is, where `Path::from` would encode it.
fn key(path: &str) -> Result<Path, StorageError> {
    Path::parse(path).map_err(|_| StorageError::BadPath { path: path.into() })
}

fn failed(action: &'static str, path: &str) -> impl FnOnce(object_store::Error) -> StorageError {
    let path = path.to_owned();
    move |source| match source {
        object_store::Error::NotFound { .. } => StorageError::NotFound { path },
        object_store::Error::AlreadyExists { .. } => StorageError::AlreadyExists { path },
        source => StorageError::Object { action, path, source },
    }
}
