//! What can be wrong with a storage.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::fault::{Fault, Faulty, Retry};

/// What was attempted in a storage, on what, and why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A URI without scheme.
    #[error(
        "\"{uri}\": The scheme (hdfs://, file://, etc) is null. Please specify the file system scheme explicitly in the URI, such as file:///var/lib/levada/checkpoints"
    )]
    MissingScheme {
        /// The URI.
        uri: String,
    },
    /// A URI whose scheme no release knows.
    #[error("the scheme \"{scheme}\" of \"{uri}\" is not known; there are: {valid}")]
    UnknownScheme {
        /// The URI.
        uri: String,
        /// Its scheme.
        scheme: String,
        /// Those that there are.
        valid: &'static str,
    },
    /// A URI whose scheme a later release knows.
    #[error("\"{uri}\": {scheme}:// is not in this release; there are: {valid}")]
    SchemeNotInRelease {
        /// The URI.
        uri: String,
        /// Its scheme.
        scheme: String,
        /// Those that there are.
        valid: &'static str,
    },
    /// A file URI that names a host, most likely a slash too few.
    #[error(
        "\"{uri}\" names a host, which a file URI cannot; an absolute path needs three slashes, such as file:///var/lib/levada"
    )]
    Host {
        /// The URI.
        uri: String,
    },
    /// An object store's URI without bucket, or an HDFS URI without NameNode.
    #[error(
        "\"{uri}\" names no {what}; it comes after the two slashes, such as s3://bucket/levada or hdfs://namenode:8020/levada"
    )]
    MissingAuthority {
        /// The URI.
        uri: String,
        /// What is missing.
        what: &'static str,
    },
    /// A URI without path.
    #[error(
        "\"{uri}\": The path to store the checkpoint data in is null. Please specify a directory path for the checkpoint data, such as {uri}/levada/checkpoints"
    )]
    MissingPath {
        /// The URI.
        uri: String,
    },
    /// A URI of the root directory.
    #[error("\"{uri}\": Cannot use the root directory for checkpoints, nor for output. Name a directory below it")]
    RootDirectory {
        /// The URI.
        uri: String,
    },
    /// A setting that does not fit the storage, or one that is missing.
    #[error("\"{uri}\" cannot be opened: {reason}")]
    Settings {
        /// The URI.
        uri: String,
        /// What is wrong, and which setting says it.
        reason: String,
    },
    /// A path that could lead out of the storage.
    #[error("\"{path}\" is not a path in a storage: no part may be empty, `.` or `..`")]
    BadPath {
        /// The path.
        path: String,
    },
    /// A name that the storage cannot have.
    #[error("\"{path}\" is not a name that {storage} can hold: {reason}")]
    BadName {
        /// The path.
        path: String,
        /// Which kind of storage.
        storage: &'static str,
        /// Why not.
        reason: &'static str,
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
    /// The object store or HDFS failed.
    #[error("cannot {action} \"{path}\": {}", chain(source))]
    Object {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        source: Box<object_store::Error>,
    },
    /// There is no such bucket.
    #[error("cannot {action} \"{path}\": the bucket does not exist (NoSuchBucket); create it, or name another one")]
    MissingBucket {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
    },
    /// The storage refused who asks.
    #[error("cannot {action} \"{path}\": access denied: {}", chain(source))]
    Denied {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
        /// What the storage said.
        source: Box<object_store::Error>,
    },
    /// Nothing answers where the storage should be.
    #[error("cannot {action} \"{path}\": the storage cannot be reached: {}", chain(source))]
    Unreachable {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
        /// Why.
        source: Box<object_store::Error>,
    },
    /// A request had no answer within the time that its size allows.
    #[error("cannot {action} \"{path}\": no answer within {} s", after.as_secs())]
    TimedOut {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: String,
        /// The time that it had.
        after: Duration,
    },
    /// The caller's deadline came before a try worked.
    #[error("{}; gave up at the deadline, after {tries} {}", last_text(last.as_deref()), if *tries == 1 { "try" } else { "tries" })]
    OutOfTime {
        /// Tries that were made.
        tries: u32,
        /// The last failure; none where the first try did not end.
        last: Option<Box<StorageError>>,
    },
    /// A storage that does not do what it says that it did.
    #[error("\"{uri}\" cannot hold checkpoints: {what}")]
    Unreliable {
        /// The storage.
        uri: String,
        /// What was found.
        what: &'static str,
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
            | Self::MissingAuthority { .. }
            | Self::MissingPath { .. }
            | Self::RootDirectory { .. }
            | Self::Settings { .. }
            | Self::BadName { .. } => Fault::User,
            Self::BadPath { .. } => Fault::Internal,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Truncated { .. }
            | Self::Io { .. }
            | Self::Object { .. }
            | Self::MissingBucket { .. }
            | Self::Denied { .. }
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::OutOfTime { .. }
            | Self::Unreliable { .. } => Fault::External,
        }
    }

    /// Whether the next try may work without anybody doing something.
    fn retry(&self) -> Retry {
        let passes = match self {
            Self::Io { source, .. } => !is_lasting(source.kind()),
            Self::Object { source, .. } => !is_lasting_status(status(source)) && !is_lasting_object(source),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::OutOfTime { .. } => true,
            _ => false,
        };
        if passes { Retry::Backoff } else { Retry::Never }
    }
}

