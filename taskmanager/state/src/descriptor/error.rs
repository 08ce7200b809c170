//! Why a descriptor is not bound.

use levada_common::fault::{Fault, Faulty, Retry};

use crate::types::TypeError;

/// Why a descriptor is not bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The name cannot be a state's.
    #[error(
        "\"{name}\" cannot name a state: {reason}; a name has 1 to 128 bytes, no control characters, no \"/\" and no \"_\" at its start"
    )]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another descriptor has the name.
    #[error("state \"{name}\" is bound as {first} and as {second}; give one of them another name")]
    Differs {
        /// The name.
        name: String,
        /// What it was bound as first.
        first: String,
        /// What it was to be bound as then.
        second: String,
    },
    /// A type has no columns.
    #[error("state \"{name}\" cannot be stored")]
    Type {
        /// The state's name.
        name: String,
        /// Why.
        #[source]
        source: TypeError,
    },
    /// A state of a key where there is no key, or of an operator where only keys have state.
    #[error("state \"{name}\" is {found} state, which this function does not have; {remedy}")]
    Kind {
        /// The state's name.
        name: String,
        /// What it is.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Time to live of nothing.
    #[error("state \"{name}\" has a time to live of 0 ms; give it at least 1 ms, or none")]
    Ttl {
        /// The state's name.
        name: String,
    },
}

impl Faulty for BindError {
    fn fault(&self) -> Fault {
        Fault::User
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }
}
