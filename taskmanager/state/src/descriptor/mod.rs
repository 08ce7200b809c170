//! Descriptors: what a function says of a state before it uses it.
//!
//! A descriptor names a state, its types, its default or functions, and how long its entries live. Binding it gives the typed
//! handle under which the state is used; binding it to a [`Recorder`] only notes what it is, so that a TaskManager can declare
//! the states of its functions before anything runs. The program's descriptor always wins: a snapshot holds columns, never a
//! default or a function. Must never know where values are kept.
//!
//! Invariant: one name in one operator is one state; two descriptors that differ in anything are refused, both named.

mod binder;
mod error;
mod function;
mod handle;
mod keyed;
mod operator;
mod signature;
mod ttl;

pub use binder::{Binder, Bindings, Bound, Recorder};
pub use error::BindError;
pub use function::{AggregateFunction, Fold, Reduce};
pub use handle::{
    AggregatingState, BroadcastState, FoldingState, ListState, MapState, OperatorListState, ReducingState, StateId, ValueState,
};
pub use keyed::{
    AggregatingStateDescriptor, FoldingStateDescriptor, ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor,
    ValueStateDescriptor,
};
pub use operator::{BroadcastStateDescriptor, OperatorListDescriptor};
pub use signature::Signature;
pub use ttl::{Ttl, TtlTime, TtlUpdate};

use crate::keyed::{AnyState, TableInfo};
use crate::operator_state::OperatorTable;

/// Name of a value's columns: it alone, or before a point and a field's name.
pub const VALUE_COLUMN: &str = "value";

/// Name of the columns of a map's key.
pub const MAP_KEY_COLUMN: &str = "map_key";

/// A descriptor of any type.
pub trait Descriptor {
    /// The state's name.
    fn name(&self) -> &str;

    /// All of the descriptor that can be compared.
    ///
    /// Errors: a bad name, and types that have no columns.
    fn signature(&self) -> Result<Signature, BindError>;

    /// A table for the state where it is an operator's; `signature` is its own.
    fn operator_table(&self, _signature: &Signature) -> Option<Box<dyn OperatorTable>> {
        None
    }

    /// The state of an operator's keys that this describes, without entries; `None` for state that belongs to no key.
    fn keyed_state(&self, _info: TableInfo) -> Option<Box<dyn AnyState>> {
        None
    }
}

#[cfg(test)]
mod tests;
