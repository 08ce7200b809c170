//! Between messages and the words of `levada-common`.
//!
//! Whatever comes from the wire is checked here once: behind it there are no empty ids and no ranges that run backwards.
//! Must never know: which message may come when.

mod deploy;
mod failure;
mod ids;
mod kind;
mod state;

pub use deploy::{RestorePlace, RestoreState};
pub use failure::{decline_from_json, decline_to_json, failure_from_info, failure_to_info};
pub use ids::{attempt_from_ref, attempt_to_ref, job_id, task_from_ref, task_index, task_manager_id, task_of_index, task_to_ref};
pub use kind::{kind_from_target, kind_to_target};
pub use state::{
    metadata_from_file, metadata_to_file, snapshot_from_message, snapshot_to_message, state_from_message, state_to_message,
};

/// A message that is not what the protocol says.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A field that must be there is not.
    #[error("the message has no `{field}`")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field holds what it cannot hold.
    #[error("the message's `{field}` is \"{found}\"; allowed: {allowed}")]
    Bad {
        /// Its name.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What it may hold.
        allowed: &'static str,
    },
    /// A field that is JSON cannot be read.
    #[error("the message's `{field}` is not the JSON that it should be")]
    Json {
        /// Its name.
        field: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// The value of a field that must be there.
pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, ConvertError> {
    value.ok_or(ConvertError::Missing { field })
}
