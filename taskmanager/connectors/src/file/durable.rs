//! What must survive a crash of the machine: contents are synced before names, names by syncing their folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::ConnectorError;

/// Creates a folder and what is missing of the path to it.
pub(super) fn create_folder(path: &Path) -> Result<(), ConnectorError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    fs::create_dir_all(path).map_err(|source| failed("create folder", path, source))?;
    for parent in missing.iter().filter_map(|folder| folder.parent()).filter(|parent| !parent.as_os_str().is_empty()) {
        sync_folder(parent)?;
    }
    Ok(())
}

/// Makes a file's contents last.
pub(super) fn sync_file(path: &Path) -> Result<(), ConnectorError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| failed("sync", path, source))
}

/// Makes the names in a folder last.
pub(super) fn sync_folder(path: &Path) -> Result<(), ConnectorError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|source| failed("sync folder", path, source))
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
