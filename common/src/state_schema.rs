//! What a state holds, as far as a snapshot and a program can be compared by it, and a snapshot be read without the program.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checkpoint::StateKind;
use crate::types::Column;

/// The type of a state: how its entries are addressed and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateShape {
    /// Texts of an operator's own: positions of a source, transactions of a sink.
    #[default]
    Entries,
    /// `ValueState`.
    Value,
    /// `ListState`, or an operator's list.
    List,
    /// `MapState`, or broadcast state.
    Map,
    /// `ReducingState`.
    Reducing,
    /// `AggregatingState`.
    Aggregating,
    /// `FoldingState`.
    Folding,
    /// Timers of a function.
    Timers,
    /// Accumulators of the engine's own aggregates.
    Accumulators,
    /// Rows that an operator keeps until they meet others: any number of a key, in no order.
    Rows,
}

impl StateShape {
    /// The word in messages and listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::Reducing => "reducing",
            Self::Aggregating => "aggregating",
            Self::Folding => "folding",
            Self::Timers => "timers",
            Self::Accumulators => "accumulators",
            Self::Rows => "rows",
        }
    }
}

impl fmt::Display for StateShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a state holds. Empty (`Entries`, no columns) for operator state of connectors and in snapshots of format 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StateSchema {
    /// Its type.
    pub shape: StateShape,
    /// The key's columns, without the prefix that they have in files.
    pub keys: Vec<Column>,
    /// Whether its entries have a namespace, the window.
    pub windowed: bool,
    /// The columns of a map's key.
    pub map_key: Vec<Column>,
    /// The columns of a value.
    pub values: Vec<Column>,
    /// Whether its entries carry the time of their last touch and expire.
    pub ttl: bool,
}

/// A state as a function declares it before anything runs: what a TaskManager tells of its functions when it registers, and
/// what a job's states are compared with before it is restored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateDeclaration {
    /// The state's name within its operator.
    pub name: String,
    /// Whether it belongs to keys, and if not how it is given out.
    pub kind: StateKind,
    /// What it holds, without the key: that is the job graph's.
    pub schema: StateSchema,
}

impl StateDeclaration {
    /// What the state holds where it belongs to a key of these columns; without them where it belongs to the operator.
    pub fn schema(&self, keys: &[Column]) -> StateSchema {
        let keys = if self.kind.is_keyed() { keys.to_vec() } else { Vec::new() };
        StateSchema { keys, ..self.schema.clone() }
    }
}
