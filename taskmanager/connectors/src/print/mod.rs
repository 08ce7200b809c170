//! `print`: a line per row on the TaskManager's standard output.

pub mod declaration;
pub mod sink;
mod writer;
