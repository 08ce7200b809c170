//! No task is told to take a snapshot that it has acknowledged, none that a checkpoint is complete before every task of that attempt acknowledged it and its metadata was written;
//! none is told that it is finished before a checkpoint in which every task was, or a savepoint that stops the job. Of a savepoint
//! with which the job goes on none is told that it is complete: nothing is committed for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_common::checkpoint::CheckpointKind;
use levada_common::ids::{AttemptId, CheckpointId, TaskId};
use levada_common::plan::Plan;
use levada_jobmanager_core::{Effect, Event};

use super::{Invariant, Step};

/// What came in for each checkpoint.
#[derive(Debug)]
pub struct Completion {
    plan: Arc<Plan>,
    acknowledged: BTreeMap<(AttemptId, CheckpointId), BTreeMap<TaskId, bool>>,
    written: BTreeSet<(AttemptId, CheckpointId)>,
    asked: BTreeSet<(AttemptId, CheckpointId)>,
    kinds: BTreeMap<CheckpointId, CheckpointKind>,
}

impl Completion {
    /// Watches a job with this plan.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self { plan, acknowledged: BTreeMap::new(), written: BTreeSet::new(), asked: BTreeSet::new(), kinds: BTreeMap::new() }
    }

    fn tasks(&self) -> usize {
        self.plan.vertices.iter().map(|vertex| vertex.parallelism as usize).sum()
    }
}

impl Invariant for Completion {
    fn step(&mut self, step: &Step<'_>) {
        match step.event {
            Event::SnapshotTaken { attempt, checkpoint, snapshot } => {
                let tasks = self.acknowledged.entry((*attempt, *checkpoint)).or_default();
                tasks.entry(snapshot.task).or_insert(snapshot.finished);
            }
            Event::MetadataWritten { attempt, checkpoint, result: Ok(_) } => {
                self.written.insert((*attempt, *checkpoint));
            }
            _ => {}
        }
        for effect in step.effects {
            match effect {
                Effect::WriteMetadata { attempt, metadata, .. } => {
                    let key = (*attempt, metadata.id);
                    assert!(self.asked.insert(key), "{key:?} is written twice");
                    let tasks: BTreeSet<TaskId> = metadata.tasks.iter().map(|task| task.task).collect();
                    assert_eq!(tasks.len(), self.tasks(), "{key:?} lacks tasks");
                    let acknowledged = self.acknowledged.get(&key).expect("acknowledged");
                    assert!(tasks.iter().all(|task| acknowledged.contains_key(task)), "{key:?}: {acknowledged:?}");
                }
                Effect::TriggerCheckpoint { attempt, checkpoint, kind, tasks, .. } => {
                    let known = self.kinds.entry(*checkpoint).or_insert_with(|| kind.clone());
                    assert_eq!(known, kind, "checkpoint {checkpoint} is one thing");
                    let acknowledged = self.acknowledged.get(&(*attempt, *checkpoint));
                    let again = tasks.iter().find(|(_, task)| acknowledged.is_some_and(|tasks| tasks.contains_key(task)));
                    assert_eq!(again, None, "told of checkpoint {checkpoint} again");
                }
                Effect::NotifyCheckpoint { attempt, checkpoint, completed: true, last, .. } => {
                    let key = (*attempt, *checkpoint);
                    assert!(self.written.contains(&key), "{key:?} is notified unwritten");
                    let acknowledged = &self.acknowledged[&key];
                    assert_eq!(acknowledged.len(), self.tasks(), "{key:?} is notified incomplete");
                    let kind = &self.kinds[checkpoint];
                    assert!(*kind == CheckpointKind::Checkpoint || kind.stops(), "{key:?} is the user's alone");
                    let over = kind.stops() || acknowledged.values().all(|finished| *finished);
                    assert!(!last || over, "{key:?} is not the last");
                }
                _ => {}
            }
        }
    }
}
