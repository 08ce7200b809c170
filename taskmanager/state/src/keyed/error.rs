//! Why keyed state cannot be used as asked.

use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;

use crate::cold::ColdError;
use crate::types::TypeError;

/// Which state of which operator is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateName {
    /// The operator.
    pub uid: Uid,
    /// The state.
    pub state: String,
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "state \"{}\" of operator \"{}\"", self.state, self.uid)
    }
}

/// What failed. Boxed where it is returned, so that the answer of every access fits registers.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A state was used outside of a row.
    #[error("{name} was used without a current key: enter a row first")]
    NoKey {
        /// The state.
        name: StateName,
    },
    /// A windowed state was used without a window.
    #[error("{name} is kept per window and was used without one: set a namespace first")]
    NoNamespace {
        /// The state.
        name: StateName,
    },
    /// A handle of other states.
    #[error(
        "operator \"{uid}\" was asked for {handle}, which was not bound to it: use handles with the states they were bound to"
    )]
    ForeignHandle {
        /// The operator.
        uid: Uid,
        /// The handle, with its types.
        handle: &'static str,
    },
    /// Values that do not fit columns, or columns that do not fit values.
    #[error("{name} does not fit its type")]
    Type {
        /// The state.
        name: StateName,
        /// Why.
        #[source]
        source: TypeError,
    },
    /// A list with more elements than its index counts.
    #[error("{name} has a list of {len} elements, the most is {max}: spread them over more keys or use a map")]
    ListTooLong {
        /// The state.
        name: StateName,
        /// Elements.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The heap share of the TaskManager is used up.
    #[error(
        "operator \"{uid}\" holds {bytes} bytes of state, most of it ({state_bytes} bytes) in state \"{state}\", and all states \
         of this TaskManager hold {used} of {limit} bytes: use the rocksdb backend or raise taskmanager.memory.total"
    )]
    OverBudget {
        /// The operator.
        uid: Uid,
        /// Bytes of the operator.
        bytes: usize,
        /// Its largest state.
        state: String,
        /// Bytes of that one.
        state_bytes: usize,
        /// Bytes of all states in the TaskManager.
        used: usize,
        /// The limit of all states in the TaskManager.
        limit: usize,
    },
    /// The cold store failed.
    #[error("{name}: the store behind the operator's memory failed")]
    Cold {
        /// The state.
        name: StateName,
        /// Why.
        #[source]
        source: ColdError,
    },
    /// The cold store failed in the background, whatever state it was at.
    #[error("the store behind the operator's memory failed")]
    Store {
        /// Why.
        #[source]
        source: ColdError,
    },
    /// A snapshot of a state that the program does not have.
    #[error("the snapshot has {name}, which the program does not bind: drop it with --drop-state {}/{}", .name.uid, .name.state)]
    Unclaimed {
        /// The state.
        name: StateName,
    },
    /// A snapshot that is not one of this state.
    #[error("{name} cannot be restored: {problem}")]
    Restore {
        /// The state.
        name: StateName,
        /// What was found, and what was expected.
        problem: String,
    },
}

impl Faulty for StateError {
    fn fault(&self) -> Fault {
        match self {
            Self::Cold { source, .. } | Self::Store { source } => source.fault(),
            Self::Restore { .. } => Fault::Internal,
            _ => Fault::User,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Cold { source, .. } | Self::Store { source } => source.retry(),
            // The limit is that of all states of the TaskManager: those of others may be gone, or there is another TaskManager.
            Self::OverBudget { .. } => Retry::Backoff,
            _ => Retry::Never,
        }
    }
}

/// What an access to keyed state answers.
pub type StateResult<T> = Result<T, Box<StateError>>;
