//! A job is restored from its newest completed checkpoint and no other; each task gets its own states, all of them.
//!
//! Completed means: its metadata was written within the checkpoint's time, whatever became of the attempt. A savepoint counts only
//! where it has stopped the job: then every task is finished, and only commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointKind, CheckpointMetadata, StateHandle};
use levada_common::ids::{CheckpointId, TaskId};
use levada_common::plan::Plan;
use levada_jobmanager_core::event::TaskDeployment;
use levada_jobmanager_core::{Effect, Event};

use super::{Invariant, Step};

/// The newest completed checkpoint.
#[derive(Debug)]
pub struct Restoring {
    plan: Arc<Plan>,
    writing: BTreeMap<CheckpointId, (CheckpointMetadata, CheckpointKind, u64)>,
    newest: Option<(CheckpointMetadata, CheckpointKind)>,
}

impl Restoring {
    /// Watches a job with this plan.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self { plan, writing: BTreeMap::new(), newest: None }
    }

    fn check(&self, restored: Option<CheckpointId>, tasks: &[TaskDeployment]) {
        assert_eq!(restored, self.newest.as_ref().map(|(newest, _)| newest.id), "restored from another than the newest");
        let Some((newest, kind)) = &self.newest else { return self.check_first(tasks) };
        for deployed in tasks {
            let of = |id: TaskId| newest.tasks.iter().find(|task| task.task == id).expect("metadata names every task");
            let own = of(deployed.task);
            let states: Vec<&StateHandle> = deployed.states.iter().map(|assigned| &assigned.state).collect();
            assert_eq!(states, own.states.iter().collect::<Vec<_>>(), "task {}", deployed.task);
            assert!(deployed.states.iter().all(|assigned| assigned.entries == (0..assigned.state.rows)));
            assert_eq!(deployed.finished, own.finished || kind.stops(), "task {}", deployed.task);
            assert!(deployed.splits.is_empty(), "splits and states");
        }
    }

    fn check_first(&self, tasks: &[TaskDeployment]) {
        for vertex in self.plan.vertices.iter().filter(|vertex| vertex.source.is_some()) {
            let of_vertex = tasks.iter().filter(|task| task.task.vertex == vertex.id);
            let splits: Vec<&String> = of_vertex.flat_map(|task| &task.splits).collect();
            assert_eq!((splits.len(), splits.iter().collect::<BTreeSet<_>>().len()), (5, 5), "{}: {splits:?}", vertex.name);
        }
        assert!(tasks.iter().all(|task| task.states.is_empty() && !task.finished));
    }
}

impl Invariant for Restoring {
    fn step(&mut self, step: &Step<'_>) {
        if let Event::MetadataWritten { checkpoint, result, .. } = step.event {
            let (metadata, kind, deadline_ms) = self.writing.remove(checkpoint).expect("asked for");
            let counts = kind == CheckpointKind::Checkpoint || kind.stops();
            if counts && result.is_ok() && step.now_ms < deadline_ms {
                self.newest = Some((metadata, kind));
            }
        }
        for effect in step.effects {
            match effect {
                Effect::WriteMetadata { metadata, kind, within_ms, .. } => {
                    self.writing.insert(metadata.id, (metadata.clone(), kind.clone(), step.now_ms + within_ms));
                }
                Effect::Deploy { restored, tasks, .. } => self.check(*restored, tasks),
                _ => {}
            }
        }
    }
}
