//! Descriptors of states that belong to an operator's subtask, not to keys.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use levada_common::checkpoint::StateKind;
use levada_common::state_schema::StateShape;

use super::{BindError, Binder, BroadcastState, Descriptor, OperatorListState, Signature};
use crate::operator_state::{BroadcastTable, ListTable, OperatorTable};
use crate::types::StateType;

/// A list of an operator subtask.
///
/// *Split*: after a restore at the parallelism of the snapshot each subtask has its own list again; at another one the lists of
/// all subtasks are put behind each other and cut in pieces of even size. *Union*: every subtask has the lists of all.
#[derive(Clone)]
pub struct OperatorListDescriptor<T: StateType> {
    name: Arc<str>,
    kind: StateKind,
    element: PhantomData<fn() -> T>,
}

impl<T: StateType> OperatorListDescriptor<T> {
    /// A list that is split.
    pub fn split(name: &str) -> Self {
        Self { name: name.into(), kind: StateKind::OperatorList, element: PhantomData }
    }

    /// A list of which every subtask has all. What a subtask then writes is its own part again: it keeps what it owns and drops
    /// the rest, or its entries multiply with every restore.
    pub fn union(name: &str) -> Self {
        Self { kind: StateKind::OperatorUnion, ..Self::split(name) }
    }

    /// Binds it.
    ///
    /// Errors: a bad name, types without columns, another descriptor under the name; the author's fault.
    pub fn bind(&self, binder: &mut dyn Binder) -> Result<OperatorListState<T>, BindError> {
        binder.bind(self).map(OperatorListState::new)
    }
}

impl<T: StateType> Descriptor for OperatorListDescriptor<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        Signature::new::<T>(&self.name, self.kind, StateShape::List)
    }

    fn operator_table(&self, signature: &Signature) -> Option<Box<dyn OperatorTable>> {
        Some(Box::new(ListTable::<T>::new(signature)))
    }
}

impl<T: StateType> fmt::Debug for OperatorListDescriptor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.name, self.kind.name(), std::any::type_name::<T>())
    }
}

/// A map that is the same in every subtask of an operator, written by a broadcast input.
///
/// Contract: every subtask makes the same changes in the same order, or their maps differ and a restore at another parallelism
/// gives a new subtask any of them.
#[derive(Clone)]
pub struct BroadcastStateDescriptor<K: StateType, V: StateType> {
    name: Arc<str>,
    entry: PhantomData<fn() -> (K, V)>,
}

impl<K: StateType + Ord, V: StateType> BroadcastStateDescriptor<K, V> {
    /// A map that is empty at first.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), entry: PhantomData }
    }

    /// Binds it.
    ///
    /// Errors: a bad name, types without columns, another descriptor under the name; the author's fault.
    pub fn bind(&self, binder: &mut dyn Binder) -> Result<BroadcastState<K, V>, BindError> {
        binder.bind(self).map(BroadcastState::new)
    }
}

impl<K: StateType + Ord, V: StateType> Descriptor for BroadcastStateDescriptor<K, V> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        Signature::new::<V>(&self.name, StateKind::OperatorBroadcast, StateShape::Map)?.with_map_key::<K>()
    }

    fn operator_table(&self, signature: &Signature) -> Option<Box<dyn OperatorTable>> {
        Some(Box::new(BroadcastTable::<K, V>::new(signature)))
    }
}

impl<K: StateType, V: StateType> fmt::Debug for BroadcastStateDescriptor<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: broadcast of {}, {}", self.name, std::any::type_name::<K>(), std::any::type_name::<V>())
    }
}
