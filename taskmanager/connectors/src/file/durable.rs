//! The file system as a sink uses it: durably, and with errors that say what was attempted on what.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use levada_common::storage::durable::{create_dir_durably, sync_dir};

use crate::error::ConnectorError;

/// Creates a folder and what is missing of the path to it.
pub(super) fn create_folder(path: &Path) -> Result<(), ConnectorError> {
    create_dir_durably(path).map_err(|source| failed("create folder", path, source))
}

/// Makes the names in a folder last.
pub(super) fn sync_folder(path: &Path) -> Result<(), ConnectorError> {
    sync_dir(path).map_err(|source| failed("sync folder", path, source))
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), ConnectorError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, source)),
        _ => Ok(()),
    }
}

/// An error of the operating system, with what was attempted on what.
pub(super) fn failed(attempt: &'static str, path: &Path, source: io::Error) -> ConnectorError {
    ConnectorError::Io { attempt, path: PathBuf::from(path), source }
}
