//! Ids: text and numbers on the wire, types behind it.

use levada_common::ids::{Attempt, AttemptId, Epoch, JobId, TaskId, TaskManagerId, VertexId};

use super::{ConvertError, required};
use crate::v1;

/// Reads a job's id.
pub fn job_id(text: &str) -> Result<JobId, ConvertError> {
    text.parse().map_err(|_| ConvertError::Bad { field: "job_id", found: shortened(text), allowed: "32 hex digits" })
}

/// Reads a TaskManager's id.
pub fn task_manager_id(text: &str) -> Result<TaskManagerId, ConvertError> {
    text.parse().map_err(|_| ConvertError::Bad { field: "task_manager_id", found: shortened(text), allowed: "32 hex digits" })
}

/// An attempt as it travels.
pub fn attempt_to_ref(attempt: AttemptId) -> v1::AttemptRef {
    v1::AttemptRef { job_id: attempt.job.to_string(), attempt: attempt.attempt.0, epoch: attempt.epoch.0 }
}

/// Reads an attempt.
pub fn attempt_from_ref(message: Option<&v1::AttemptRef>) -> Result<AttemptId, ConvertError> {
    let message = required(message, "attempt")?;
    Ok(AttemptId { job: job_id(&message.job_id)?, attempt: Attempt(message.attempt), epoch: Epoch(message.epoch) })
}

/// A task of an attempt as it travels.
pub fn task_to_ref(attempt: AttemptId, task: TaskId) -> v1::TaskRef {
    v1::TaskRef { attempt: Some(attempt_to_ref(attempt)), vertex: task.vertex.0, subtask: task.subtask.0 }
}

/// Reads a task of an attempt.
pub fn task_from_ref(message: Option<&v1::TaskRef>) -> Result<(AttemptId, TaskId), ConvertError> {
    let message = required(message, "task")?;
    let attempt = attempt_from_ref(message.attempt.as_ref())?;
    Ok((attempt, TaskId::new(VertexId(message.vertex), message.subtask)))
}

/// A task's place in its job as it travels.
pub fn task_index(task: TaskId) -> v1::TaskIndex {
    v1::TaskIndex { vertex: task.vertex.0, subtask: task.subtask.0 }
}

/// Reads a task's place in its job.
pub fn task_of_index(message: &v1::TaskIndex) -> TaskId {
    TaskId::new(VertexId(message.vertex), message.subtask)
}

/// What of a foreign text goes into a message.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_back_as_it_went() {
        let attempt = AttemptId { job: JobId::from_u128(7), attempt: Attempt(3), epoch: Epoch(2) };
        let task = TaskId::new(VertexId(4), 1);
        let message = task_to_ref(attempt, task);
        assert_eq!(task_from_ref(Some(&message)).unwrap(), (attempt, task));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        assert_eq!(task_from_ref(None).unwrap_err().to_string(), "the message has no `task`");
        let error = job_id("x").unwrap_err();
        assert_eq!(error.to_string(), "the message's `job_id` is \"x\"; allowed: 32 hex digits");
        assert!(job_id(&"ä".repeat(100_000)).unwrap_err().to_string().len() < 300);
    }
}
