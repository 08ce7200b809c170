//! Descriptors of states that belong to keys, one for each shape.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use levada_common::checkpoint::StateKind;
use levada_common::state_schema::StateShape;

use super::signature::RustType;
use super::{
    AggregateFunction, AggregatingState, BindError, Binder, Descriptor, Fold, FoldingState, ListState, MapState, Reduce,
    ReducingState, Signature, Ttl, ValueState,
};
use crate::keyed::{AnyState, TableInfo, handles};
use crate::types::StateType;

/// What all descriptors of keyed states have in common.
macro_rules! keyed_descriptor {
    ($descriptor:ident<$($type:ident: $bound:ident),+>, $handle:ident) => {
        impl<$($type: $bound),+> $descriptor<$($type),+> {
            /// With entries that expire.
            #[must_use]
            pub fn with_ttl(mut self, ttl: Ttl) -> Self {
                self.ttl = Some(ttl);
                self
            }

            /// With entries per window: every access then goes to the current namespace too.
            #[must_use]
            pub fn per_window(mut self) -> Self {
                self.windowed = true;
                self
            }

            /// How long entries live; for ever where there is none.
            pub fn ttl(&self) -> Option<Ttl> {
                self.ttl
            }

            /// Binds it.
            ///
            /// Errors: a bad name, types without columns, another descriptor under the name; the author's fault.
            pub fn bind(&self, binder: &mut dyn Binder) -> Result<$handle<$($type),+>, BindError> {
                binder.bind(self).map($handle::new)
            }
        }

        impl<$($type: $bound),+> fmt::Debug for $descriptor<$($type),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.signature() {
                    Ok(signature) => write!(f, "{}: {signature}", self.name),
                    Err(error) => write!(f, "{}: {error}", self.name),
                }
            }
        }
    };
}

/// One value a key.
#[derive(Clone)]
pub struct ValueStateDescriptor<T: StateType> {
    name: Arc<str>,
    ttl: Option<Ttl>,
    windowed: bool,
    default: Option<T>,
}

impl<T: StateType> ValueStateDescriptor<T> {
    /// Without a default: what was not set is `None`.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ttl: None, windowed: false, default: None }
    }

    /// What a value that was not set reads as. It is never stored: a program with another default reads the other one.
    #[must_use]
    pub fn with_default(mut self, default: T) -> Self {
        self.default = Some(default);
        self
    }

    /// What a value that was not set reads as.
    pub fn default(&self) -> Option<&T> {
        self.default.as_ref()
    }
}

impl<T: StateType> Descriptor for ValueStateDescriptor<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        let signature = Signature::new::<T>(&self.name, StateKind::Keyed, StateShape::Value)?;
        signature.with_life(self.ttl, self.windowed)?.with_default(self.default.as_ref())
    }

    fn keyed_state(&self, info: TableInfo) -> Option<Box<dyn AnyState>> {
        Some(handles::value::make(self, info))
    }
}

keyed_descriptor!(ValueStateDescriptor<T: StateType>, ValueState);

/// What a map's key must be.
pub trait MapKeyType: StateType + Hash + Eq {}

impl<K: StateType + Hash + Eq> MapKeyType for K {}

/// A list a key, in the order of adding.
#[derive(Clone)]
pub struct ListStateDescriptor<T: StateType> {
    name: Arc<str>,
    ttl: Option<Ttl>,
    windowed: bool,
    element: PhantomData<fn() -> T>,
}

impl<T: StateType> ListStateDescriptor<T> {
    /// A list that is empty at first.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ttl: None, windowed: false, element: PhantomData }
    }
}

impl<T: StateType> Descriptor for ListStateDescriptor<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        Signature::new::<T>(&self.name, StateKind::Keyed, StateShape::List)?.with_life(self.ttl, self.windowed)
    }

    fn keyed_state(&self, info: TableInfo) -> Option<Box<dyn AnyState>> {
        Some(handles::list::make(self, info))
    }
}

keyed_descriptor!(ListStateDescriptor<T: StateType>, ListState);

/// A map a key. `()` as its value makes it a set.
#[derive(Clone)]
pub struct MapStateDescriptor<K: StateType, V: StateType> {
    name: Arc<str>,
    ttl: Option<Ttl>,
    windowed: bool,
    entry: PhantomData<fn() -> (K, V)>,
}

impl<K: MapKeyType, V: StateType> MapStateDescriptor<K, V> {
    /// A map that is empty at first.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ttl: None, windowed: false, entry: PhantomData }
    }
}

impl<K: MapKeyType, V: StateType> Descriptor for MapStateDescriptor<K, V> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        Signature::new::<V>(&self.name, StateKind::Keyed, StateShape::Map)?
            .with_map_key::<K>()?
            .with_life(self.ttl, self.windowed)
    }

    fn keyed_state(&self, info: TableInfo) -> Option<Box<dyn AnyState>> {
        Some(handles::map::make(self, info))
    }
}

