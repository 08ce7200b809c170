//! The tasks that run here, for whoever only looks: heartbeats and metrics.

use std::sync::{Arc, Mutex, PoisonError};

use levada_common::ids::AttemptId;

use crate::task::TaskHandle;

/// The tasks that run here. Written by the manager alone.
#[derive(Debug, Default)]
pub struct Board {
    tasks: Mutex<Vec<Arc<TaskHandle>>>,
}

impl Board {
    /// The tasks now, in order of deployment.
    pub fn tasks(&self) -> Vec<Arc<TaskHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the tasks of an attempt.
    pub fn add(&self, tasks: impl IntoIterator<Item = Arc<TaskHandle>>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
    }

    /// Removes the tasks of an attempt.
    pub fn remove(&self, attempt: AttemptId) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).retain(|task| task.attempt != attempt);
    }
}
