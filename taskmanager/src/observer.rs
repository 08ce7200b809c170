//! What a benchmark may watch of a TaskManager; nothing else does.

use std::time::{Duration, Instant};

/// A step in which a task took rows in or handled a barrier.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The task's vertex.
    pub vertex: &'a str,
    /// Its parallel instance.
    pub subtask: u32,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// Rows that the vertex's first node took in (a source: read).
    pub rows: u64,
    /// The synchronous part of the snapshot that was taken in it, if one was.
    pub snapshot: Option<Duration>,
}

/// Is told of moments in the life of tasks. Contract: called on the task's thread; must not block.
pub trait Observer: Send + Sync {
    /// A source's task is about to take its first step.
    fn first_step(&self, vertex: &str, subtask: u32);

    /// A step has been taken.
    fn step(&self, _step: Step<'_>) {}
}
