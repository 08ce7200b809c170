//! What can fail a task.

use std::fmt;

use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;
use levada_state::cold::ColdError;
use levada_state::descriptor::BindError;

use crate::function::FunctionError;

/// What is to be done where a state does not fit into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// This, or more instances, of which each has a part of the state.
    Parts(&'static str),
    /// This; each instance has all of the state.
    Whole(&'static str),
}

impl From<&'static str> for Remedy {
    fn from(what: &'static str) -> Self {
        Self::Parts(what)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts(what) => write!(f, "{what}, raise the parallelism or raise taskmanager.memory.total"),
            Self::Whole(what) => write!(
                f,
                "{what}, or raise taskmanager.memory.total; every instance has all of it in memory, so a higher parallelism or \
                 another backend changes nothing"
            ),
        }
    }
}

/// A failure of a task, by what was attempted.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A row could not be read or computed, and the node's policy is to fail.
    #[error(
        "node \"{uid}\" ({clause}): bad record at {position}: {reason}; set `bad_records: drop` on the node to drop and count such rows"
    )]
    BadRecord {
        /// The node.
        uid: Uid,
        /// The clause of the node.
        clause: String,
        /// Where the row stands: file and line or byte, or its values.
        position: String,
        /// Why.
        reason: String,
    },
    /// A sum does not fit its type.
    #[error("node \"{uid}\": {function} \"{column}\" overflows {ty} for key {key}")]
    AggregateOverflow {
        /// The node.
        uid: Uid,
        /// The function.
        function: String,
        /// The output column.
        column: String,
        /// The result's type.
        ty: String,
        /// The key, as text.
        key: String,
    },
    /// A library cannot aggregate rows.
    #[error("node \"{uid}\": {function} \"{column}\" cannot be computed: {reason}")]
    LibraryAggregate {
        /// The node.
        uid: Uid,
        /// The function.
        function: String,
        /// The output column.
        column: String,
        /// Why.
        reason: String,
    },
    /// An Arrow kernel failed where the plan says that it cannot.
    #[error("node \"{uid}\" ({clause}): an Arrow kernel failed")]
    Kernel {
        /// The node.
        uid: Uid,
        /// The clause.
        clause: String,
        /// Why.
        #[source]
        source: arrow::error::ArrowError,
    },
    /// A restored state cannot be taken.
    #[error("node \"{uid}\": state \"{state}\" cannot be restored: {reason}")]
    Restore {
        /// The node.
        uid: Uid,
        /// The state.
        state: String,
        /// Why.
        reason: String,
    },
    /// The heap state of a node does not fit.
    #[error(
        "node \"{uid}\": state \"{state}\" holds {bytes} bytes, and all states of this TaskManager hold {used} of {limit} bytes; \
         {remedy}"
    )]
    OverBudget {
        /// The node.
        uid: Uid,
        /// Its largest state.
        state: String,
        /// Bytes of that one.
        bytes: usize,
        /// Bytes of all states in the TaskManager.
        used: usize,
        /// The limit of all states in the TaskManager.
        limit: usize,
        /// What makes the state smaller, or lets it fit.
        remedy: Remedy,
    },
    /// The TaskManager's binary has no function of this name.
    #[error(
        "node \"{uid}\": this TaskManager has no function \"{function}\" (it has: {known}); run the same binary on every \
         TaskManager of the cluster"
    )]
    UnknownFunction {
        /// The node.
        uid: Uid,
        /// The function.
        function: String,
        /// The functions that there are.
        known: String,
    },
    /// The function is another one than the job was planned with.
    #[error(
        "node \"{uid}\": this TaskManager declares function \"{function}\" otherwise than the one that the job was planned with; \
         run the same binary on every TaskManager, or submit the job again"
    )]
    OtherFunction {
        /// The node.
        uid: Uid,
        /// The function.
        function: String,
    },
    /// A function of a user failed.
    #[error("node \"{uid}\": function \"{function}\" failed")]
    Function {
        /// The node.
        uid: Uid,
        /// The function.
        function: String,
        /// Why.
        #[source]
        source: Box<FunctionError>,
    },
    /// A function's state cannot be bound.
    #[error("node \"{uid}\": a state of function \"{function}\" cannot be bound")]
    Bind {
        /// The node.
        uid: Uid,
        /// The function.
        function: String,
        /// Why.
        #[source]
        source: Box<BindError>,
    },
    /// The database that the node's state is in failed.
    #[error("node \"{uid}\": its state cannot be kept")]
    Store {
        /// The node.
        uid: Uid,
        /// Why.
        #[source]
        source: Box<ColdError>,
    },
    /// A source or sink failed.
    #[error("node \"{uid}\" ({connector}): {message}")]
    Connector {
        /// The node.
        uid: Uid,
        /// The connector.
        connector: String,
        /// What was attempted on what, and why it failed.
        message: String,
        /// Whose fault it is.
        fault: Fault,
        /// Whether trying again can help.
        retry: Retry,
    },
    /// Levada broke a rule of its own.
    #[error("node \"{uid}\": {message}")]
    Invariant {
        /// The node.
        uid: Uid,
        /// Which rule, by what.
        message: String,
    },
}

impl Faulty for EngineError {
    fn fault(&self) -> Fault {
        match self {
            Self::BadRecord { .. } | Self::AggregateOverflow { .. } | Self::LibraryAggregate { .. } => Fault::User,
            Self::Connector { fault, .. } => *fault,
            Self::Function { source, .. } => source.fault(),
            Self::Store { source, .. } => source.fault(),
            Self::UnknownFunction { .. } | Self::OtherFunction { .. } | Self::Bind { .. } => Fault::User,
            Self::Restore { .. } | Self::OverBudget { .. } => Fault::User,
            Self::Kernel { .. } | Self::Invariant { .. } => Fault::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::BadRecord { .. } | Self::AggregateOverflow { .. } | Self::LibraryAggregate { .. } | Self::Restore { .. } => {
                Retry::Never
            }
            Self::Connector { retry, .. } => *retry,
            Self::Function { source, .. } => source.retry(),
            Self::Store { source, .. } => source.retry(),
            Self::Bind { .. } => Retry::Never,
            Self::OverBudget { .. } => Retry::Backoff,
            // Another TaskManager may have it.
            Self::UnknownFunction { .. } | Self::OtherFunction { .. } => Retry::Backoff,
            Self::Kernel { .. } | Self::Invariant { .. } => Retry::Backoff,
        }
    }
}
