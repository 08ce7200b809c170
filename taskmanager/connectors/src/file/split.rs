//! What is read: parts of files, listed once, and how far each is read.
//!
//! A record belongs to the split in which its first byte lies, so each is read once wherever files are cut.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levada_common::storage::retried;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::declaration::{FileSourceOptions, SPLIT_BYTES};
use super::place::{self, Place};
use crate::error::ConnectorError;

/// Most splits of a source: they travel with every deployment and snapshot.
const SPLITS_MAX: u64 = 100_000;

/// Smallest split that is made to give every subtask one.
const SPLIT_BYTES_MIN: u64 = 1 << 20;

/// What makes a glob of a path.
const WILD: [char; 3] = ['*', '?', '['];

/// Files whose name begins with a dot are hidden, or not finished.
const HIDDEN_LEFT_OUT: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// How long a storage may take to list files.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// A part of a file: a split, and an entry of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSplit {
    /// The file: a path, or the URI of one in a storage.
    pub path: PathBuf,
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// The first record that is not read; absent before anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

impl FileSplit {
    /// Reads a split or an entry of a snapshot.
    pub fn parse(text: &str) -> Result<Self, ConnectorError> {
        serde_json::from_str(text).map_err(|error| ConnectorError::BadEntry { entry: text.to_owned(), reason: error.to_string() })
    }

    /// The entry of a snapshot.
    pub fn entry(&self) -> String {
        serde_json::to_string(self).expect("paths of splits are UTF-8")
    }

    /// Whether no record of it is left: then its file is not needed.
    pub fn is_finished(&self) -> bool {
        self.position.unwrap_or(self.start) >= self.end
    }
}

/// Lists the splits: files in the order of the options, those of a glob by name, each file once.
///
/// Errors: a text that names the path.
pub(super) fn list(options: &FileSourceOptions, parallelism: u32) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    for pattern in &options.paths {
        let found = match Place::parse_file(pattern).map_err(|error| error.to_string())? {
            Place::Local(path) => local(&path.to_string_lossy())?,
            Place::Remote(uri) => remote(&uri)?,
        };
        files.extend(found.into_iter().filter(|(path, _)| seen.insert(path.clone())));
    }
    let total: u64 = files.iter().map(|(_, length)| length).sum();
    let fair = total.div_ceil(u64::from(parallelism.max(1))).clamp(SPLIT_BYTES_MIN, SPLIT_BYTES);
    let split_bytes = options.split_bytes.unwrap_or(fair);
    let count: u64 = files.iter().map(|(_, length)| length.div_ceil(split_bytes).max(1)).sum();
    if count > SPLITS_MAX {
        return Err(format!(
            "{total} bytes in {} files make {count} splits of {split_bytes} bytes, the limit is {SPLITS_MAX}; raise split_size",
            files.len()
        ));
    }
    let splits = files.iter().flat_map(|(path, length)| {
        let starts = (0..length.div_ceil(split_bytes).max(1)).map(move |index| index * split_bytes);
        starts.map(move |start| FileSplit {
            path: path.clone(),
            start,
            end: length.saturating_sub(start).min(split_bytes) + start,
            position: None,
        })
    });
    Ok(splits.map(|split| split.entry()).collect())
}

/// The files of this machine that a path or glob names, with their sizes.
fn local(pattern: &str) -> Result<Vec<(PathBuf, u64)>, String> {
    let sized = |path: PathBuf| {
        let metadata = std::fs::metadata(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if path.to_str().is_none() {
            return Err(format!("cannot read {}: its name is not UTF-8", path.display()));
        }
        Ok((path, metadata.len()))
    };
    expand(pattern)?.into_iter().map(sized).collect()
}

/// The files of this machine that a path or glob names.
fn expand(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let path = Path::new(pattern);
    if path.is_dir() {
        return Err(folder(pattern));
    }
    // A file whose name has brackets is not a glob.
    if path.exists() || !pattern.contains(WILD) {
        return Ok(vec![path.to_path_buf()]);
    }
    let found = glob::glob_with(pattern, HIDDEN_LEFT_OUT).map_err(|error| format!("\"{pattern}\" is not a glob: {error}"))?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|error| format!("cannot list \"{pattern}\": {error}"))?;
        if path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(format!("no file matches \"{pattern}\""));
    }
    files.sort();
    Ok(files)
}

