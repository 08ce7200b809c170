//! A function's own variables as state: sugar over a list of one element.

use super::OperatorStates;
use crate::descriptor::{BindError, Binder, OperatorListDescriptor, OperatorListState};
use crate::types::StateType;

/// A function whose own variables survive a failure.
///
/// Contract: `snapshot_state` is called at every barrier, between two batches, and gives all that the function would need to go
/// on. `restore_state` is called before the first batch, once for each element that comes back:
///
/// - at a first start never: the function begins as it was made;
/// - at the parallelism of the snapshot once, with what this subtask gave;
/// - at another parallelism as often as elements fall to this subtask, in the order of the old subtasks: with fewer subtasks each
///   gets one or several, which it merges; with more of them some get none and begin as they were made.
///
/// No element is lost or given twice. Variables for which that is no sense (an id of the subtask, a share of a limit) do not
/// belong here.
pub trait Checkpointed {
    /// What is stored.
    type State: StateType;

    /// The variables as they are now.
    fn snapshot_state(&self) -> Self::State;

    /// Takes variables in, into those that are there.
    fn restore_state(&mut self, state: Self::State);
}

/// The list behind a `Checkpointed` function.
pub struct Variables<C: Checkpointed> {
    list: OperatorListState<C::State>,
}

impl<C: Checkpointed> Variables<C> {
    /// Binds the list under this name.
    ///
    /// Errors: as those of a descriptor.
    pub fn bind(name: &str, binder: &mut dyn Binder) -> Result<Self, BindError> {
        Ok(Self { list: OperatorListDescriptor::split(name).bind(binder)? })
    }

    /// Before a barrier: puts the function's variables in the place of what the list has.
    pub fn save(&self, function: &C, states: &mut OperatorStates) {
        self.list.update(states, vec![function.snapshot_state()]);
    }

    /// After a restore: hands what came back to the function; answers how many elements that were.
    pub fn load(&self, function: &mut C, states: &mut OperatorStates) -> usize {
        let elements = self.list.get(states).to_vec();
        self.list.clear(states);
        let count = elements.len();
        elements.into_iter().for_each(|state| function.restore_state(state));
        count
    }
}

impl<C: Checkpointed> std::fmt::Debug for Variables<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Variables({})", self.list.id().0)
    }
}
