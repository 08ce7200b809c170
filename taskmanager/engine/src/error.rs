//! What can fail a task.

use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;

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
            Self::BadRecord { .. } | Self::AggregateOverflow { .. } => Fault::User,
            Self::Connector { fault, .. } => *fault,
            Self::Restore { .. } => Fault::User,
            Self::Kernel { .. } | Self::Invariant { .. } => Fault::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::BadRecord { .. } | Self::AggregateOverflow { .. } | Self::Restore { .. } => Retry::Never,
            Self::Connector { retry, .. } => *retry,
            Self::Kernel { .. } | Self::Invariant { .. } => Retry::Backoff,
        }
    }
}
