//! What can be wrong with a storage.

use std::io;

use crate::fault::{Fault, Faulty, Retry};

/// What was attempted in a storage, on what, and why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A URI without scheme.
    #[error("\"{uri}\" has no scheme (file://, ...); write it out, such as file:///var/lib/levada/checkpoints")]
    MissingScheme {
        /// The URI.
        uri: String,
    },
    /// A URI whose scheme no release knows.
    #[error("the scheme \"{scheme}\" of \"{uri}\" is not known; there is: file")]
    UnknownScheme {
        /// The URI.
        uri: String,
        /// Its scheme.
        scheme: String,
    },
    /// A URI whose scheme a later release knows.
    #[error("\"{uri}\": {scheme}:// is not in this release; there is: file")]
    SchemeNotInRelease {
        /// The URI.
        uri: String,
        /// Its scheme.
        scheme: String,
    },
    /// A file URI that names a host, most likely a slash too few.
    #[error(
        "\"{uri}\" names a host, which a file URI cannot; an absolute path needs three slashes, such as file:///var/lib/levada"
    )]
    Host {
        /// The URI.
        uri: String,
    },
    /// A URI without path.
    #[error("\"{uri}\" has no path to store data in; name a directory, such as file:///var/lib/levada/checkpoints")]
    MissingPath {
        /// The URI.
        uri: String,
    },
    /// A URI of the root directory.
    #[error("\"{uri}\" is the root directory, which cannot be used for checkpoints; name a directory below it")]
    RootDirectory {
        /// The URI.
        uri: String,
    },
    /// A path that could lead out of the storage.
    #[error("\"{path}\" is not a path in a storage: no part may be empty, `.` or `..`")]
    BadPath {
        /// The path.
        path: String,
    },
    /// There is no such file.
    #[error("\"{path}\" does not exist")]
    NotFound {
        /// The file.
        path: String,
    },
    /// There is such a file already.
    #[error("\"{path}\" exists already")]
    AlreadyExists {
        /// The file.
        path: String,
    },
    /// A file is shorter than what should be read of it.
    #[error("\"{path}\" is too short: {wanted} bytes were to be read, {found} are there")]
    Truncated {
        /// The file.
        path: String,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes found.
        found: u64,
    },
    /// The file system failed.
    #[error("cannot {action} \"{path}\": {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The object store failed.
    #[error("cannot {action} \"{path}\": {source}")]
    Object {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        source: object_store::Error,
    },
    /// A file that was just written is not listed, or reads otherwise.
    #[error("\"{uri}\" cannot hold checkpoints: a file just written is not found again as it was")]
    Unreliable {
        /// The storage.
        uri: String,
    },
}

impl StorageError {
    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl Faulty for StorageError {
    fn fault(&self) -> Fault {
        match self {
            Self::MissingScheme { .. }
            | Self::UnknownScheme { .. }
            | Self::SchemeNotInRelease { .. }
            | Self::Host { .. }
            | Self::MissingPath { .. }
            | Self::RootDirectory { .. } => Fault::User,
            Self::BadPath { .. } => Fault::Internal,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Truncated { .. }
            | Self::Io { .. }
            | Self::Object { .. }
            | Self::Unreliable { .. } => Fault::External,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Io { .. } | Self::Object { .. } => Retry::Backoff,
            _ => Retry::Never,
        }
    }
}
