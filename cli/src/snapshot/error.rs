//! What can be wrong with a snapshot.

use std::path::PathBuf;

use levada_common::checkpoint::{Handle, StateHandle};
use levada_common::storage::StorageError;

/// Why a snapshot, or a state of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The path cannot be made a URI.
    #[error("\"{place}\" has no absolute path: {source}")]
    Place {
        /// The path.
        place: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is none, or it cannot be read.
    #[error(transparent)]
    Find(#[from] levada_proto::snapshot::SnapshotError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It was there when its metadata was read, and is not any more.
    #[error(
        "\"{file}\" was deleted or replaced while it was read, as a job does with its old checkpoints; name the job's folder to read the newest one, or take a savepoint, which stays (`checkpoint.num_retained` says how many checkpoints do)"
    )]
    Replaced {
        /// URI of its metadata.
        file: String,
    },
    /// No operator of this name has state.
    #[error("the snapshot has no operator \"{uid}\"{hint}")]
    NoOperator {
        /// The name.
        uid: String,
        /// `; did you mean ...`, or nothing.
        hint: String,
    },
    /// The operator has no state of this name.
    #[error("operator \"{uid}\" has no state \"{name}\"; it has: {names}")]
    NoState {
        /// The operator.
        uid: String,
        /// The name.
        name: String,
        /// Its states.
        names: String,
    },
    /// The operator has several states, and one is needed.
    #[error("operator \"{uid}\" has several states; name one: {names}")]
    SeveralStates {
        /// The operator.
        uid: String,
        /// Its states, with the operator.
        names: String,
    },
    /// A state's bytes are not those that were written, or make no sense.
    #[error("{place} is damaged: {what}; {state}")]
    Damaged {
        /// Where the bytes are.
        place: String,
        /// What is wrong with them.
        what: String,
        /// Operator, state, subtask.
        state: String,
    },
    /// A state's bytes cannot be had.
    #[error("{place} cannot be read: {source}; {state}")]
    Unreadable {
        /// Where the bytes are.
        place: String,
        /// Operator, state, subtask.
        state: String,
        /// Why.
        source: StorageError,
    },
    /// No working folder for a database can be had.
    #[error("a database is read in a folder for temporary files, but \"{}\" cannot be written: {source}", path.display())]
    WorkingFolder {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The rows of a keyed state are not sorted.
    #[error("the rows of state \"{path}\" are not in the order of key groups: group {found} comes after group {before}")]
    Unsorted {
        /// Operator and state.
        path: String,
        /// The group that came too late.
        found: u16,
        /// The group before it.
        before: u16,
    },
    /// Rows cannot be presented as asked.
    #[error("{0}")]
    Arrow(#[from] arrow::error::ArrowError),
}

impl SnapshotError {
    /// The bytes of `handle` are wrong.
    pub fn damaged(handle: &StateHandle, what: impl Into<String>) -> Self {
        Self::Damaged { place: place_text(handle), what: what.into(), state: state_text(handle) }
    }

    /// The bytes of `handle` cannot be had; fewer than were noted are damage.
    pub fn unreadable(handle: &StateHandle, source: StorageError) -> Self {
        match source {
            StorageError::NotFound { .. } => Self::damaged(handle, "it does not exist"),
            source => Self::Unreadable { place: place_text(handle), state: state_text(handle), source },
        }
    }
}

/// Where a handle's bytes are, for messages.
pub fn place_text(handle: &StateHandle) -> String {
    match &handle.handle {
        Handle::Inline(_) => "inline state in _metadata".into(),
        Handle::File { path, offset: 0, .. } => format!("\"{path}\""),
        Handle::File { path, offset, .. } => format!("\"{path}\" at byte {offset}"),
        Handle::Database { files, family } => {
            format!("family \"{family}\" of a database of {} files", files.len())
        }
    }
}

fn state_text(handle: &StateHandle) -> String {
    format!("operator \"{}\", state \"{}\", subtask {}", handle.uid, handle.name, handle.subtask)
}
