//! What can go wrong with a database.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;

use crate::row_codec::{BadRow, LayoutError};

/// Why a database does not do what it should. Shared, since a failure of the background is answered to every later call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ColdError {
    /// It cannot be opened or made.
    #[error("operator \"{uid}\": opening the database in \"{path}\" failed")]
    Open {
        /// The operator.
        uid: Uid,
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A read failed.
    #[error("operator \"{uid}\", state \"{state}\": reading the database in \"{path}\" failed")]
    Read {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A write of the background failed.
    #[error("operator \"{uid}\": writing the database in \"{path}\" failed while {doing}")]
    Write {
        /// The operator.
        uid: Uid,
        /// The directory.
        path: PathBuf,
        /// At what, of which state.
        doing: String,
        /// Why.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
    /// Bytes that are no entry of the state.
    #[error("operator \"{uid}\", state \"{state}\": the database in \"{path}\" has an entry that cannot be read")]
    Entry {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: BadRow,
    },
    /// Columns that are not those of the state.
    #[error("operator \"{uid}\", state \"{state}\": entries do not have the state's columns")]
    Layout {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// What is wrong with them.
        #[source]
        source: LayoutError,
    },
    /// What a restored database has is not what the job has now.
    #[error("operator \"{uid}\": {reason}")]
    Unfit {
        /// The operator.
        uid: Uid,
        /// What is otherwise, and what can be done.
        reason: String,
    },
    /// The task ended, or the snapshot was given up, before everything of the barrier was sent.
    #[error("operator \"{uid}\": the snapshot was given up")]
    Abandoned {
        /// The operator.
        uid: Uid,
    },
    /// The next snapshot of a store that several operators share began before all of them had sent their part.
    #[error(
        "operator \"{uid}\": the barrier of a newer checkpoint came before every operator of the node had sent its part of this one \
         to their database"
    )]
    Overtaken {
        /// The operator.
        uid: Uid,
    },
    /// A state that the snapshot does not have.
    #[error("operator \"{uid}\": the database has no state \"{state}\"; it has {known}")]
    UnknownState {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// Those that it has.
        known: String,
    },
}

impl Faulty for ColdError {
    fn fault(&self) -> Fault {
        match self {
            Self::Open { .. } | Self::Read { .. } | Self::Write { .. } | Self::Entry { .. } => Fault::External,
            Self::Unfit { .. } => Fault::User,
            Self::Layout { .. } | Self::Abandoned { .. } | Self::Overtaken { .. } | Self::UnknownState { .. } => Fault::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Unfit { .. } | Self::Layout { source: LayoutError::Several, .. } => Retry::Never,
            _ => Retry::Backoff,
        }
    }
}