keyed_descriptor!(MapStateDescriptor<K: MapKeyType, V: StateType>, MapState);

/// One value a key, into which what is added is reduced; the first that is added is the value.
#[derive(Clone)]
pub struct ReducingStateDescriptor<T: StateType> {
    name: Arc<str>,
    ttl: Option<Ttl>,
    windowed: bool,
    reduce: Reduce<T>,
    function: RustType,
}

impl<T: StateType> ReducingStateDescriptor<T> {
    /// `reduce` takes a second value into the first.
    pub fn new<F: Fn(&mut T, T) + Send + Sync + 'static>(name: &str, reduce: F) -> Self {
        Self { name: name.into(), ttl: None, windowed: false, reduce: Arc::new(reduce), function: RustType::of::<F>() }
    }

    /// The function.
    pub fn reduce(&self) -> &Reduce<T> {
        &self.reduce
    }
}

impl<T: StateType> Descriptor for ReducingStateDescriptor<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        let signature = Signature::new::<T>(&self.name, StateKind::Keyed, StateShape::Reducing)?;
        Ok(signature.with_life(self.ttl, self.windowed)?.with_function(self.function))
    }

    fn keyed_state(&self, info: TableInfo) -> Option<Box<dyn AnyState>> {
        Some(handles::reducing::make(self, info))
    }
}

keyed_descriptor!(ReducingStateDescriptor<T: StateType>, ReducingState);

/// One accumulator a key, into which what is added is aggregated. The accumulator is what is stored.
pub struct AggregatingStateDescriptor<A: AggregateFunction> {
    name: Arc<str>,
    ttl: Option<Ttl>,
    windowed: bool,
    function: Arc<A>,
}

impl<A: AggregateFunction> AggregatingStateDescriptor<A> {
    /// With this function.
    pub fn new(name: &str, function: A) -> Self {
        Self { name: name.into(), ttl: None, windowed: false, function: Arc::new(function) }
    }

    /// The function.
    pub fn function(&self) -> &Arc<A> {
        &self.function
    }
}

impl<A: AggregateFunction> Clone for AggregatingStateDescriptor<A> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), ttl: self.ttl, windowed: self.windowed, function: Arc::clone(&self.function) }
    }
}

impl<A: AggregateFunction> Descriptor for AggregatingStateDescriptor<A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        let signature = Signature::new::<A::Accumulator>(&self.name, StateKind::Keyed, StateShape::Aggregating)?;
        Ok(signature.with_life(self.ttl, self.windowed)?.with_function(RustType::of::<A>()))
    }

    fn keyed_state(&self, info: TableInfo) -> Option<Box<dyn AnyState>> {
        Some(handles::aggregating::make(self, info))
    }
}

keyed_descriptor!(AggregatingStateDescriptor<A: AggregateFunction>, AggregatingState);

/// One accumulator a key, into which what is added is folded, beginning with a given one. As aggregating state, but for inputs
/// that cannot be merged.
pub struct FoldingStateDescriptor<I: 'static, A: StateType> {
    name: Arc<str>,
    ttl: Option<Ttl>,
    windowed: bool,
    initial: A,
    fold: Fold<I, A>,
    function: RustType,
}

impl<I: 'static, A: StateType> FoldingStateDescriptor<I, A> {
    /// `fold` takes an input into the accumulator, which is `initial` at first.
    pub fn new<F: Fn(&mut A, I) + Send + Sync + 'static>(name: &str, initial: A, fold: F) -> Self {
        Self { name: name.into(), ttl: None, windowed: false, initial, fold: Arc::new(fold), function: RustType::of::<F>() }
    }

    /// What is folded into first. It is never stored: a program with another one begins new accumulators with that.
    pub fn initial(&self) -> &A {
        &self.initial
    }

    /// The function.
    pub fn fold(&self) -> &Fold<I, A> {
        &self.fold
    }
}

impl<I: 'static, A: StateType> Clone for FoldingStateDescriptor<I, A> {
    fn clone(&self) -> Self {
        let Self { name, ttl, windowed, initial, fold, function } = self;
        let (name, initial, fold) = (Arc::clone(name), initial.clone(), Arc::clone(fold));
        Self { name, ttl: *ttl, windowed: *windowed, initial, fold, function: *function }
    }
}

impl<I: 'static, A: StateType> Descriptor for FoldingStateDescriptor<I, A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> Result<Signature, BindError> {
        let signature = Signature::new::<A>(&self.name, StateKind::Keyed, StateShape::Folding)?.with_input(RustType::of::<I>());
        Ok(signature.with_life(self.ttl, self.windowed)?.with_default(Some(&self.initial))?.with_function(self.function))
    }

    fn keyed_state(&self, info: TableInfo) -> Option<Box<dyn AnyState>> {
        Some(handles::folding::make(self, info))
    }
}

keyed_descriptor!(FoldingStateDescriptor<I: Any, A: StateType>, FoldingState);
