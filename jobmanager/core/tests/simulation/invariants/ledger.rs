//! Every file that an acknowledgement brought is kept in a retained checkpoint or a savepoint, or discarded, never both, and none is
//! forgotten; what a killed task left is gone once the job has ended. A file that snapshots share stays as long as one that is under way, being written or retained names it, and as long
//! as one of the two newest completed checkpoints does: a task may build on those.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, shared_path_writer};
use levada_common::ids::{AttemptId, CheckpointId};
use levada_jobmanager_core::{Effect, Event, JobState};

use super::{End, Invariant, Step};
use crate::managers::STRAY;
use crate::world::{paths, shared_paths};

type Files = BTreeSet<String>;

/// Files of checkpoints that are being written or are retained.
#[derive(Debug, Default)]
pub struct Ledger {
    writing: BTreeMap<CheckpointId, (CheckpointKind, Files)>,
    retained: BTreeMap<CheckpointId, Files>,
    /// Files of completed savepoints: their users'.
    savepoints: Files,
    /// Shared files that acknowledgements brought for the newest checkpoint.
    brought: Files,
    /// Shared files of the newest completed checkpoints.
    recent: VecDeque<Files>,
    deleted: Files,
    newest_triggered: CheckpointId,
    retain: bool,
}

impl Ledger {
    /// Watches a job whose checkpoints stay, or not, when it is cancelled or fails.
    pub fn new(retain: bool) -> Self {
        Self { retain, ..Self::default() }
    }

    fn assert_unused(&self, path: &str) {
        let writing = self.writing.iter().map(|(id, (_, files))| (id, files));
        let used = writing.chain(&self.retained).find(|(_, files)| files.contains(path));
        assert!(used.is_none(), "{path} is deleted and belongs to checkpoint {:?}", used.map(|(id, _)| id));
        assert!(!self.savepoints.contains(path), "{path} is deleted and belongs to a savepoint");
    }

    fn written(&mut self, step: &Step<'_>, checkpoint: CheckpointId) {
        let (kind, files) = self.writing.remove(&checkpoint).expect("asked for");
        if step.after.checkpoints.completed == step.before.checkpoints.completed {
            return;
        }
        if kind == CheckpointKind::Checkpoint {
            self.recent.push_back(files.iter().filter(|file| is_shared(file)).cloned().collect());
            self.recent.drain(..self.recent.len().saturating_sub(2));
            self.retained.insert(checkpoint, files);
        } else {
            self.savepoints.extend(files);
        }
    }

    fn deleted(&mut self, step: &Step<'_>, files: &[String]) {
        for file in files {
            assert!(is_shared(file), "{file} is not shared");
            self.assert_unused(file);
            let building = step.after.checkpoints.in_progress > 0 && self.brought.contains(file);
            assert!(!building, "{file} is deleted and belongs to the checkpoint under way");
            let may_be_built_on = !step.after.state.is_terminal() && self.recent.iter().any(|recent| recent.contains(file));
            assert!(!may_be_built_on, "{file} is deleted, and a task may build on it");
            self.deleted.insert(file.clone());
        }
    }

    /// Whatever is in use and could be taken for an old attempt's must be among what is kept.
    fn swept(&self, step: &Step<'_>, before: Option<AttemptId>, keep: &Files) {
        let before = before.map(|attempt| (attempt.epoch, attempt.attempt));
        let goes = |path: &String| {
            let old = shared_path_writer(path).is_some_and(|writer| before.is_none_or(|before| writer < before));
            old && !keep.contains(path)
        };
        let writing = self.writing.values().map(|(_, files)| files);
        let recent = self.recent.iter().filter(|_| !step.after.state.is_terminal());
        let brought = std::iter::once(&self.brought).filter(|_| step.after.checkpoints.in_progress > 0);
        let lost = writing.chain(self.retained.values()).chain(recent).chain(brought).flatten().find(|path| goes(path));
        assert_eq!(lost, None, "it is in use and would be swept up");
    }

