//! What was begun in a storage and not ended: by writers that were lost, or by some that still write.
//!
//! Must never know which of them it is: whoever asks knows by the names. Invariant: what has got its name is never removed here.

use super::objects::{Objects, Store, path_of_temporary};
use super::s3::OpenUpload;
use super::{Backend, Storage, StorageError, check_path};

/// Something begun by somebody, complete or not.
#[derive(Debug, Clone)]
pub struct Leftover {
    /// The path that it would have got.
    pub path: String,
    pub(super) place: Place,
}

/// Where it is.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// An upload to S3.
    Upload(OpenUpload),
    /// A file of another name.
    File(String),
}

impl Storage {
    /// What is being written below the directory `prefix`, or was when its writer was lost, and says what it is to be. Files that are
    /// staged are among them on S3.
    pub async fn leftovers(&self, prefix: &str) -> Result<Vec<Leftover>, StorageError> {
        check_path(prefix)?;
        let of_file = |(path, file)| Leftover { path, place: Place::File(file) };
        match &self.backend {
            Backend::Files(files) => Ok(files.begun(prefix).await?.into_iter().map(of_file).collect()),
            Backend::Objects(objects) => match &*objects.store {
                Store::S3(bucket) => objects.uploads(bucket, &format!("{prefix}/")).await,
                Store::Memory(_) | Store::Hdfs(_) => {
                    let files = objects.list_all(prefix).await?.into_iter();
                    Ok(files.filter_map(|file| Some((path_of_temporary(&file.path)?, file.path))).map(of_file).collect())
                }
            },
        }
    }

    /// Takes something away that was begun; fine where it is gone. Its writer, where there still is one, fails.
    pub async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), StorageError> {
        match (&self.backend, &leftover.place) {
            (Backend::Files(files), Place::File(file)) => files.delete(file).await,
            (Backend::Files(_), Place::Upload(_)) => Ok(()),
            (Backend::Objects(objects), _) => objects.remove_leftover(leftover).await,
        }
    }
}

impl Objects {
    /// The uploads to names that begin with `prefix`, by their paths.
    pub(super) async fn uploads(&self, bucket: &super::s3::Bucket, prefix: &str) -> Result<Vec<Leftover>, StorageError> {
        let uploads = self.open_uploads(bucket, prefix).await?;
        let leftovers = uploads.into_iter().filter_map(|upload| {
            let path = self.relative(&upload.key)?.to_owned();
            Some(Leftover { path, place: Place::Upload(upload) })
        });
        Ok(leftovers.collect())
    }

    /// Takes something away that was begun; fine where it is gone.
    pub(super) async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), StorageError> {
        match (&leftover.place, &*self.store) {
            (Place::Upload(upload), Store::S3(bucket)) => self.within("abort", &leftover.path, None, bucket.abort(upload)).await,
            (Place::File(path), _) => self.delete(path).await,
            (Place::Upload(_), _) => Ok(()),
        }
    }
}
