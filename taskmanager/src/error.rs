//! What can keep a TaskManager from starting.

use std::io;

/// Why a TaskManager does not start, or did not run.
#[derive(Debug, thiserror::Error)]
pub enum TaskManagerError {
    /// A port cannot be listened on.
    #[error("listening on {address} ({setting}) failed")]
    Bind {
        /// The address.
        address: String,
        /// The setting that names it.
        setting: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A runtime cannot be made.
    #[error("starting the {name} threads failed")]
    Runtime {
        /// Which.
        name: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A function cannot be registered.
    #[error(transparent)]
    Function(levada_engine::function::RegistrationError),
    /// A declaration cannot travel.
    #[error("the declaration of connector or function \"{name}\" cannot be written as JSON")]
    Declaration {
        /// The connector or function.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}
