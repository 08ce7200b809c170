//! What a storage URI means.

use std::path::{Component, PathBuf};

use super::StorageError;

/// Where a storage URI points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `file://`: an absolute directory, its name as written.
    File(PathBuf),
}

/// Schemes that people know and a later release reads.
const LATER: [&str; 9] = ["s3", "s3a", "s3n", "hdfs", "viewfs", "gs", "az", "abfs", "abfss"];

impl Location {
    /// Reads a URI such as `file:///var/lib/levada`.
    ///
    /// Errors: `MissingScheme`, `UnknownScheme`, `SchemeNotInRelease`, `Host`, `MissingPath`, `RootDirectory`, `BadPath`.
    pub fn parse(uri: &str) -> Result<Self, StorageError> {
        let Some((scheme, rest)) = uri.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err(StorageError::MissingScheme { uri: uri.into() });
        };
        if LATER.contains(&scheme) {
            return Err(StorageError::SchemeNotInRelease { uri: uri.into(), scheme: scheme.into() });
        }
        if scheme != "file" {
            return Err(StorageError::UnknownScheme { uri: uri.into(), scheme: scheme.into() });
        }
        if rest.is_empty() {
            return Err(StorageError::MissingPath { uri: uri.into() });
        }
        if !rest.starts_with('/') {
            return Err(StorageError::Host { uri: uri.into() });
        }
        let path = PathBuf::from(rest);
        if rest.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
            return Err(StorageError::BadPath { path: rest.into() });
        }
        if !path.components().any(|part| matches!(part, Component::Normal(_))) {
            return Err(StorageError::RootDirectory { uri: uri.into() });
        }
        Ok(Self::File(path))
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_defect_of_a_uri_has_its_own_error() {
        let error = |uri| Location::parse(uri).expect_err(uri);
        for uri in ["", "/var/ck", "checkpoints", "://x", "file:/var/ck"] {
            assert!(matches!(error(uri), StorageError::MissingScheme { .. }), "{uri}");
        }
        assert!(matches!(error("file://"), StorageError::MissingPath { .. }));
        for uri in ["file:///", "file:////", "file:///./"] {
            assert!(matches!(error(uri), StorageError::RootDirectory { .. }), "{uri}");
        }
        assert!(matches!(error("file://var/ck"), StorageError::Host { .. }));
        assert!(matches!(error("file:///var/../etc"), StorageError::BadPath { .. }));
        for uri in ["s3://bucket/ck", "hdfs://namenode:40010/flink/checkpoints"] {
            assert!(matches!(error(uri), StorageError::SchemeNotInRelease { .. }), "{uri}");
        }
        assert!(matches!(error("ftp://x/y"), StorageError::UnknownScheme { .. }));
    }

    #[test]
    fn names_are_taken_as_written() {
        for name in ["mäggi", "a b", "L%3ABC", "100%", "x+y", "q?z", "#1", "日本", "~t"] {
            let uri = format!("file:///data/{name}/ck");
            assert_eq!(Location::parse(&uri).ok(), Some(Location::File(format!("/data/{name}/ck").into())));
        }
    }
}
