//! Who gets which state of a checkpoint.
//!
//! Keyed state goes to every subtask whose key groups it holds some of. The operator lists of one state are concatenated in
//! subtask order and split in contiguous pieces, sizes differing by at most one; where the parallelism is as it was each subtask
//! gets its own list back, so that the mark *finished* stays with the positions that it speaks of. With another parallelism a
//! task is finished only where all were, since unfinished positions may come to anyone.

use std::collections::BTreeMap;
use std::ops::Range;

use levada_common::checkpoint::{CheckpointMetadata, StateHandle, StateKind, TaskSnapshot};
use levada_common::ids::{TaskId, Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{Plan, Vertex};

use crate::event::StateAssignment;

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
    #[error("checkpoint {checkpoint} has {found} key groups, the job has {expected} (max-parallelism)")]
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

/// What each task starts from; a task that is not named starts from nothing.
pub fn assign(plan: &Plan, checkpoint: &CheckpointMetadata) -> Result<BTreeMap<TaskId, Restored>, RestoreError> {
    if checkpoint.max_parallelism != plan.max_parallelism {
        return Err(RestoreError::MaxParallelism {
            checkpoint: checkpoint.id.0,
            found: checkpoint.max_parallelism,
            expected: plan.max_parallelism,
        });
    }
    let mut restored: BTreeMap<TaskId, Restored> = BTreeMap::new();
    for vertex in &plan.vertices {
        let old: Vec<&TaskSnapshot> = checkpoint.tasks.iter().filter(|task| task.task.vertex == vertex.id).collect();
        for (task, finished) in finished_marks(vertex, &old) {
            restored.entry(task).or_default().finished = finished;
        }
    }
    for ((vertex, _, _), handles) in by_state(plan, checkpoint)? {
        let vertex = plan.vertex(vertex);
        let old_parallelism = checkpoint.tasks.iter().filter(|task| task.task.vertex == vertex.id).count() as u32;
        for subtask in 0..vertex.parallelism {
            let states = &mut restored.entry(TaskId::new(vertex.id, subtask)).or_default().states;
            states.extend(pieces(vertex, subtask, old_parallelism, plan.max_parallelism, &handles));
        }
    }
    Ok(restored)
}

/// The piece `index` of `count` when `total` entries are split in contiguous pieces.
pub fn split(total: u64, index: u32, count: u32) -> Range<u64> {
    let at = |index: u32| (u128::from(total) * u128::from(index) / u128::from(count)) as u64;
    at(index)..at(index + 1)
}

fn finished_marks(vertex: &Vertex, old: &[&TaskSnapshot]) -> Vec<(TaskId, bool)> {
    let same = old.len() == vertex.parallelism as usize;
    let all = !old.is_empty() && old.iter().all(|task| task.finished);
    (0..vertex.parallelism)
        .map(|subtask| {
            let task = TaskId::new(vertex.id, subtask);
            let finished = if same { old.iter().any(|old| old.task == task && old.finished) } else { all };
            (task, finished)
        })
        .collect()
}

/// The checkpoint's handles by state, each list in subtask order.
fn by_state<'a>(
    plan: &Plan,
    checkpoint: &'a CheckpointMetadata,
) -> Result<BTreeMap<StateKey<'a>, Vec<&'a StateHandle>>, RestoreError> {
    let mut states: BTreeMap<StateKey<'a>, Vec<&'a StateHandle>> = BTreeMap::new();
    for task in &checkpoint.tasks {
        for handle in &task.states {
            let vertex = owner(plan, task.task.vertex, &handle.uid).ok_or_else(|| RestoreError::UnknownOperator {
                checkpoint: checkpoint.id.0,
                uid: handle.uid.clone(),
                state: handle.name.clone(),
            })?;
            states.entry((vertex, &handle.uid, &handle.name)).or_default().push(handle);
        }
    }
    for handles in states.values_mut() {
        handles.sort_by_key(|handle| handle.subtask);
    }
    Ok(states)
}

/// The vertex that has the operator: the one that wrote the state, where it still has it (both halves of a two-phase aggregate
/// share a name).
fn owner(plan: &Plan, wrote: VertexId, uid: &Uid) -> Option<VertexId> {
    let has = |vertex: &&Vertex| {
        vertex.source.as_ref().is_some_and(|source| source.uid == *uid)
            || vertex.operators.iter().any(|operator| operator.uid == *uid)
            || vertex.sink.as_ref().is_some_and(|sink| sink.uid == *uid)
    };
    let same = plan.vertices.get(wrote.0 as usize).filter(has);
    same.or_else(|| plan.vertices.iter().find(has)).map(|vertex| vertex.id)
}

/// The pieces of one state that a subtask gets.
fn pieces(
    vertex: &Vertex,
    subtask: u32,
    old_parallelism: u32,
    max_parallelism: u32,
    handles: &[&StateHandle],
) -> Vec<StateAssignment> {
    let whole = |handle: &StateHandle| StateAssignment { state: handle.clone(), entries: 0..handle.rows };
    if old_parallelism == vertex.parallelism {
        return handles.iter().filter(|handle| handle.subtask.0 == subtask).map(|handle| whole(handle)).collect();
    }
    let (keyed, lists): (Vec<&StateHandle>, Vec<&StateHandle>) =
        handles.iter().partition(|handle| handle.kind == StateKind::Keyed);
    let groups = KeyGroupRange::of_subtask(subtask, vertex.parallelism, max_parallelism);
    let mut assigned: Vec<StateAssignment> =
        keyed.into_iter().filter(|handle| handle.key_groups.intersects(groups)).map(whole).collect();
    let wanted = split(lists.iter().map(|handle| handle.rows).sum(), subtask, vertex.parallelism);
    let mut start = 0;
    for handle in lists {
        let from = wanted.start.clamp(start, start + handle.rows) - start;
        let to = wanted.end.clamp(start, start + handle.rows) - start;
        if from < to {
            assigned.push(StateAssignment { state: handle.clone(), entries: from..to });
        }
        start += handle.rows;
    }
    assigned
}

#[cfg(test)]
mod tests;
