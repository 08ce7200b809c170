//! The pure, synchronous core of a task: gates, alignment, watermarks, operators, aggregates, windows.
//!
//! Must never know: clocks, IO, async, randomness, threads, DataFusion, gRPC. The shell (`levada-taskmanager`) calls
//! `Task::step` on the task's own thread and hands in what it may see of the world.

pub mod aggregate;
pub mod channel;
pub mod element;
pub mod error;
pub mod expr;
pub mod function;
pub mod gate;
pub mod harness;
pub mod metrics;
pub mod operator;
pub mod operators;
pub mod sink;
pub mod source;
pub mod task;
#[cfg(test)]
mod testing;
