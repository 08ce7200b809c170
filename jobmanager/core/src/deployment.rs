//! Puts a deployment together: placement, restored state or first splits, for every task.

use std::collections::BTreeMap;

use levada_common::ids::TaskId;
use levada_common::plan::Plan;

use crate::event::TaskDeployment;
use crate::execution::tasks;
use crate::placement::Placement;
use crate::restore::{RestoreError, RestorePoint, assign, knows, split};

/// The deployments of an attempt, restored from `point`. A source that no snapshot knows begins with its `splits`.
pub fn deployments(
    plan: &Plan,
    placement: &Placement,
    point: Option<RestorePoint<'_>>,
    splits: &BTreeMap<u32, Vec<String>>,
) -> Result<Vec<TaskDeployment>, RestoreError> {
    let mut restored = point.map(|point| assign(plan, point.metadata)).transpose()?.unwrap_or_default();
    let is_known = |task: TaskId| match (point, &plan.vertex(task.vertex).source) {
        (Some(point), Some(source)) => knows(point.metadata, &source.uid),
        _ => false,
    };
    let deploy = |task: TaskId| {
        let from = restored.remove(&task).unwrap_or_default();
        let splits = if is_known(task) { Vec::new() } else { first_splits(plan, task, splits) };
        let finished = from.finished || point.is_some_and(|point| point.stopped);
        TaskDeployment { task, task_manager: placement.of(task), finished, states: from.states, splits }
    };
    Ok(tasks(plan).map(deploy).collect())
}

/// A contiguous piece of the source's splits, as a restore with another parallelism would give.
fn first_splits(plan: &Plan, task: TaskId, splits: &BTreeMap<u32, Vec<String>>) -> Vec<String> {
    let Some(all) = splits.get(&task.vertex.0) else { return Vec::new() };
    let piece = split(all.len() as u64, task.subtask.0, plan.vertex(task.vertex).parallelism);
    all[piece.start as usize..piece.end as usize].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::place;
    use crate::testing::{exchange, task_manager};

    #[test]
    fn first_splits_are_given_out_once() {
        let plan = exchange(3);
        let placement = place(&plan, &[task_manager(1, 3)]).expect("fits");
        let splits: Vec<String> = (0..7).map(|split| format!("split {split}")).collect();
        let tasks = deployments(&plan, &placement, None, &BTreeMap::from([(0, splits.clone())])).expect("fits");
        assert_eq!(tasks.len(), 6);
        assert_eq!(tasks.iter().flat_map(|task| task.splits.clone()).collect::<Vec<_>>(), splits);
        assert!(tasks.iter().filter(|task| task.task.vertex.0 == 1).all(|task| task.splits.is_empty()));
    }
}
