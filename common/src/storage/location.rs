//! What a storage URI means.

use std::path::{Component, PathBuf};

use super::StorageError;

/// Where a storage URI points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `file://`: an absolute directory, its name as written.
    File(PathBuf),
    /// `s3://` (`s3a://` and `s3n://` mean the same): the names in a bucket that begin with `path/`.
    S3 {
        /// The bucket.
        bucket: String,
        /// The common beginning, without slashes at its ends.
        path: String,
    },
    /// `hdfs://`: a directory.
    Hdfs {
        /// The NameNode's address, or the name of a name service.
        name_node: String,
        /// The directory, without slashes at its ends.
        path: String,
    },
}

/// The schemes that there are.
pub(super) const SCHEMES: &str = "file, s3 (s3a, s3n), hdfs";

/// Schemes that people know and a later release reads.
const LATER: [&str; 6] = ["viewfs", "gs", "az", "abfs", "abfss", "wasb"];

/// What a URI is taken apart into.
struct Parts<'a> {
    scheme: &'a str,
    /// Bucket or NameNode; empty for files.
    authority: &'a str,
    /// What follows, with its slash.
    path: &'a str,
}

impl Location {
    /// Reads the URI of a directory, such as `file:///var/lib/levada` or `s3://bucket/levada`.
    ///
    /// Errors: `MissingScheme`, `UnknownScheme`, `SchemeNotInRelease`, `Host`, `MissingAuthority`, `MissingPath`,
    /// `RootDirectory`, `BadPath`.
    pub fn parse(uri: &str) -> Result<Self, StorageError> {
        let parts = Parts::of(uri)?;
        if parts.path.is_empty() {
            return Err(StorageError::MissingPath { uri: uri.into() });
        }
        let is_root = match parts.scheme {
            "file" => !PathBuf::from(parts.path).components().any(|part| matches!(part, Component::Normal(_))),
            _ => parts.path.trim_matches('/').is_empty(),
        };
        if is_root {
            return Err(StorageError::RootDirectory { uri: uri.into() });
        }
        parts.location(parts.path)
    }

    /// Reads the URI of a file or glob: the storage that holds it, at its root, and its path there.
    ///
    /// Errors: as `parse`.
    pub fn parse_file(uri: &str) -> Result<(Self, String), StorageError> {
        let parts = Parts::of(uri)?;
        let path = parts.path.trim_start_matches('/');
        if path.is_empty() {
            return Err(StorageError::MissingPath { uri: uri.into() });
        }
        parts.location(parts.path)?;
        Ok((parts.location("/")?, path.into()))
    }
}

impl<'a> Parts<'a> {
    fn of(uri: &'a str) -> Result<Self, StorageError> {
        let Some((scheme, rest)) = uri.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err(StorageError::MissingScheme { uri: uri.into() });
        };
        let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
        let parts = Self { scheme, authority, path: &rest[authority.len()..] };
        match scheme {
            "file" if !authority.is_empty() => Err(StorageError::Host { uri: uri.into() }),
            "s3" | "s3a" | "s3n" if authority.is_empty() => {
                Err(StorageError::MissingAuthority { uri: uri.into(), what: "bucket" })
            }
            "hdfs" if authority.is_empty() => Err(StorageError::MissingAuthority { uri: uri.into(), what: "NameNode" }),
            "file" | "s3" | "s3a" | "s3n" | "hdfs" => Ok(parts),
            later if LATER.contains(&later) => {
                Err(StorageError::SchemeNotInRelease { uri: uri.into(), scheme: scheme.into(), valid: SCHEMES })
            }
            _ => Err(StorageError::UnknownScheme { uri: uri.into(), scheme: scheme.into(), valid: SCHEMES }),
        }
    }

    fn location(&self, path: &str) -> Result<Location, StorageError> {
        let bad = || StorageError::BadPath { path: path.into() };
        if self.scheme == "file" {
            let path = PathBuf::from(path);
            let leads_up = path.components().any(|part| part == Component::ParentDir);
            return if leads_up || self.path.contains('\0') { Err(bad()) } else { Ok(Location::File(path)) };
        }
        let path = path.trim_matches('/');
        if !path.is_empty() && path.split('/').any(|part| matches!(part, "" | "." | "..") || part.contains('\0')) {
            return Err(bad());
        }
        let (authority, path) = (self.authority.to_owned(), path.to_owned());
        Ok(match self.scheme {
            "hdfs" => Location::Hdfs { name_node: authority, path },
            _ => Location::S3 { bucket: authority, path },
        })
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
        for uri in ["file://", "s3://bucket", "hdfs://namenode:9000"] {
            assert!(matches!(error(uri), StorageError::MissingPath { .. }), "{uri}");
        }
        for uri in ["file:///", "file:////", "file:///./", "s3://bucket/", "s3a://bucket//", "hdfs://namenode:9000/"] {
            assert!(matches!(error(uri), StorageError::RootDirectory { .. }), "{uri}");
        }
        assert!(matches!(error("file://var/ck"), StorageError::Host { .. }));
        for uri in ["file:///var/../etc", "s3://bucket/a/../b", "s3://bucket/a//b", "hdfs://n/./a"] {
            assert!(matches!(error(uri), StorageError::BadPath { .. }), "{uri}");
        }
        for uri in ["s3:///ck", "hdfs:///ck", "s3://", "hdfs://"] {
            assert!(matches!(error(uri), StorageError::MissingAuthority { .. }), "{uri}");
        }
        assert!(matches!(error("gs://bucket/ck"), StorageError::SchemeNotInRelease { .. }));
        let unknown = error("ftp://x/y");
        assert!(matches!(unknown, StorageError::UnknownScheme { .. }) && unknown.to_string().contains(SCHEMES), "{unknown}");
    }

    #[test]
    fn buckets_and_name_nodes_are_taken_apart() {
        let s3 = |path: &str| Location::S3 { bucket: "b".into(), path: path.into() };
        for uri in ["s3://b/levada/ck", "s3a://b/levada/ck/", "s3n://b//levada/ck"] {
            assert_eq!(Location::parse(uri).ok(), Some(s3("levada/ck")), "{uri}");
        }
        let hdfs = Location::Hdfs { name_node: "namenode:40010".into(), path: "flink/checkpoints".into() };
        assert_eq!(Location::parse("hdfs://namenode:40010/flink/checkpoints").ok(), Some(hdfs));
        assert_eq!(Location::parse_file("s3://b/in/*.txt").ok(), Some((s3(""), "in/*.txt".into())));
        assert_eq!(Location::parse_file("file:///a/b").ok(), Some((Location::File("/".into()), "a/b".into())));
        assert!(matches!(Location::parse_file("s3://b/"), Err(StorageError::MissingPath { .. })));
    }

    #[test]
    fn names_are_taken_as_written() {
        for name in ["mäggi", "a b", "L%3ABC", "100%", "x+y", "q?z", "#1", "日本", "~t"] {
            let uri = format!("file:///data/{name}/ck");
            assert_eq!(Location::parse(&uri).ok(), Some(Location::File(format!("/data/{name}/ck").into())));
            let path = format!("data/{name}/ck");
            let s3 = Location::S3 { bucket: "b".into(), path: path.clone() };
            assert_eq!(Location::parse(&format!("s3://b/{path}")).ok(), Some(s3));
        }
    }
}
