//! Where files are: a path of this machine, or the URI of a storage.

use std::path::PathBuf;

use levada_common::storage::{Location, Storage};

use crate::error::ConnectorError;

/// A folder, a file or a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// On this machine.
    Local(PathBuf),
    /// In a storage; its URI.
    Remote(String),
}

impl Place {
    /// A folder: a path, `file:///...`, `s3://bucket/...` or `hdfs://namenode/...`.
    ///
    /// Errors: as `Location::parse`.
    pub fn parse(text: &str) -> Result<Self, ConnectorError> {
        if !text.contains("://") {
            return Ok(Self::Local(text.into()));
        }
        match Location::parse(text).map_err(|source| ConnectorError::Storage { source })? {
            Location::File(path) => Ok(Self::Local(path)),
            Location::S3 { .. } | Location::Hdfs { .. } => Ok(Self::Remote(text.into())),
        }
    }

    /// A file or a glob, which may also lie at the root of a storage.
    ///
    /// Errors: as `Location::parse_file`.
    pub fn parse_file(text: &str) -> Result<Self, ConnectorError> {
        if !text.contains("://") {
            return Ok(Self::Local(text.into()));
        }
        match Location::parse_file(text).map_err(|source| ConnectorError::Storage { source })? {
            (Location::File(root), path) => Ok(Self::Local(root.join(path))),
            (Location::S3 { .. } | Location::Hdfs { .. }, _) => Ok(Self::Remote(text.into())),
        }
    }
}

/// The storage of a file's URI, and the file's path in it.
pub(super) fn open(uri: &str) -> Result<(Storage, String), ConnectorError> {
    Storage::open_file(uri).map_err(|source| ConnectorError::Storage { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_uris_are_told_apart() {
        let local = |path: &str| Place::Local(path.into());
        assert_eq!(Place::parse("/data/out").expect("a path"), local("/data/out"));
        assert_eq!(Place::parse("file:///data/out").expect("a path"), local("/data/out"));
        assert_eq!(Place::parse_file("file:///data/*.txt").expect("a path"), local("/data/*.txt"));
        for uri in ["s3://bucket/out", "hdfs://namenode:8020/out"] {
            assert_eq!(Place::parse(uri).expect("a URI"), Place::Remote(uri.into()));
        }
        assert_eq!(Place::parse_file("s3://bucket/*.txt").expect("a URI"), Place::Remote("s3://bucket/*.txt".into()));
        assert!(Place::parse("s3://bucket/").is_err(), "a sink has a folder of its own");
        let error = Place::parse("ftp://host/out").expect_err("no such scheme").to_string();
        assert!(error.contains("there are: file, s3"), "{error}");
    }
}
