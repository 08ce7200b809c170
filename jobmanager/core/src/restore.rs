//! Who gets which state of a snapshot.
//!
//! State is found by its operator's uid and its name, whatever vertex runs the operator now. Keyed state goes to every subtask
//! whose key groups it holds some of. The operator lists of one state are concatenated in subtask order and split in contiguous
//! pieces, sizes differing by at most one; where the parallelism is as it was each subtask gets its own list back, so that the
//! mark *finished* stays with the positions that it speaks of. A union goes to every subtask, by reference; of broadcast state
//! each takes one copy. With another parallelism a task is finished only where all were, since unfinished positions may come to
//! anyone.
//!
//! Invariant: every entry and every key group is given once, a union to everyone (property tests, for all p → p′).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use levada_common::checkpoint::{CheckpointMetadata, StateHandle, StateKind, TaskSnapshot, VertexOperators};
use levada_common::ids::{TaskId, Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{Plan, Vertex};
use levada_common::planned_state::PlannedState;

use crate::event::StateAssignment;

/// A snapshot of another job, or of an earlier run, that a job begins with. The job never deletes anything of it.
///
/// Contract: it has passed `restore_check` with the job's plan, and what is dropped is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreBase {
    /// The snapshot.
    pub metadata: CheckpointMetadata,
    /// URI of the directory below which its files are.
    pub directory: String,
}

impl RestoreBase {
    /// Whether the job of the snapshot had this operator.
    pub fn knows(&self, uid: &Uid) -> bool {
        knows(&self.metadata, uid)
    }
}

/// A snapshot to restore an attempt from.
#[derive(Debug, Clone, Copy)]
pub struct RestorePoint<'a> {
    /// The snapshot.
    pub metadata: &'a CheckpointMetadata,
    /// URI of the directory below which its files are; `None` = the job's own checkpoint directory.
    pub directory: Option<&'a str>,
    /// It has stopped the job: its sinks commit what they find in it, and nothing more is read.
    pub stopped: bool,
}

/// What a task starts from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// It had seen the end of its data.
    pub finished: bool,
    /// Its states.
    pub states: Vec<StateAssignment>,
}

/// The checkpoint does not fit the plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// State of an operator that the plan does not have.
    #[error("checkpoint {checkpoint} has state \"{state}\" of operator \"{uid}\", which the job does not have")]
    UnknownOperator {
        /// The checkpoint.
        checkpoint: u64,
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
    },
    /// Key groups are cut otherwise.
    #[error("checkpoint {checkpoint} has {found} key groups, the job has {expected}, which is no multiple (max-parallelism)")]
    MaxParallelism {
        /// The checkpoint.
        checkpoint: u64,
        /// Its key groups.
        found: u32,
        /// The plan's.
        expected: u32,
    },
}

/// A state over all the subtasks that wrote it: where it goes, its operator and its name.
type StateKey<'a> = (VertexId, &'a Uid, &'a str);

/// The handles of one state in subtask order, and how many subtasks there were.
#[derive(Default)]
struct Written<'a> {
    parallelism: u32,
    handles: Vec<&'a StateHandle>,
}

/// What each task starts from; a task that is not named starts from nothing.
pub fn assign(plan: &Plan, checkpoint: &CheckpointMetadata) -> Result<BTreeMap<TaskId, Restored>, RestoreError> {
    let (old, new) = (checkpoint.max_parallelism, plan.max_parallelism);
    if old == 0 || !new.is_multiple_of(old) {
        return Err(RestoreError::MaxParallelism { checkpoint: checkpoint.id.0, found: old, expected: new });
    }
    let mut restored: BTreeMap<TaskId, Restored> = BTreeMap::new();
    let anew = beginning_anew(plan, checkpoint);
    for vertex in &plan.vertices {
        for (task, finished) in finished_marks(vertex, checkpoint) {
            restored.entry(task).or_default().finished = finished && !anew.contains(&vertex.id);
        }
    }
    for ((vertex, _, _), written) in by_state(plan, checkpoint)? {
        let vertex = plan.vertex(vertex);
        for subtask in 0..vertex.parallelism {
            let pieces = Pieces { plan, vertex, subtask, max_parallelism: old };
            restored.entry(TaskId::new(vertex.id, subtask)).or_default().states.extend(pieces.of(&written));
        }
    }
    Ok(restored)
}

/// The piece `index` of `count` when `total` entries are split in contiguous pieces.
pub fn split(total: u64, index: u32, count: u32) -> Range<u64> {
    let at = |index: u32| (u128::from(total) * u128::from(index) / u128::from(count)) as u64;
    at(index)..at(index + 1)
}

/// Whether the job of the snapshot had this operator.
pub fn knows(checkpoint: &CheckpointMetadata, uid: &Uid) -> bool {
    checkpoint.vertices.is_empty() || checkpoint.vertices.iter().any(|vertex| vertex.uids.contains(uid))
}

/// The vertices to which rows come from a source that the job of the snapshot did not have: whatever ran there then, their data has
/// not ended.
fn beginning_anew(plan: &Plan, checkpoint: &CheckpointMetadata) -> BTreeSet<VertexId> {
    let is_new = |vertex: &&Vertex| vertex.source.as_ref().is_some_and(|source| !knows(checkpoint, &source.uid));
    let mut anew: BTreeSet<VertexId> = plan.vertices.iter().filter(is_new).map(|vertex| vertex.id).collect();
    let mut next: Vec<VertexId> = anew.iter().copied().collect();
    while let Some(vertex) = next.pop() {
        let readers = plan.outputs(vertex).map(|edge| edge.to);
        next.extend(readers.filter(|reader| anew.insert(*reader)));
    }
    anew
}

