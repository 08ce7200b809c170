//! `Task::step`: pumps the chain, and takes new input only when nothing is under way.

use levada_common::ids::CheckpointId;
use levada_common::time::Instant;

use crate::error::EngineError;
use crate::task::{Environment, Progress, TaskEvent, TaskParts};

/// One parallel instance of a chain.
///
/// Contract: every method is called on the task's own thread, `new` included (sources and sinks are opened there, within the
/// shell's IO runtime). After an error only `discard` is called.
pub struct Task {
    events: Vec<TaskEvent>,
}

impl Task {
    /// Builds and opens everything: source, operators, sink.
    ///
    /// Errors: as the connectors and operators have them; an unknown connector or an expression that does not compile is
    /// Internal (the plan was checked).
    pub fn new(_env: &Environment, _parts: TaskParts) -> Result<Task, EngineError> {
        Ok(Task { events: Vec::new() })
    }

    /// Does a bounded piece of work: takes in about one batch, or sends on a few.
    pub fn step(&mut self, _now: Instant) -> Result<Progress, EngineError> {
        Ok(Progress::Finished)
    }

    /// The coordinator wants a snapshot of a task without live input: a source, or one that is finishing. The next steps take it.
    ///
    /// A checkpoint that the task has a snapshot of already, or a newer one, is left alone.
    pub fn trigger(&mut self, _checkpoint: CheckpointId) {}

    /// The checkpoint is complete (the sink commits) or was given up (its alignment is released). `last`: it was the job's last
    /// one, the task is finished.
    pub fn notify(&mut self, _checkpoint: CheckpointId, _completed: bool, _last: bool) -> Result<(), EngineError> {
        Ok(())
    }

    /// What has to leave the task, in order. To be asked after each `step` and `notify`.
    pub fn take_events(&mut self) -> Vec<TaskEvent> {
        std::mem::take(&mut self.events)
    }

    /// The task was cancelled or failed: the sink removes what was never prepared.
    pub fn discard(&mut self) {}
}
