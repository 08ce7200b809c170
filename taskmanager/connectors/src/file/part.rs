//! Output files: their names through life, and how one is published.
//!
//! | name | what it is |
//! |---|---|
//! | `.part-<job>-<node>-<epoch>-<attempt>-<subtask>.inprogress` | being written |
//! | `.part-<job>-<node>-<epoch>-<attempt>-<subtask>-<checkpoint>.prepared` | closed by a checkpoint that may not be complete |
//! | `part-<job>-<node>-<checkpoint>-<subtask>.ndjson` | final: the checkpoint that covers it is complete |
//! | `.part-<job>-<node>-<epoch>-<attempt>-<subtask>-<checkpoint>.published` | empty: that file has got its final name |
//!
//! Readers take files whose names do not begin with a dot: those never change, and may be taken away. The empty file says so to a
//! restore that looks for one in vain; it goes with the first checkpoint that is complete without that file in its snapshot.
//! `<node>` is a hash of the node's name, `<job>` the job's id, in final names its last eight digits (the first ones are the time).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use levada_common::ids::{AttemptId, CheckpointId, Uid};
use serde::{Deserialize, Serialize};

use super::durable::{failed, remove};
use crate::error::ConnectorError;

/// Ends of hidden names.
const PREPARED: &str = ".prepared";
const PUBLISHED: &str = ".published";

/// Names of the files of one subtask of one attempt.
pub(super) struct Names {
    folder: PathBuf,
    /// What the hidden names of all attempts of this node begin with.
    hidden: String,
    /// What its final names begin with.
    visible: String,
    /// Epoch and attempt.
    attempt: (u64, u32),
    subtask: u32,
}

/// A file that is closed, and the name that it gets: an entry of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// The checkpoint whose barrier closed it.
    pub checkpoint: CheckpointId,
    /// Where it is.
    pub folder: PathBuf,
    /// Its hidden name.
    pub hidden: String,
    /// The name that it gets.
    pub name: String,
}

impl Names {
    pub fn new(folder: &Path, uid: &Uid, attempt: &AttemptId, subtask: u32) -> Self {
        let job = attempt.job.to_string();
        let node = fnv(uid.as_str());
        Self {
            folder: folder.to_path_buf(),
            hidden: format!(".part-{job}-{node:08x}-"),
            visible: format!("part-{}-{node:08x}-", &job[job.len() - 8..]),
            attempt: (attempt.epoch.0, attempt.attempt.0),
            subtask,
        }
    }

    /// The file that is being written.
    pub fn in_progress(&self) -> PathBuf {
        self.folder.join(format!("{}.inprogress", self.stem()))
    }

    /// The file once this checkpoint's barrier has closed it.
    pub fn part(&self, checkpoint: CheckpointId) -> Part {
        Part {
            checkpoint,
            folder: self.folder.clone(),
            hidden: format!("{}-{:010}{PREPARED}", self.stem(), checkpoint.0),
            name: format!("{}{:010}-{}.ndjson", self.visible, checkpoint.0, self.subtask),
        }
    }

    /// Removes what older attempts of this subtask (and of those beyond the parallelism that fall to it) left: files that were
    /// never closed, and files closed by checkpoints after the one that is restored. Those of earlier checkpoints are in
    /// somebody's snapshot; so may files be that were published, of which it answers the notes.
    pub fn remove_leftovers(
        &self,
        parallelism: u32,
        restored_from: Option<CheckpointId>,
    ) -> Result<Vec<PathBuf>, ConnectorError> {
        let folder = &self.folder;
        let mut notes = Vec::new();
        for file in fs::read_dir(folder).map_err(|source| failed("list", folder, source))? {
            let name = file.map_err(|source| failed("list", folder, source))?.file_name();
            let Some(leftover) = name.to_str().and_then(|name| self.parse_hidden(name)) else { continue };
            let is_mine = leftover.subtask % parallelism.max(1) == self.subtask;
            let is_older = leftover.attempt < self.attempt;
            let is_lost = leftover.checkpoint.is_none_or(|checkpoint| restored_from.is_none_or(|restored| checkpoint > restored));
            match is_mine && is_older {
                true if is_lost => remove(&folder.join(&name))?,
                true if leftover.is_note => notes.push(folder.join(&name)),
                _ => {}
            }
        }
        Ok(notes)
    }

    fn stem(&self) -> String {
        format!("{}{}-{}-{}", self.hidden, self.attempt.0, self.attempt.1, self.subtask)
    }

    fn parse_hidden(&self, name: &str) -> Option<Hidden> {
        let (stem, kind) = name.strip_prefix(&self.hidden)?.rsplit_once('.')?;
        let mut numbers = stem.split('-').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let attempt = (next()?, u32::try_from(next()?).ok()?);
        let subtask = u32::try_from(next()?).ok()?;
        let (checkpoint, is_note) = match kind {
            "inprogress" => (None, false),
            "prepared" => (Some(CheckpointId(next()?)), false),
            "published" => (Some(CheckpointId(next()?)), true),
            _ => return None,
        };
        Some(Hidden { attempt, subtask, checkpoint, is_note })
    }
}

/// What a hidden name says.
struct Hidden {
    attempt: (u64, u32),
    subtask: u32,
    checkpoint: Option<CheckpointId>,
    /// Whether it says that a file was published.
    is_note: bool,
}

impl Part {
    /// Reads an entry of a snapshot.
    pub fn parse(text: &str) -> Result<Self, ConnectorError> {
        let bad = |reason: String| ConnectorError::BadEntry { entry: text.to_owned(), reason };
        let part: Self = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        if part.hidden.contains('/') || part.name.contains('/') {
            return Err(bad("a file's name has a slash".into()));
        }
        Ok(part)
    }

    /// The entry of a snapshot.
    pub fn entry(&self) -> String {
        serde_json::to_string(self).expect("the folder came out of JSON")
    }

    /// Where it is before it is published.
    pub fn hidden_path(&self) -> PathBuf {
        self.folder.join(&self.hidden)
    }

    /// The empty file that says that it was published.
    pub fn note_path(&self) -> PathBuf {
        self.folder.join(format!("{}{PUBLISHED}", self.hidden.strip_suffix(PREPARED).unwrap_or(&self.hidden)))
    }

    /// Gives it its final name, and notes that; nothing is to do where it has that, or had it before a reader took it away. The
    /// folder is synced by the caller.
    pub fn publish(&self) -> Result<(), ConnectorError> {
        let (temporary, path, note) = (self.hidden_path(), self.folder.join(&self.name), self.note_path());
        let missing = || ConnectorError::MissingPart { temporary: temporary.clone(), path: path.clone() };
        // An older attempt that has not been told of its end may publish the same file at the same time.
        let (is_shown, is_hidden) = (path.exists(), temporary.exists());
        match (is_shown, is_hidden) {
            (true, true) => return Err(ConnectorError::NameTaken { temporary, path }),
            (false, false) if !note.exists() => return Err(missing()),
            (false, false) => return Ok(()),
            // Noted first: whoever finds neither name then knows why.
            (_, _) => fs::File::create(&note).map_err(|source| failed("create", &note, source))?,
        };
        if is_shown {
            return Ok(());
        }
        match fs::rename(&temporary, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.exists() {
                true => Ok(()),
                false => remove(&note).and(Err(missing())),
            },
            result => result.map_err(|source| failed("publish", &temporary, source)),
        }
    }
}

/// FNV-1a: stable over releases, as names on disk must be.
pub(super) fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
