//! The JobManager in this process, with TaskManagers that only pretend.

mod checkpoints;
mod fake;
mod limits;
mod registration;
mod submission;