    fn assert_there(&self, files: impl Iterator<Item = String>, what: &str) {
        for file in files {
            assert!(!self.deleted.contains(&file), "{what} needs {file}, which was deleted");
        }
    }
}

fn is_shared(path: &str) -> bool {
    path.starts_with("shared/")
}

fn all(metadata: &CheckpointMetadata) -> Files {
    metadata.tasks.iter().flat_map(|task| paths(task).chain(shared_paths(task))).collect()
}

impl Invariant for Ledger {
    fn step(&mut self, step: &Step<'_>) {
        match step.event {
            Event::MetadataWritten { checkpoint, .. } => self.written(step, *checkpoint),
            Event::SnapshotTaken { checkpoint, snapshot, .. }
                if *checkpoint == self.newest_triggered && step.before.checkpoints.in_progress > 0 =>
            {
                self.brought.extend(shared_paths(snapshot));
            }
            _ => {}
        }
        for effect in step.effects {
            match effect {
                Effect::TriggerCheckpoint { checkpoint, .. } if *checkpoint != self.newest_triggered => {
                    self.newest_triggered = *checkpoint;
                    self.brought.clear();
                }
                Effect::WriteMetadata { metadata, kind, .. } => {
                    self.assert_there(all(metadata).into_iter(), "a checkpoint");
                    self.writing.insert(metadata.id, (kind.clone(), all(metadata)));
                }
                Effect::Deploy { tasks, .. } => {
                    let states = tasks.iter().flat_map(|task| &task.states);
                    let shared = states.flat_map(|assigned| assigned.state.handle.shared_paths()).map(str::to_owned);
                    self.assert_there(shared, "an attempt");
                }
                Effect::DiscardCheckpoint { checkpoint, kind, tasks } => {
                    self.retained.remove(checkpoint);
                    if *checkpoint == self.newest_triggered {
                        self.brought.clear();
                    }
                    let folder = if kind.savepoint().is_some() { "savepoint" } else { "chk" };
                    for path in tasks.iter().flat_map(paths) {
                        let own = format!("{folder}-{checkpoint}/");
                        assert!(path.starts_with(&own), "{path} is not of checkpoint {checkpoint}");
                        self.assert_unused(&path);
                    }
                }
                Effect::DiscardSnapshot { snapshot, .. } => paths(snapshot).for_each(|path| self.assert_unused(&path)),
                Effect::DeleteShared { files } => self.deleted(step, files),
                Effect::SweepShared { before, keep } => self.swept(step, *before, keep),
                _ => {}
            }
        }
    }

    fn end(&mut self, end: &End<'_>) {
        let running = !end.status.state.is_terminal();
        let under_way = (end.status.checkpoints.in_progress > 0).then_some(self.newest_triggered);
        let unanswered = self.writing.keys().find(|id| Some(**id) != under_way);
        assert_eq!(unanswered, None, "metadata without an answer");
        let is_under_way = |path: &str| {
            under_way.is_some_and(|id| path.starts_with(&format!("chk-{id}/")) || path.starts_with(&format!("savepoint-{id}/")))
        };
        let mut kept: Files = self.retained.values().flatten().chain(&self.savepoints).cloned().collect();
        if running {
            kept.extend(self.recent.iter().flatten().cloned());
        }
        if under_way.is_some() {
            kept.extend(self.brought.iter().filter(|path| end.storage.contains(*path)).cloned());
        }
        // A task that outlived its attempt may have been killed since the sweep: what it left goes with the job.
        let goes_later = |path: &str| running && path.contains(STRAY);
        let left: Files = end.storage.iter().filter(|path| !is_under_way(path) && !goes_later(path)).cloned().collect();
        assert_eq!(left, kept, "files that are left, and files that belong to something");
        let keeps = self.retain && end.status.state != JobState::Finished || running;
        assert!(keeps || self.retained.is_empty(), "{} and keeps {:?}", end.status.state, self.retained);
    }
}
