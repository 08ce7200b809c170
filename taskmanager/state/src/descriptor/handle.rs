//! Typed handles: a place among the states that were bound, and the type of what stands there.
//!
//! A handle is copied freely and holds nothing; it is used with the states that it was bound to, and with no others.

use std::marker::PhantomData;

/// The place of a state among those that were bound to the same binder, in the order of binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub usize);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident<$($type:ident),+>;)*) => {$(
        $(#[$doc])*
        pub struct $name<$($type),+> {
            id: StateId,
            types: PhantomData<fn($($type),+)>,
        }

        impl<$($type),+> $name<$($type),+> {
            /// The handle of the state at this place.
            pub(crate) fn new(id: StateId) -> Self {
                Self { id, types: PhantomData }
            }

            /// The state's place.
            pub fn id(self) -> StateId {
                self.id
            }
        }

        impl<$($type),+> Clone for $name<$($type),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($type),+> Copy for $name<$($type),+> {}

        impl<$($type),+> std::fmt::Debug for $name<$($type),+> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.id.0)
            }
        }

        impl<$($type),+> PartialEq for $name<$($type),+> {
            fn eq(&self, other: &Self) -> bool {
                self.id == other.id
            }
        }

        impl<$($type),+> Eq for $name<$($type),+> {}
    )*};
}

handles! {
    /// One value a key.
    ValueState<T>;
    /// A list a key.
    ListState<T>;
    /// A map a key.
    MapState<K, V>;
    /// One value a key, into which what is added is reduced.
    ReducingState<T>;
    /// One accumulator a key, into which what is added is aggregated.
    AggregatingState<A>;
    /// One accumulator a key, into which what is added is folded.
    FoldingState<I, A>;
    /// A list of an operator subtask.
    OperatorListState<T>;
    /// A map that is the same in every subtask of an operator.
    BroadcastState<K, V>;
}
