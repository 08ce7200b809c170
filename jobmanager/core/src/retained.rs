//! Completed checkpoints that are kept, newest last.
//!
//! Invariant: the newest completed checkpoint is always kept while the job lives; a job is restored from it alone.

use std::collections::VecDeque;

use levada_common::checkpoint::{CheckpointMetadata, TaskSnapshot};
use levada_common::ids::CheckpointId;

/// The completed checkpoints of one job.
#[derive(Debug)]
pub struct Retained {
    count_max: usize,
    checkpoints: VecDeque<CheckpointMetadata>,
}

impl Retained {
    /// Keeps the newest `count_max`, at least one.
    pub fn new(count_max: u32) -> Self {
        Self { count_max: count_max.max(1) as usize, checkpoints: VecDeque::new() }
    }

    /// Takes a newer one. Answers those that are too many, oldest first.
    pub fn push(&mut self, metadata: CheckpointMetadata) -> Vec<CheckpointMetadata> {
        assert!(self.newest().is_none_or(|newest| newest.id < metadata.id), "checkpoints complete in the order of their ids");
        self.checkpoints.push_back(metadata);
        let too_many = self.checkpoints.len().saturating_sub(self.count_max);
        self.checkpoints.drain(..too_many).collect()
    }

    /// The newest, from which the job is restored.
    pub fn newest(&self) -> Option<&CheckpointMetadata> {
        self.checkpoints.back()
    }

    /// The one with this id.
    pub fn get(&self, id: CheckpointId) -> Option<&CheckpointMetadata> {
        self.checkpoints.iter().find(|checkpoint| checkpoint.id == id)
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &CheckpointMetadata> {
        self.checkpoints.iter()
    }

    /// Keeps none. Answers what it had.
    pub fn take_all(&mut self) -> Vec<CheckpointMetadata> {
        self.checkpoints.drain(..).collect()
    }
}

/// Whether `snapshot` is `held` come again (a repeated call), or shares a file with it: then nothing of it may be deleted.
pub fn repeats(held: &TaskSnapshot, snapshot: &TaskSnapshot) -> bool {
    let paths = |snapshot: &TaskSnapshot| -> Vec<String> {
        snapshot.states.iter().flat_map(|state| state.handle.own_paths()).map(str::to_owned).collect()
    };
    held == snapshot || {
        let kept = paths(held);
        paths(snapshot).iter().any(|path| kept.contains(path))
    }
}
