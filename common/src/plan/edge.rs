//! Streams between vertices: which output they come out of, who gets which row, what flows.
//!
//! Invariant: an edge names an output that the last operator of its sender has.

use serde::{Deserialize, Serialize};

use crate::ids::VertexId;
use crate::types::StreamSchema;

/// An output of an operator beside its main one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideOutput {
    /// Its name.
    pub name: String,
    /// What it carries.
    pub schema: StreamSchema,
}

impl SideOutput {
    /// The name of the output for rows that came too late.
    pub const LATE: &str = "late";
}

/// A stream from each subtask of one vertex to subtasks of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// The sending vertex.
    pub from: VertexId,
    /// The receiving vertex.
    pub to: VertexId,
    /// Which input of the receiver's first operator, from 0; a union's inputs are all input 0, yet edges of their own. Input 1 is
    /// the right side of a join, a function's second input, or what is broadcast to it.
    pub input: u32,
    /// Which output of the sender's last operator: 0 is the main one, those after it are its `sides`.
    #[serde(default, skip_serializing_if = "is_main")]
    pub output: u32,
    /// Who gets which row.
    pub partition: Partition,
    /// What flows.
    pub schema: StreamSchema,
}

impl Edge {
    /// The receiving subtasks of sending subtask `from`, where the vertices have these parallelisms.
    pub fn targets(&self, from: u32, from_parallelism: u32, to_parallelism: u32) -> std::ops::Range<u32> {
        match self.partition {
            Partition::Forward => {
                debug_assert_eq!(from_parallelism, to_parallelism);
                from..from + 1
            }
            Partition::Hash { .. } | Partition::Rebalance | Partition::Broadcast => 0..to_parallelism,
        }
    }
}

fn is_main(output: &u32) -> bool {
    *output == 0
}

/// Who gets which row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partition {
    /// Subtask i to subtask i; both sides have the same parallelism.
    Forward,
    /// By the key group of these columns.
    Hash {
        /// Key columns of the stream.
        columns: Vec<String>,
    },
    /// Whole batches in turn, to every subtask; to a single subtask this is "all rows to one".
    Rebalance,
    /// Every row to every subtask. The receiver's time does not wait for it.
    Broadcast,
}
