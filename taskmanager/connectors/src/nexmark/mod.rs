//! `nexmark`: the standard auction events, each a pure function of its number.
//!
//! Reading order: `declaration` (options, columns), `event` (what every column is made of), `bid`, `auction`, `person`
//! (the columns), `source` (runs of numbers to batches).

mod auction;
mod bid;
pub mod declaration;
mod event;
mod person;
pub mod source;
#[cfg(test)]
mod tests;
