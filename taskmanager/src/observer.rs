//! What a benchmark may watch of a TaskManager; nothing else does.

/// Is told of moments in the life of tasks. Contract: called on the task's thread; must not block.
pub trait Observer: Send + Sync {
    /// A source's task is about to take its first step.
    fn first_step(&self, vertex: &str, subtask: u32);
}
