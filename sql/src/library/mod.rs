//! DataFusion's aggregates, for what the engine has none of its own.
//!
//! `names` says which there are, `call` types a call of one and lays out its state, `adapter` computes it: as pure functions of
//! columns, so that DataFusion keeps nothing between two batches. Invariant: the names of a state's columns have DataFusion's major
//! version, so that no other one reads them.

mod adapter;
mod call;
mod names;
#[cfg(test)]
mod tests;

pub(crate) use call::{Argument, LibraryRequest};
pub(crate) use names::{is_aggregate, names};

/// DataFusion and its major version, in the names of states.
const LIBRARY: &str = "datafusion55";
