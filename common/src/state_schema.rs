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
    /// Whether its entries carry the time of their last touch and expire, and by which clock.
    pub ttl: Stamps,
    /// Where the windows of its entries lie, in words, where no job can go on with those that lie elsewhere; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub grid: String,
}

/// The times of their last touch that entries carry where they expire.
///
/// In JSON `false`, `true` where the clock was not noted, or its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "WrittenStamps", into = "WrittenStamps")]
pub enum Stamps {
    /// None: entries stay.
    #[default]
    None,
    /// Times of a clock that was not noted, as release 0.1 wrote them.
    Unnoted,
    /// Processing time.
    Processing,
    /// Event time.
    Event,
}

impl Stamps {
    /// Whether entries have one.
    pub fn is_some(self) -> bool {
        self != Self::None
    }

    /// Whether entries written with these can be read as ones with `wanted` as they are: stamps of another clock mean nothing.
    pub fn reads_as(self, wanted: Self) -> bool {
        match (self, wanted) {
            (Self::Processing, Self::Event) | (Self::Event, Self::Processing) => false,
            (had, wanted) => had.is_some() == wanted.is_some(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenStamps {
    Flag(bool),
    Clock(WrittenClock),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenClock {
    Processing,
    Event,
}

impl From<WrittenStamps> for Stamps {
    fn from(written: WrittenStamps) -> Self {
        match written {
            WrittenStamps::Flag(false) => Self::None,
            WrittenStamps::Flag(true) => Self::Unnoted,
            WrittenStamps::Clock(WrittenClock::Processing) => Self::Processing,
            WrittenStamps::Clock(WrittenClock::Event) => Self::Event,
        }
    }
}

impl From<Stamps> for WrittenStamps {
    fn from(stamps: Stamps) -> Self {
        match stamps {
            Stamps::None => Self::Flag(false),
            Stamps::Unnoted => Self::Flag(true),
            Stamps::Processing => Self::Clock(WrittenClock::Processing),
            Stamps::Event => Self::Clock(WrittenClock::Event),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_written_so_that_old_ones_are_read() {
        let written = [Stamps::None, Stamps::Unnoted, Stamps::Processing, Stamps::Event];
        for (stamps, json) in written.into_iter().zip(["false", "true", "\"processing\"", "\"event\""]) {
            assert_eq!(serde_json::to_string(&stamps).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<Stamps>(json).expect("stamps"), stamps);
        }
        assert!(serde_json::from_str::<Stamps>("\"other\"").is_err());
    }

    #[test]
    fn stamps_of_another_clock_are_not_read() {
        use Stamps::{Event, None, Processing, Unnoted};
        for same in [None, Unnoted, Processing, Event] {
            assert!(same.reads_as(same));
        }
        assert!(Unnoted.reads_as(Event) && Unnoted.reads_as(Processing));
        assert!(!Event.reads_as(Processing) && !Processing.reads_as(Event));
        assert!(!None.reads_as(Event) && !Processing.reads_as(None));
    }
}
