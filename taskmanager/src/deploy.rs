//! Reads a deployment: what the JobManager wants to run here, checked before anything is started.

use std::collections::HashMap;
use std::sync::Arc;

use levada_common::fault::Failure;
use levada_common::ids::{AttemptId, CheckpointId, TaskId, VertexId};
use levada_common::plan::{PLAN_VERSION, Plan};
use levada_proto::convert::{ConvertError, RestoreState, attempt_from_ref, task_manager_id};
use levada_proto::v1;
use serde::Deserialize;

use crate::channels::Location;

/// A deployment, read.
#[derive(Debug)]
pub struct Deployment {
    /// The attempt.
    pub attempt: AttemptId,
    /// The job.
    pub plan: Arc<Plan>,
    /// The checkpoint that it is restored from.
    pub restored_from: Option<CheckpointId>,
    /// The tasks to run here.
    pub tasks: Vec<DeployedTask>,
    /// Where every task of the attempt runs.
    pub locations: HashMap<TaskId, Location>,
    /// Bytes planned for each channel between TaskManagers.
    pub window_bytes: u64,
}

/// A task to run here.
#[derive(Debug)]
pub struct DeployedTask {
    /// The task.
    pub task: TaskId,
    /// It had seen the end of its data.
    pub finished: bool,
    /// States to restore.
    pub states: Vec<RestoreState>,
    /// Splits of a source at a first start.
    pub splits: Vec<String>,
}

/// The attempt of a deployment and the tasks that it names: what a refusal is told about.
pub fn addressees(message: &v1::Deploy) -> Result<(AttemptId, Vec<TaskId>), ConvertError> {
    let attempt = attempt_from_ref(message.attempt.as_ref())?;
    let tasks = message.tasks.iter().map(|task| TaskId::new(VertexId(task.vertex), task.subtask)).collect();
    Ok((attempt, tasks))
}

/// Reads a deployment.
///
/// Errors: Internal: the two programs do not understand each other.
pub fn read(attempt: AttemptId, message: v1::Deploy) -> Result<Deployment, Failure> {
    let refused = |error: ConvertError| Failure::internal(format!("the deployment cannot be read: {error}"));
    let plan = read_plan(&message.plan_json)?;
    let mut locations = HashMap::new();
    for location in message.locations {
        let task_manager = task_manager_id(&location.task_manager_id).map_err(refused)?;
        let task = TaskId::new(VertexId(location.vertex), location.subtask);
        locations.insert(task, Location { task_manager, data_address: location.data_address });
    }
    let mut tasks = Vec::with_capacity(message.tasks.len());
    for task in message.tasks {
        let id = TaskId::new(VertexId(task.vertex), task.subtask);
        let vertex = plan.vertices.get(task.vertex as usize);
        if vertex.is_none_or(|vertex| task.subtask >= vertex.parallelism) {
            return Err(Failure::internal(format!("the deployment names task {id}, which the plan does not have")));
        }
        let states = task.states.into_iter().map(RestoreState::try_from).collect::<Result<_, _>>().map_err(refused)?;
        tasks.push(DeployedTask { task: id, finished: task.finished, states, splits: task.splits });
    }
    let restored_from = (message.restored_checkpoint != 0).then_some(CheckpointId(message.restored_checkpoint));
    let window_bytes = message.channel_window_bytes;
    Ok(Deployment { attempt, plan: Arc::new(plan), restored_from, tasks, locations, window_bytes })
}

fn read_plan(json: &[u8]) -> Result<Plan, Failure> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let unreadable = |error| Failure::internal(format!("the deployment's plan cannot be read: {error}"));
    let Versioned { version } = serde_json::from_slice(json).map_err(unreadable)?;
    if version != PLAN_VERSION {
        return Err(Failure::internal(format!(
            "the deployment's plan has version {version}, this TaskManager reads {PLAN_VERSION}; run the same version of Levada everywhere"
        )));
    }
    serde_json::from_slice(json).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_plan_version_is_refused_naming_both() {
        let failure = read_plan(br#"{"version": 7, "what": "a later release says"}"#).unwrap_err();
        assert!(failure.message.contains("version 7") && failure.message.contains("reads 1"), "{failure}");
        assert!(read_plan(b"{}").is_err());
    }
}
