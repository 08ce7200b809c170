//! What can go wrong with operator state.

use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;

use crate::snapshot::StateMeta;
use crate::types::TypeError;

/// Why operator state cannot be saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum OperatorStateError {
    /// A state of a snapshot that the function does not have.
    #[error(
        "operator \"{uid}\" has no state \"{state}\", which the snapshot has; bind it, or drop it with --drop-state {uid}/{state}"
    )]
    Unclaimed {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
    },
    /// Other columns.
    #[error("state \"{state}\" of operator \"{uid}\" is stored in columns {expected}; the snapshot has {found}")]
    Columns {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// The columns of its type.
        expected: String,
        /// The columns of the snapshot.
        found: String,
    },
    /// Values and columns do not fit each other.
    #[error("state \"{state}\" of operator \"{uid}\"")]
    Type {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// Why.
        #[source]
        source: Box<TypeError>,
    },
}

impl Faulty for OperatorStateError {
    fn fault(&self) -> Fault {
        Fault::User
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }
}

pub(super) fn of_type(meta: &StateMeta, source: TypeError) -> OperatorStateError {
    OperatorStateError::Type { uid: meta.uid.clone(), state: meta.name.clone(), source: Box::new(source) }
}
