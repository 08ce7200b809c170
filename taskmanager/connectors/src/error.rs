//! What can go wrong in a connector, and whose fault it is.
//!
//! Connectors speak of files, addresses and positions; the engine's error only names the node. `at` joins both.

use std::io;
use std::path::PathBuf;

use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;
use levada_common::storage::StorageError;
use levada_engine::error::EngineError;

/// A failure of a source or a sink.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// The operating system refused.
    #[error("cannot {attempt} {}", path.display())]
    Io {
        /// What was attempted: `open`, `write` ...
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file that is still to be read is not there.
    #[error("file {} is missing, and it is still to be read from byte {position}; put it back, or start the job anew without it", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
        /// Where reading would go on.
        position: u64,
    },
    /// A file has less than was listed of it.
    #[error("file {} has {length} bytes, it had at least {expected} when the job started; files must not shrink while they are read", path.display())]
    ShrunkenFile {
        /// The file.
        path: PathBuf,
        /// Bytes that it has.
        length: u64,
        /// Bytes that it must have.
        expected: u64,
    },
    /// A position in a snapshot, or a split, cannot be read.
    #[error("\"{entry}\" is not a position of this source: {reason}")]
    BadEntry {
        /// What was found.
        entry: String,
        /// Why it is none.
        reason: String,
    },
    /// The system could not write all of a finished file to the disk.
    #[error("cannot sync {}: {reason}; rows in it may be lost, so they are written again from the newest checkpoint", path.display())]
    NotSynced {
        /// The finished file's hidden name.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Something that is not ours stands where a finished file belongs.
    #[error("cannot publish {}: {} exists already and is not it", temporary.display(), path.display())]
    NameTaken {
        /// The finished file's hidden name.
        temporary: PathBuf,
        /// The name that it should get.
        path: PathBuf,
    },
    /// A finished file is neither under its hidden nor under its final name.
    #[error(
        "cannot publish {}: it is missing, and {path} does not exist, so its rows may be lost; if a reader has taken that file away, create an empty {path} and start the job again",
        temporary.display(),
        path = path.display()
    )]
    MissingPart {
        /// The finished file's hidden name.
        temporary: PathBuf,
        /// The name that it should get.
        path: PathBuf,
    },
    /// A storage failed.
    #[error(transparent)]
    Storage {
        /// What was attempted, on what, and why it failed.
        source: StorageError,
    },
    /// A finished file is neither staged nor published.
    #[error(
        "cannot publish \"{path}\": it is not stored any more, and does not exist, so its rows may be lost; if a reader has taken it away, create an empty one and start the job again"
    )]
    MissingUpload {
        /// The file.
        path: String,
    },
    /// Rows that a snapshot needs are not stored.
    #[error("rows for \"{folder}\" are not stored yet: {reason}")]
    NotStored {
        /// The folder.
        folder: String,
        /// Why not.
        reason: String,
    },
    /// Options that planning should have refused.
    #[error("option \"{key}\": {message}")]
    Option {
        /// The option.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// A batch does not have the shape of the plan.
    #[error("cannot make a batch of the planned shape")]
    Shape {
        /// Why.
        #[source]
        source: arrow::error::ArrowError,
    },
}

impl ConnectorError {
    /// The same failure, with the node in which it happened.
    pub fn at(&self, uid: &Uid, connector: &str) -> EngineError {
        let failure = self.to_failure();
        EngineError::Connector {
            uid: uid.clone(),
            connector: connector.into(),
            message: failure.message,
            fault: failure.fault,
            retry: failure.retry,
        }
    }
}

impl Faulty for ConnectorError {
    fn fault(&self) -> Fault {
        match self {
            Self::Io { source, .. } if is_lasting(source.kind()) => Fault::User,
            Self::Io { .. } => Fault::External,
            Self::MissingFile { .. } | Self::ShrunkenFile { .. } | Self::NameTaken { .. } => Fault::User,
            Self::BadEntry { .. } | Self::MissingPart { .. } | Self::MissingUpload { .. } => Fault::User,
            Self::Storage { source } => source.fault(),
            Self::NotStored { .. } | Self::NotSynced { .. } => Fault::External,
            Self::Option { .. } | Self::Shape { .. } => Fault::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self.fault() {
            Fault::User => Retry::Never,
            Fault::External | Fault::Internal => Retry::Backoff,
        }
    }
}

/// Whether an error of this kind stays until somebody does something.
fn is_lasting(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as K;
    matches!(
        kind,
        K::NotFound
            | K::AlreadyExists
            | K::PermissionDenied
            | K::NotADirectory
            | K::IsADirectory
            | K::ReadOnlyFilesystem
            | K::InvalidFilename
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_tried_again_and_a_refusal_is_not() {
        let io =
            |code| ConnectorError::Io { attempt: "write", path: "/data/out".into(), source: io::Error::from_raw_os_error(code) };
        let full = io(libc::ENOSPC);
        assert_eq!((full.fault(), full.retry()), (Fault::External, Retry::Backoff));
        let refused = io(libc::EACCES);
        assert_eq!((refused.fault(), refused.retry()), (Fault::User, Retry::Never));
        let text = refused.at(&Uid::new("out"), "file").to_string();
        assert!(text.contains("\"out\"") && text.contains("/data/out") && text.contains("os error 13"), "{text}");
    }
}
