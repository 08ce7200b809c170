//! State of an operator's subtask that belongs to no key: lists and broadcast maps, typed, frozen without a pause.
//!
//! A list is *split* or *union* when it comes back at another parallelism, a broadcast map is the same in every subtask. A
//! function's own variables are a list of one element (`checkpointed.rs`). Must never know keys, nor who gets which list back.
//!
//! Invariant: what a snapshot holds is what the states were at its barrier (property test against clones).

mod broadcast;
mod checkpointed;
mod error;
mod list;
mod piece;

use std::any::Any;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::state_schema::StateSchema;

use crate::descriptor::{BindError, Binder, Bindings, Bound, Descriptor, Signature, StateId};
use crate::snapshot::{PieceSender, StateMeta, StatePart, pieces};
use crate::types::TypeError;

pub use checkpointed::{Checkpointed, Variables};
pub use error::OperatorStateError;

pub(crate) use broadcast::BroadcastTable;
pub(crate) use list::ListTable;
pub(crate) use piece::Rows;

/// The operator states of one subtask.
///
/// Contract: used by one thread. Descriptors are bound first, then snapshots restored; barriers fall between batches. A handle is
/// used with the states that it was bound to; with others it panics.
pub struct OperatorStates {
    uid: Uid,
    bindings: Bindings,
    states: Vec<BoundState>,
    /// The checkpoint of the last barrier.
    checkpoint: Option<CheckpointId>,
}

struct BoundState {
    meta: StateMeta,
    table: Box<dyn OperatorTable>,
}

/// What an operator state of any type can do.
pub trait OperatorTable: Any + Send {
    /// Starts a snapshot; one that is still running is finished first.
    fn freeze(&mut self, sender: PieceSender) -> Result<(), TypeError>;

    /// Saves further entries, at most `rows_max`, none while the background has enough to do; answers whether more remain.
    fn advance(&mut self, rows_max: usize) -> Result<bool, TypeError>;

    /// Gives the running snapshot up.
    fn abandon(&mut self);

    /// Takes rows of a snapshot, behind those that are there.
    fn restore(&mut self, rows: &Rows<'_>) -> Result<(), TypeError>;

    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// Entries that a barrier saves of each state at once: all of a small one.
const BARRIER_ROWS: usize = 1024;

/// Entries that the cursor of a snapshot saves of each state between two batches.
const BACKGROUND_ROWS: usize = 4096;

impl OperatorStates {
    /// Of this operator, without states.
    pub fn new(uid: Uid) -> Self {
        Self { uid, bindings: Bindings::new(), states: Vec::new(), checkpoint: None }
    }

    /// The synchronous part of a snapshot, independent of how much there is.
    ///
    /// Shape of the pieces: the columns of a map's key, then those of the value; a row an element, a list's in order.
    /// Errors: values that cannot become columns; the author's fault.
    pub fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, OperatorStateError> {
        self.checkpoint = Some(checkpoint);
        let mut parts = Vec::with_capacity(self.states.len());
        for BoundState { meta, table } in &mut self.states {
            let (sender, reader) = pieces();
            let frozen = table.freeze(sender).and_then(|()| table.advance(BARRIER_ROWS));
            frozen.map_err(|source| error::of_type(meta, source))?;
            parts.push(StatePart { meta: meta.clone(), contents: reader.into() });
        }
        Ok(parts)
    }

    /// Saves further pieces of a running snapshot; answers whether more remain.
    ///
    /// Errors: as `snapshot`.
    pub fn background(&mut self) -> Result<bool, OperatorStateError> {
        let mut remains = false;
        for BoundState { meta, table } in &mut self.states {
            remains |= table.advance(BACKGROUND_ROWS).map_err(|source| error::of_type(meta, source))?;
        }
        Ok(remains)
    }

    /// Gives a snapshot up whose checkpoint was.
    pub fn notify(&mut self, checkpoint: CheckpointId, completed: bool) {
        if !completed && self.checkpoint == Some(checkpoint) {
            self.states.iter_mut().for_each(|state| state.table.abandon());
        }
    }

    /// Takes a state out of a snapshot, one part after the other, whoever wrote them.
    ///
    /// Contract: after binding, before the first batch. Errors: a state that was not bound, columns that are missing or of another
    /// type.
    pub fn restore(&mut self, name: &str, batches: &[RecordBatch]) -> Result<(), OperatorStateError> {
        let Some(id) = self.bindings.find(name) else {
            return Err(OperatorStateError::Unclaimed { uid: self.uid.clone(), state: name.into() });
        };
        let BoundState { meta, table } = &mut self.states[id.0];
        for batch in batches {
            let rows = Rows::new(meta, batch)?;
            table.restore(&rows).map_err(|source| error::of_type(meta, source))?;
        }
        Ok(())
    }

    /// The states that were bound.
    pub fn metas(&self) -> impl Iterator<Item = &StateMeta> {
        self.states.iter().map(|state| &state.meta)
    }

    /// The bytes that each state holds, by its name.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.states.iter().map(|state| (state.meta.name.as_str(), state.table.memory_bytes()))
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.sizes().map(|(_, bytes)| bytes).sum()
    }

    fn table<T: OperatorTable>(&self, id: StateId) -> &T {
        let table: &dyn Any = self.states[id.0].table.as_ref();
        table.downcast_ref().expect("a handle is used with the states that it was bound to")
    }

    fn table_mut<T: OperatorTable>(&mut self, id: StateId) -> &mut T {
        let table: &mut dyn Any = self.states[id.0].table.as_mut();
        table.downcast_mut().expect("a handle is used with the states that it was bound to")
    }
}

impl Binder for OperatorStates {
    fn bind(&mut self, descriptor: &dyn Descriptor) -> Result<StateId, BindError> {
        let signature = descriptor.signature()?;
        let Some(table) = descriptor.operator_table(&signature) else {
            let (name, found) = (descriptor.name().into(), "keyed");
            return Err(BindError::Kind { name, found, remedy: "use it in a function behind key_by, or use operator state" });
        };
        match self.bindings.bind(descriptor)? {
            Bound::Known(id) => Ok(id),
            Bound::New(id) => {
                self.states.push(BoundState { meta: meta(&self.uid, &signature), table });
                Ok(id)
            }
        }
    }
}

fn meta(uid: &Uid, signature: &Signature) -> StateMeta {
    let declaration = signature.declaration();
    let schema: StateSchema = declaration.schema(&[]);
    StateMeta { uid: uid.clone(), name: declaration.name.clone(), kind: declaration.kind, schema: Arc::new(schema) }
}

#[cfg(test)]
mod tests;
