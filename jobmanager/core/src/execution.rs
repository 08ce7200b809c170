//! The tasks of one attempt: where each runs and how far it is.
//!
//! Invariant: a task that ended stays ended.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::ids::{AttemptId, TaskId, TaskManagerId};
use levada_common::plan::Plan;

use crate::event::TaskManagerInfo;
use crate::placement::Placement;
use crate::status::TaskPhase;

/// One attempt, deployed.
#[derive(Debug)]
pub struct Execution {
    id: AttemptId,
    tasks: BTreeMap<TaskId, Place>,
    addresses: BTreeMap<TaskManagerId, String>,
    lost: BTreeSet<TaskManagerId>,
}

#[derive(Debug)]
struct Place {
    task_manager: TaskManagerId,
    phase: TaskPhase,
}

/// Every task of the plan, by vertex and subtask.
pub fn tasks(plan: &Plan) -> impl Iterator<Item = TaskId> {
    plan.vertices.iter().flat_map(|vertex| (0..vertex.parallelism).map(|subtask| TaskId::new(vertex.id, subtask)))
}

/// The task as messages name it.
pub fn describe(plan: &Plan, task: TaskId) -> String {
    format!("\"{}\" subtask {}", plan.vertex(task.vertex).name, task.subtask)
}

impl Execution {
    /// The attempt `id`, deployed as `placement` says.
    pub fn new(id: AttemptId, plan: &Plan, placement: &Placement, task_managers: &[TaskManagerInfo]) -> Self {
        let tasks: BTreeMap<TaskId, Place> =
            tasks(plan).map(|task| (task, Place { task_manager: placement.of(task), phase: TaskPhase::Deploying })).collect();
        let addresses = task_managers.iter().map(|info| (info.id, info.data_address.clone())).collect();
        Self { id, tasks, addresses, lost: BTreeSet::new() }
    }

    /// Which attempt this is.
    pub fn id(&self) -> AttemptId {
        self.id
    }

    /// How far the task is; `None` where the plan has no such task.
    pub fn phase(&self, task: TaskId) -> Option<TaskPhase> {
        self.tasks.get(&task).map(|place| place.phase)
    }

    /// Where the task was deployed.
    pub fn task_manager(&self, task: TaskId) -> Option<TaskManagerId> {
        self.tasks.get(&task).map(|place| place.task_manager)
    }

    /// The address of a TaskManager, for messages.
    pub fn address(&self, id: TaskManagerId) -> &str {
        self.addresses.get(&id).map_or("?", String::as_str)
    }

    /// The task is in this phase now. Answers false where that changes nothing: an ended task stays ended, and none goes back.
    pub fn advance(&mut self, task: TaskId, phase: TaskPhase) -> bool {
        let Some(place) = self.tasks.get_mut(&task) else { return false };
        let forward = match phase {
            TaskPhase::Created | TaskPhase::Deploying => false,
            TaskPhase::Running => place.phase == TaskPhase::Deploying,
            TaskPhase::Finishing => matches!(place.phase, TaskPhase::Deploying | TaskPhase::Running),
            TaskPhase::Finished | TaskPhase::Failed | TaskPhase::Canceled | TaskPhase::Lost => !place.phase.is_ended(),
        };
        if forward {
            place.phase = phase;
        }
        forward
    }

    /// The TaskManager is gone. Answers whether it had tasks of this attempt, and the first of them that had not ended.
    pub fn lose(&mut self, id: TaskManagerId) -> (bool, Option<TaskId>) {
        let mut first = None;
        let mut had_tasks = false;
        for (task, place) in self.tasks.iter_mut().filter(|(_, place)| place.task_manager == id) {
            had_tasks = true;
            if !place.phase.is_ended() {
                place.phase = TaskPhase::Lost;
                first = first.or(Some(*task));
            }
        }
        if had_tasks {
            self.lost.insert(id);
        }
        (had_tasks, first)
    }

    /// TaskManagers that have tasks of this attempt and are not lost.
    pub fn task_managers(&self) -> Vec<TaskManagerId> {
        let all: BTreeSet<TaskManagerId> = self.tasks.values().map(|place| place.task_manager).collect();
        all.difference(&self.lost).copied().collect()
    }

    /// Tasks that no barrier reaches through a stream: sources, and those whose inputs have all ended.
    pub fn without_live_input(&self, plan: &Plan) -> Vec<(TaskManagerId, TaskId)> {
        self.tasks
            .iter()
            .filter(|(task, place)| place.phase == TaskPhase::Finishing || plan.vertex(task.vertex).source.is_some())
            .map(|(task, place)| (place.task_manager, *task))
            .collect()
    }

    /// Sources that have not seen the end of their data.
    pub fn sources(&self, plan: &Plan) -> Vec<(TaskManagerId, TaskId)> {
        let reads = |task: &TaskId, place: &Place| place.phase == TaskPhase::Running && plan.vertex(task.vertex).source.is_some();
        let sources = self.tasks.iter().filter(|(task, place)| reads(task, place));
        sources.map(|(task, place)| (place.task_manager, *task)).collect()
    }

    /// Whether every task works or has seen the end of its data.
    pub fn is_live(&self) -> bool {
        self.tasks.values().all(|place| place.phase.is_live())
    }

    /// Whether every task has seen the end of its data.
    pub fn is_finishing(&self) -> bool {
        self.tasks.values().all(|place| place.phase == TaskPhase::Finishing)
    }

    /// Whether every task is done and published.
    pub fn is_finished(&self) -> bool {
        self.tasks.values().all(|place| place.phase == TaskPhase::Finished)
    }

    /// Whether nothing of the attempt is left anywhere, as far as one can know.
    pub fn is_ended(&self) -> bool {
        self.tasks.values().all(|place| place.phase.is_ended())
    }

    /// The tasks in order.
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::place;
    use crate::testing::{attempt, exchange, task_manager};

    #[test]
    fn an_ended_task_stays_ended() {
        let plan = exchange(2);
        let infos = [task_manager(1, 1), task_manager(2, 1)];
        let mut execution = Execution::new(attempt(1), &plan, &place(&plan, &infos).expect("fits"), &infos);
        let task = TaskId::new(plan.vertices[1].id, 1);
        assert!(execution.advance(task, TaskPhase::Finishing));
        assert!(!execution.advance(task, TaskPhase::Running), "it goes back");
        assert_eq!(execution.lose(infos[1].id).1, Some(TaskId::new(plan.vertices[0].id, 1)));
        assert_eq!(execution.phase(task), Some(TaskPhase::Lost));
        assert!(!execution.advance(task, TaskPhase::Finished));
        assert_eq!(execution.task_managers(), [infos[0].id]);
        assert!(!execution.is_ended());
    }

    #[test]
    fn sources_and_finishing_tasks_are_triggered() {
        let plan = exchange(2);
        let infos = [task_manager(1, 2)];
        let mut execution = Execution::new(attempt(1), &plan, &place(&plan, &infos).expect("fits"), &infos);
        let triggered = |execution: &Execution| -> Vec<String> {
            execution.without_live_input(&plan).iter().map(|(_, task)| task.to_string()).collect()
        };
        assert_eq!(triggered(&execution), ["0.0", "0.1"]);
        execution.advance(TaskId::new(plan.vertices[0].id, 0), TaskPhase::Finishing);
        execution.advance(TaskId::new(plan.vertices[1].id, 1), TaskPhase::Finishing);
        assert_eq!(triggered(&execution), ["0.0", "0.1", "1.1"]);
    }
}
