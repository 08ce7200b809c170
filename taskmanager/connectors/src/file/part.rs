//! Output files: their names through life, and how one is published.
//!
//! | name | what it is |
//! |---|---|
//! | `.part-<job>-<node>-<epoch>-<attempt>-<subtask>.inprogress` | being written |
//! | `.part-<job>-<node>-<epoch>-<attempt>-<subtask>-<checkpoint>.prepared` | closed by a checkpoint that may not be complete |
//! | `part-<job>-<node>-<checkpoint>-<subtask>.ndjson` | final: the checkpoint that covers it is complete |
//!
//! Readers take files whose names do not begin with a dot: those never change. A reader that takes files away leaves those of
//! the two newest checkpoints, since a restored job looks for them. `<node>` is a hash of the node's name, `<job>` the job's id, in
//! final names its last eight digits (the first ones are the time).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use levada_common::ids::{AttemptId, CheckpointId, Uid};
use serde::{Deserialize, Serialize};

use super::durable::{failed, remove};
use crate::error::ConnectorError;

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
            hidden: format!("{}-{:010}.prepared", self.stem(), checkpoint.0),
            name: format!("{}{:010}-{}.ndjson", self.visible, checkpoint.0, self.subtask),
        }
    }

    /// Removes what older attempts of this subtask (and of those beyond the parallelism that fall to it) left: files that were
    /// never closed, and files closed by checkpoints after the one that is restored. Those of earlier checkpoints are in
    /// somebody's snapshot.
    pub fn remove_leftovers(&self, parallelism: u32, restored_from: Option<CheckpointId>) -> Result<(), ConnectorError> {
        let folder = &self.folder;
        for file in fs::read_dir(folder).map_err(|source| failed("list", folder, source))? {
            let name = file.map_err(|source| failed("list", folder, source))?.file_name();
            let Some(leftover) = name.to_str().and_then(|name| self.parse_hidden(name)) else { continue };
            let is_mine = leftover.subtask % parallelism.max(1) == self.subtask;
            let is_older = leftover.attempt < self.attempt;
            let is_lost = leftover.checkpoint.is_none_or(|checkpoint| restored_from.is_none_or(|restored| checkpoint > restored));
            if is_mine && is_older && is_lost {
                remove(&folder.join(&name))?;
            }
        }
        Ok(())
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
        let checkpoint = match kind {
            "inprogress" => None,
            "prepared" => Some(CheckpointId(next()?)),
            _ => return None,
        };
        Some(Hidden { attempt, subtask, checkpoint })
    }
}

/// What a hidden name says.
struct Hidden {
    attempt: (u64, u32),
    subtask: u32,
    checkpoint: Option<CheckpointId>,
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

    /// Gives it its final name; nothing is to do where it has that. The folder is synced by the caller.
    pub fn publish(&self) -> Result<(), ConnectorError> {
        let (temporary, path) = (self.hidden_path(), self.folder.join(&self.name));
        // An older attempt that has not been told of its end may publish the same file at the same time.
        if path.exists() {
            return if temporary.exists() { Err(ConnectorError::NameTaken { temporary, path }) } else { Ok(()) };
        }
        match fs::rename(&temporary, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.exists() {
                true => Ok(()),
                false => Err(ConnectorError::MissingPart { temporary, path }),
            },
            result => result.map_err(|source| failed("publish", &temporary, source)),
        }
    }
}

/// FNV-1a: stable over releases, as names on disk must be.
pub(super) fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