/// The files of a storage that a URI names, whose path may be a glob, with their sizes.
fn remote(uri: &str) -> Result<Vec<(PathBuf, u64)>, String> {
    let runtime = Handle::try_current().map_err(|error| format!("cannot read {uri}: {error}"))?;
    let (storage, path) = place::open(uri).map_err(|error| error.to_string())?;
    if path.ends_with('/') {
        return Err(folder(uri));
    }
    let deadline = Instant::now() + LIST_TIMEOUT;
    // A file whose name has brackets is not a glob.
    match runtime.block_on(retried(deadline, || storage.size(&path))) {
        Ok(bytes) => return Ok(vec![(uri.into(), bytes)]),
        Err(error) if error.is_not_found() && path.contains(WILD) => {}
        Err(error) => return Err(error.to_string()),
    }
    let pattern = glob::Pattern::new(&path).map_err(|error| format!("\"{uri}\" is not a glob: {error}"))?;
    let fixed = &path[..path.find(WILD).unwrap_or(path.len())];
    let below = fixed.rsplit_once('/').map_or("", |(folder, _)| folder);
    let listed = runtime.block_on(retried(deadline, || storage.list(below))).map_err(|error| error.to_string())?;
    let found = listed.into_iter().filter(|file| pattern.matches_with(&file.path, HIDDEN_LEFT_OUT));
    let files: Vec<_> = found.map(|file| (format!("{}{}", storage.uri(), file.path).into(), file.bytes)).collect();
    if files.is_empty() { Err(format!("no file matches \"{uri}\"")) } else { Ok(files) }
}

fn folder(pattern: &str) -> String {
    format!("{pattern} is a folder; name files in it, such as {}/*", pattern.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Format;

    fn listed(paths: &[String], split_bytes: Option<u64>, parallelism: u32) -> Result<Vec<(String, u64, u64)>, String> {
        let options = FileSourceOptions { paths: paths.to_vec(), format: Format::Text, split_bytes, side_by_side: 1 };
        let splits = list(&options, parallelism)?;
        let splits = splits.iter().map(|text| FileSplit::parse(text).expect("own entry"));
        Ok(splits
            .map(|split| (split.path.file_name().expect("named").to_string_lossy().into(), split.start, split.end))
            .collect())
    }

    #[test]
    fn files_are_listed_in_order_once_and_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, bytes) in [("b.txt", 5), ("a.txt", 10), (".hidden.txt", 3), ("empty.txt", 0), ("[x].log", 1)] {
            std::fs::write(dir.path().join(name), vec![b'x'; bytes]).expect("written");
        }
        std::fs::create_dir(dir.path().join("folder.txt")).expect("made");
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        let splits = listed(&[path("b.txt"), path("*.txt")], Some(4), 1).expect("listed");
        let expected =
            [("b.txt", 0, 4), ("b.txt", 4, 5), ("a.txt", 0, 4), ("a.txt", 4, 8), ("a.txt", 8, 10), ("empty.txt", 0, 0)];
        assert_eq!(splits, expected.map(|(name, start, end)| (name.to_owned(), start, end)));
        assert_eq!(listed(&[path("[x].log")], None, 4).expect("listed").len(), 1);
        for (name, message) in
            [("none*.txt", "no file matches"), ("missing.txt", "missing.txt"), ("folder.txt", "is a folder"), ("[", "not a glob")]
        {
            let error = listed(&[path(name)], None, 1).expect_err(name);
            // A single bracket is a path as well.
            assert!(error.contains(message) || error.contains("cannot read"), "{error}");
        }
        let error =
            list(&FileSourceOptions { paths: vec![path("big")], format: Format::Text, split_bytes: Some(1), side_by_side: 1 }, 1);
        assert!(error.is_err());
    }

    #[test]
    fn splits_are_small_enough_for_all_subtasks() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("big.txt").display().to_string();
        std::fs::File::create(&path).and_then(|file| file.set_len(10 << 20)).expect("written");
        assert_eq!(listed(std::slice::from_ref(&path), None, 1).expect("listed").len(), 1);
        assert_eq!(listed(std::slice::from_ref(&path), None, 4).expect("listed").len(), 4);
        assert!(listed(&[path], Some(100), 4).expect_err("too many").contains("split_size"));
    }
}
