//! A task: one parallel instance of a chain, from its source or input channels to its sink or output channels.
//!
//! Must never know: who calls it, when, or on which thread it runs. `step` does a bounded piece of work and says what it
//! waits for; whatever has to leave the task waits in `take_events`.
//! Invariant: rows and signals leave in the order in which they came, whatever stops the task in between.

mod build;
pub(crate) mod entries;
mod event;
mod gate_head;
mod head;
mod pace;
mod parts;
mod run;
mod silence;
mod split_silence;
mod tail;

pub use event::{Progress, TaskEvent};
pub use parts::{Environment, InputChannel, OutputEdge, TaskParts};
pub use run::Task;
