//! The keyed state of an operator: one set of keys, and beside it a table for each state.
//!
//! The keys of a batch become dense ids once. A state without windows or map keys is a vector by key id; all others are rows
//! found by (key id, window, map key). Values are typed, unboxed and owned by the task alone; a snapshot saves them before they
//! change and a cursor saves the rest (`frozen.rs`). A key that has nothing is forgotten. Must never know what an operator does
//! with its state, who reads its snapshots, nor what time it is but by being told.
//!
//! Invariant: what a snapshot holds is what the states were at its barrier, whatever is done to them afterwards (property tests
//! against a plain map).

mod at;
mod budget;
mod cell;
mod cells;
mod clock;
mod cold_rows;
mod cold_windows;
pub mod contract;
mod error;
mod frozen;
pub(crate) mod handles;
mod here;
mod known_windows;
mod list_ends;
mod overlay;
mod piece;
mod restore;
mod row_index;
mod rows;
mod state;
mod state_overlay;
mod state_snapshot;
mod stored_list;
mod table;
mod warm;

pub use at::Namespace;
pub use budget::{HeapBudget, HeapShare};
pub use clock::Clock;
pub use error::{StateError, StateName, StateResult};
pub use rows::AnyState;
pub use state::{KeyedOptions, KeyedState};
pub use table::TableInfo;

#[cfg(test)]
mod tests;
