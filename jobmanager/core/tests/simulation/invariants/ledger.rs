//! Every file that an acknowledgement brought is kept in a retained checkpoint or discarded, never both, and none is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::ids::CheckpointId;
use levada_jobmanager_core::{Effect, Event, JobState};

use super::{End, Invariant, Step};
use crate::world::paths;

/// Files of checkpoints that are being written or are retained.
#[derive(Debug, Default)]
pub struct Ledger {
    writing: BTreeMap<CheckpointId, BTreeSet<String>>,
    retained: BTreeMap<CheckpointId, BTreeSet<String>>,
    newest_triggered: CheckpointId,
    retain: bool,
}

impl Ledger {
    /// Watches a job whose checkpoints stay, or not, when it is cancelled or fails.
    pub fn new(retain: bool) -> Self {
        Self { retain, ..Self::default() }
    }

    fn assert_unused(&self, path: &str) {
        let used = self.writing.iter().chain(&self.retained).find(|(_, files)| files.contains(path));
        assert!(used.is_none(), "{path} is deleted and belongs to checkpoint {:?}", used.map(|(id, _)| id));
    }
}

impl Invariant for Ledger {
    fn step(&mut self, step: &Step<'_>) {
        if let Event::MetadataWritten { checkpoint, .. } = step.event {
            let files = self.writing.remove(checkpoint).expect("asked for");
            if step.after.checkpoints.completed > step.before.checkpoints.completed {
                self.retained.insert(*checkpoint, files);
            }
        }
        for effect in step.effects {
            match effect {
                Effect::TriggerCheckpoint { checkpoint, .. } => self.newest_triggered = *checkpoint,
                Effect::WriteMetadata { metadata, .. } => {
                    self.writing.insert(metadata.id, metadata.tasks.iter().flat_map(paths).collect());
                }
                Effect::DiscardCheckpoint { checkpoint, tasks } => {
                    self.retained.remove(checkpoint);
                    for path in tasks.iter().flat_map(paths) {
                        assert!(path.starts_with(&format!("chk-{checkpoint}/")), "{path} is not of checkpoint {checkpoint}");
                        self.assert_unused(&path);
                    }
                }
                Effect::DiscardSnapshot { snapshot, .. } => paths(snapshot).for_each(|path| self.assert_unused(&path)),
                _ => {}
            }
        }
    }

    fn end(&mut self, end: &End<'_>) {
        let under_way = (end.status.checkpoints.in_progress > 0).then_some(self.newest_triggered);
        let unanswered = self.writing.keys().find(|id| Some(**id) != under_way);
        assert_eq!(unanswered, None, "metadata without an answer");
        let under_way = under_way.map(|id| format!("chk-{id}/"));
        let left = end.storage.iter().filter(|path| !under_way.as_ref().is_some_and(|under_way| path.starts_with(under_way)));
        let left: BTreeSet<&String> = left.collect();
        let retained: BTreeSet<&String> = self.retained.values().flatten().collect();
        assert_eq!(left, retained, "files that are left, and files of retained checkpoints");
        let keeps = self.retain && end.status.state != JobState::Finished || !end.status.state.is_terminal();
        assert!(keeps || retained.is_empty(), "{} and keeps {retained:?}", end.status.state);
    }
}