/// Which tasks of the vertex had seen the end of their data: each as its own subtask had, where the vertex is what it was, else
/// all where every task that ran one of its operators had.
fn finished_marks(vertex: &Vertex, checkpoint: &CheckpointMetadata) -> Vec<(TaskId, bool)> {
    let uids = vertex.uids();
    let is_same = |id: VertexId| match checkpoint.vertices.get(id.0 as usize) {
        Some(VertexOperators { uids: old, .. }) => *old == uids,
        None => checkpoint.vertices.is_empty() && id == vertex.id,
    };
    let shares = |id: VertexId| match checkpoint.vertices.get(id.0 as usize) {
        Some(VertexOperators { uids: old, .. }) => old.iter().any(|uid| uids.contains(uid)),
        None => is_same(id),
    };
    let same: Vec<&TaskSnapshot> = checkpoint.tasks.iter().filter(|task| is_same(task.task.vertex)).collect();
    let old: Vec<&TaskSnapshot> = checkpoint.tasks.iter().filter(|task| shares(task.task.vertex)).collect();
    let all = !old.is_empty() && old.iter().all(|task| task.finished);
    let own = same.len() == vertex.parallelism as usize;
    (0..vertex.parallelism)
        .map(|subtask| {
            let task = TaskId::new(vertex.id, subtask);
            let finished = |old: &&TaskSnapshot| old.task.subtask == task.subtask && old.finished;
            (task, if own { same.iter().any(finished) } else { all })
        })
        .collect()
}

/// The checkpoint's handles by state.
fn by_state<'a>(plan: &Plan, checkpoint: &'a CheckpointMetadata) -> Result<BTreeMap<StateKey<'a>, Written<'a>>, RestoreError> {
    let planned = plan.states();
    let mut tasks: BTreeMap<VertexId, u32> = BTreeMap::new();
    for task in &checkpoint.tasks {
        *tasks.entry(task.task.vertex).or_default() += 1;
    }
    let mut states: BTreeMap<StateKey<'a>, Written<'a>> = BTreeMap::new();
    for task in &checkpoint.tasks {
        for handle in &task.states {
            let vertex = owner(plan, &planned, task.task.vertex, handle).ok_or_else(|| RestoreError::UnknownOperator {
                checkpoint: checkpoint.id.0,
                uid: handle.uid.clone(),
                state: handle.name.clone(),
            })?;
            let written = states.entry((vertex, &handle.uid, &handle.name)).or_default();
            written.parallelism = tasks[&task.task.vertex];
            written.handles.push(handle);
        }
    }
    for written in states.values_mut() {
        written.handles.sort_by_key(|handle| handle.subtask);
    }
    Ok(states)
}

/// The vertex that has the state: of several the one that wrote it (both halves of a two-phase aggregate share a name).
fn owner(plan: &Plan, planned: &[PlannedState], wrote: VertexId, handle: &StateHandle) -> Option<VertexId> {
    let of_state = planned.iter().filter(|state| state.uid == handle.uid && state.name == handle.name).map(|state| state.vertex);
    let mut vertices: Vec<VertexId> = of_state.collect();
    if vertices.is_empty() {
        let has = |vertex: &&Vertex| vertex.uids().contains(&handle.uid);
        vertices = plan.vertices.iter().filter(has).map(|vertex| vertex.id).collect();
    }
    if vertices.contains(&wrote) { Some(wrote) } else { vertices.first().copied() }
}

/// What one subtask gets.
struct Pieces<'a> {
    plan: &'a Plan,
    vertex: &'a Vertex,
    subtask: u32,
    /// Key groups of the snapshot.
    max_parallelism: u32,
}

impl Pieces<'_> {
    /// The pieces of one state. All handles of a state have its kind.
    fn of(&self, written: &Written<'_>) -> Vec<StateAssignment> {
        let handles = &written.handles;
        let Some(first) = handles.first() else { return Vec::new() };
        match first.kind {
            StateKind::Keyed => {
                let own = KeyGroupRange::of_subtask(self.subtask, self.vertex.parallelism, self.plan.max_parallelism);
                let factor = self.plan.max_parallelism / self.max_parallelism;
                let holds = |handle: &&&StateHandle| handle.key_groups.scaled(factor).intersects(own);
                handles.iter().filter(holds).map(|handle| self.whole(handle)).collect()
            }
            StateKind::OperatorList if written.parallelism == self.vertex.parallelism => {
                handles.iter().filter(|handle| handle.subtask.0 == self.subtask).map(|handle| self.whole(handle)).collect()
            }
            StateKind::OperatorList => self.cut(handles),
            StateKind::OperatorUnion => handles.iter().map(|handle| self.whole(handle)).collect(),
            StateKind::OperatorBroadcast => vec![self.whole(handles[self.subtask as usize % handles.len()])],
        }
    }

    fn whole(&self, handle: &StateHandle) -> StateAssignment {
        self.part(handle, 0..handle.rows)
    }

    fn part(&self, handle: &StateHandle, entries: Range<u64>) -> StateAssignment {
        StateAssignment { state: handle.clone(), max_parallelism: self.max_parallelism, entries }
    }

    /// This subtask's piece of all the lists, one behind another.
    fn cut(&self, lists: &[&StateHandle]) -> Vec<StateAssignment> {
        let wanted = split(lists.iter().map(|handle| handle.rows).sum(), self.subtask, self.vertex.parallelism);
        let mut assigned = Vec::new();
        let mut start = 0;
        for handle in lists {
            let from = wanted.start.clamp(start, start + handle.rows) - start;
            let to = wanted.end.clamp(start, start + handle.rows) - start;
            if from < to {
                assigned.push(self.part(handle, from..to));
            }
            start += handle.rows;
        }
        assigned
    }
}

#[cfg(test)]
mod tests;
