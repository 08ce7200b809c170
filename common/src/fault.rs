//! Whose fault a failure is and whether trying again can help: all that a restart policy looks at.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The job's author or its data: the same input fails the same way again.
    User,
    /// Something outside: storage, network, a full disk, a lost machine.
    External,
    /// Levada itself.
    Internal,
}

/// Whether to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// It would fail the same way.
    Never,
    /// After a delay.
    Backoff,
    /// At once.
    Now,
}

/// What everything that can fail a task answers.
pub trait Faulty: std::error::Error {
    /// Whose fault it is.
    fn fault(&self) -> Fault;
    /// Whether trying again can help.
    fn retry(&self) -> Retry;

    /// The failure as it travels to the JobManager: this error's text and those of its sources.
    fn to_failure(&self) -> Failure {
        let mut message = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Failure { message, fault: self.fault(), retry: self.retry() }
    }
}

/// A failure that has left the place where it arose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What was attempted, on what, and why it failed.
    pub message: String,
    /// Whose fault it is.
    pub fault: Fault,
    /// Whether trying again can help.
    pub retry: Retry,
}

impl Failure {
    /// Something outside failed; trying again can help.
    pub fn external(message: impl Into<String>) -> Self {
        Self { message: message.into(), fault: Fault::External, retry: Retry::Backoff }
    }

    /// The author's or the data's fault; it would fail the same way again.
    pub fn user(message: impl Into<String>) -> Self {
        Self { message: message.into(), fault: Fault::User, retry: Retry::Never }
    }

    /// Levada's own fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { message: message.into(), fault: Fault::Internal, retry: Retry::Backoff }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
