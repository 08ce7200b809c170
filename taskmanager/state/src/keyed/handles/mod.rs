//! What can be done with each type of state, under its handle.
//!
//! A handle names a state; every access goes to the current key (and window) of the `KeyedState` it is given. Each answers
//! `StateResult`: it fails without a current key, without a window where the state is windowed, and with the states of another
//! operator.

pub(crate) mod aggregating;
pub(crate) mod folding;
pub(crate) mod list;
pub(crate) mod map;
pub(crate) mod reducing;
pub(crate) mod value;
