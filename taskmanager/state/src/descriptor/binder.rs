//! Where descriptors are bound.

use std::collections::HashMap;

use levada_common::state_schema::StateDeclaration;

use super::{BindError, Descriptor, Signature, StateId};

/// What descriptors are bound to: the states of an operator, or a recorder of them.
pub trait Binder {
    /// The place of the state that the descriptor describes: the same for an equal descriptor, a new one for a new name.
    ///
    /// Errors: a bad name, types without columns, another descriptor under the name; the author's fault. Nothing is bound then.
    fn bind(&mut self, descriptor: &dyn Descriptor) -> Result<StateId, BindError>;
}

/// The names that were bound and what under each: what every binder has.
#[derive(Debug, Default)]
pub struct Bindings {
    signatures: Vec<Signature>,
    by_name: HashMap<String, StateId>,
}

/// What binding a descriptor came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A state that was not there: whoever binds makes a table for it.
    New(StateId),
    /// A state that was bound already by an equal descriptor.
    Known(StateId),
}

impl Bindings {
    /// Nothing is bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a descriptor. Places are given out from 0 on.
    ///
    /// Errors: as `Binder::bind`.
    pub fn bind(&mut self, descriptor: &dyn Descriptor) -> Result<Bound, BindError> {
        let signature = descriptor.signature()?;
        let Some(id) = self.by_name.get(descriptor.name()) else {
            let id = StateId(self.signatures.len());
            self.by_name.insert(descriptor.name().into(), id);
            self.signatures.push(signature);
            return Ok(Bound::New(id));
        };
        let first = &self.signatures[id.0];
        if *first == signature {
            return Ok(Bound::Known(*id));
        }
        let (first, second) = (first.to_string(), signature.to_string());
        Err(BindError::Differs { name: descriptor.name().into(), first, second })
    }

    /// What was bound, by place.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// The place of this name.
    pub fn find(&self, name: &str) -> Option<StateId> {
        self.by_name.get(name).copied()
    }
}

/// Notes what a function binds, and nothing more: its handles are used with no state.
#[derive(Debug, Default)]
pub struct Recorder {
    bindings: Bindings,
}

impl Recorder {
    /// Nothing is noted.
    pub fn new() -> Self {
        Self::default()
    }

    /// The states that were bound, in order.
    pub fn into_declarations(self) -> Vec<StateDeclaration> {
        self.bindings.signatures.into_iter().map(|signature| signature.declaration().clone()).collect()
    }
}

impl Binder for Recorder {
    fn bind(&mut self, descriptor: &dyn Descriptor) -> Result<StateId, BindError> {
        let (Bound::New(id) | Bound::Known(id)) = self.bindings.bind(descriptor)?;
        Ok(id)
    }
}
