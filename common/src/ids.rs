//! Identities: of jobs, nodes, tasks, attempts, checkpoints and processes.
//!
//! No bare `u64` or `String` id crosses a module; whatever can be stale carries its attempt and epoch.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A job, unique for ever: a time-ordered UUID, written as 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id; ids of one process sort by their time of creation.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id with these 128 bits, for tests and simulations that must not draw at random.
    pub const fn from_u128(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

/// The text is not an id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not {expected}")]
pub struct BadId {
    /// What was given.
    pub text: String,
    /// What the text should have been.
    pub expected: &'static str,
}

impl FromStr for JobId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        Uuid::parse_str(text).map(Self).map_err(|_| BadId { text: text.into(), expected: "a job id (32 hex digits)" })
    }
}

/// A process of a TaskManager: drawn anew at each start, so that a restarted TaskManager is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskManagerId(Uuid);

impl TaskManagerId {
    /// A new id.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id with these 128 bits, for tests and simulations.
    pub const fn from_u128(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }
}

impl fmt::Display for TaskManagerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

impl FromStr for TaskManagerId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        Uuid::parse_str(text).map(Self).map_err(|_| BadId { text: text.into(), expected: "a TaskManager id (32 hex digits)" })
    }
}

/// The name of a node of a job graph, under which its state is found again: 1 to 128 bytes, no control characters, no `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(Arc<str>);

impl Uid {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 128;

    /// Takes a name that the graph's check has passed.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Why `name` cannot be a node's name, or `None` where it can.
    pub fn defect(name: &str) -> Option<String> {
        if name.is_empty() {
            Some("a name must not be empty".into())
        } else if name.len() > Self::BYTES_MAX {
            Some(format!("a name has at most {} bytes, this one has {}", Self::BYTES_MAX, name.len()))
        } else if name == "." || name == ".." {
            Some(format!("\"{name}\" cannot be a name"))
        } else if name.trim().is_empty() {
            Some("a name must not be blank".into())
        } else {
            name.chars().find(|c| c.is_control() || *c == '/').map(|c| format!("a name must not contain {}", c.escape_default()))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl $name {
            /// The one after this.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.checked_add(1).expect("ids do not run out"))
            }
        }
    };
}

number! {
    /// A vertex of an execution graph: its place in `Plan::vertices`.
    VertexId(u32)
}
number! {
    /// One parallel instance of a vertex, from 0.
    SubtaskIndex(u32)
}
number! {
    /// A try at running a job; the first is 1. Whatever an older attempt still says is dropped.
    Attempt(u32)
}
number! {
    /// The term of a JobManager's leadership; rises with each new leader.
    Epoch(u64)
}
number! {
    /// A checkpoint of one job; the first is 1, and no id is used twice.
    CheckpointId(u64)
}

/// A task's place in its job: which vertex, which parallel instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId {
    /// The vertex.
    pub vertex: VertexId,
    /// The parallel instance.
    pub subtask: SubtaskIndex,
}

impl TaskId {
    /// The task of `vertex` with the number `subtask`.
    pub fn new(vertex: VertexId, subtask: u32) -> Self {
        Self { vertex, subtask: SubtaskIndex(subtask) }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.vertex, self.subtask)
    }
}

/// One attempt of one job under one leader: what fences off zombies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptId {
    /// The job.
    pub job: JobId,
    /// The try.
    pub attempt: Attempt,
    /// The leader that started it.
    pub epoch: Epoch,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempt {}", self.job, self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_text() {
        let id = JobId::generate();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("not-an-id".parse::<JobId>().is_err());
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "a b", "ä", "😀", "x.y"] {
            assert_eq!(Uid::defect(good), None, "{good}");
        }
        for bad in ["", " ", "a/b", "..", "a\nb", &"x".repeat(129)] {
            assert!(Uid::defect(bad).is_some(), "{bad}");
        }
    }
}
