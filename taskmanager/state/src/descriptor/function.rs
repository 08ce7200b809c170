//! The functions that some states have: they say how what is added changes what is kept.

use std::sync::Arc;

use crate::types::StateType;

/// Takes a second value into the first.
pub type Reduce<T> = Arc<dyn Fn(&mut T, T) + Send + Sync>;

/// Takes an input into an accumulator.
pub type Fold<I, A> = Arc<dyn Fn(&mut A, I) + Send + Sync>;

/// Takes inputs into an accumulator and gives an output: what an `AggregatingState` does with what is added.
///
/// Contract: `add` and `merge` depend on their arguments alone, and adding then merging gives what adding in any order gives, or
/// the author can live with the difference.
pub trait AggregateFunction: Send + Sync + 'static {
    /// What is added.
    type Input;
    /// What is kept.
    type Accumulator: StateType;
    /// What is read.
    type Output;

    /// The accumulator of nothing.
    fn create(&self) -> Self::Accumulator;

    /// Takes an input in.
    fn add(&self, accumulator: &mut Self::Accumulator, input: Self::Input);

    /// Takes another accumulator in.
    fn merge(&self, accumulator: &mut Self::Accumulator, other: Self::Accumulator);

    /// What was added so far comes to.
    fn read(&self, accumulator: &Self::Accumulator) -> Self::Output;
}