/// What the operating system will say again, until somebody does something: makes room on a disk, too.
fn is_lasting(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as K;
    matches!(
        kind,
        K::PermissionDenied
            | K::NotADirectory
            | K::IsADirectory
            | K::ReadOnlyFilesystem
            | K::InvalidFilename
            | K::StorageFull
            | K::QuotaExceeded
            | K::FileTooLarge
    )
}

fn is_lasting_object(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } | E::UnknownConfigurationKey { .. })
}

/// Client errors stay what they are; but for a request that took too long, a conflict, and too many requests.
fn is_lasting_status(status: Option<u16>) -> bool {
    status.is_some_and(|status| (400..500).contains(&status) && !matches!(status, 408 | 409 | 429))
}

/// The HTTP status in an error's text: object_store gives it in no other way.
fn status(error: &object_store::Error) -> Option<u16> {
    let text = chain(error);
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

/// An error with its causes, each said once, and without the stacks of a NameNode.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let plain = |error: &(dyn Error + 'static)| {
        let text = error.to_string();
        text.split_once("\n\tat ").map_or_else(|| text.clone(), |(text, _)| text.to_owned())
    };
    let mut text = plain(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = plain(error);
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

fn last_text(last: Option<&StorageError>) -> String {
    last.map_or_else(|| "no answer".into(), ToString::to_string)
}

/// The error of an object store, as what it is to us.
pub(super) fn of_object_store(action: &'static str, path: String, source: object_store::Error) -> StorageError {
    use object_store::Error as E;
    let text = chain(&source);
    let source = Box::new(source);
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match *source {
        E::NotFound { .. } if says(&["NoSuchBucket"]) => StorageError::MissingBucket { action, path },
        E::NotFound { .. } => StorageError::NotFound { path },
        // HDFS's client knows these for some calls only.
        _ if says(&["java.io.FileNotFoundException"]) => StorageError::NotFound { path },
        _ if says(&["org.apache.hadoop.fs.FileAlreadyExistsException"]) => StorageError::AlreadyExists { path },
        E::AlreadyExists { .. } => StorageError::AlreadyExists { path },
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => StorageError::Denied { action, path, source },
        _ if says(&["AccessControlException"]) => StorageError::Denied { action, path, source },
        _ if status(&source).is_none() && says(&UNREACHABLE) => StorageError::Unreachable { action, path, source },
        _ => StorageError::Object { action, path, source },
    }
}

/// Words of a failure to connect: of the HTTP client, of the operating system, of the HDFS client.
const UNREACHABLE: [&str; 7] = [
    "Connect",
    "connect error",
    "Connection refused",
    "onnection reset",
    "No route to host",
    "failed to lookup address",
    "IO error occurred while communicating with HDFS",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn what_passes_is_tried_again_and_what_stays_is_not() {
        let of = |text: &str| of_object_store("write", "s3://b/a".into(), generic(text));
        for passing in
            ["Server returned non-2xx status code: 503 Slow Down", "status code: 429 x", "Connection refused (os error 111)"]
        {
            assert_eq!(of(passing).retry(), Retry::Backoff, "{passing}");
        }
        for lasting in
            ["Server returned non-2xx status code: 400 Bad Request", "org.apache.hadoop.security.AccessControlException: no"]
        {
            assert_eq!(of(lasting).retry(), Retry::Never, "{lasting}");
        }
        assert!(matches!(of("IO error occurred while communicating with HDFS: x"), StorageError::Unreachable { .. }));
        let stack = "RPC error: java.io.FileNotFoundException rename source /a is not found.\n\tat org.apache.Rename(R.java:1)\n";
        assert!(of(stack).is_not_found());
        assert_eq!(
            chain(&generic(stack)),
            "Generic S3 error: RPC error: java.io.FileNotFoundException rename source /a is not found."
        );
        let missing = object_store::Error::NotFound { path: "a".into(), source: "<Code>NoSuchBucket</Code>".into() };
        let missing = of_object_store("write", "s3://b/a".into(), missing);
        assert!(missing.to_string().contains("NoSuchBucket") && !missing.is_not_found(), "{missing}");
        let io = |code| StorageError::Io { action: "write", path: "/a".into(), source: io::Error::from_raw_os_error(code) };
        // EACCES, EFBIG, ENOSPC, EDQUOT: to be said now, and not when time has run out.
        assert!([13, 27, 28, 122].iter().all(|code| io(*code).retry() == Retry::Never));
        assert_eq!(io(5).retry(), Retry::Backoff, "EIO");
    }
}
